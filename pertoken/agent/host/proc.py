"""Numbers of the host from the kernel's own files, without the further work of `psutil` in every tick.

Sources: proc_meminfo(5), proc_stat(5), proc_pid_net(5) for dev, proc_pid_statm(5).
"""

import os
import re
from functools import cache

_MEMINFO = re.compile(rb"MemTotal: +(\d+) kB\n.*\nMemAvailable: +(\d+) kB\n")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_bytes() -> tuple[int, int]:
    """Return all memory and the available part: by `psutil`'s estimate on a kernel (before 3.14) without one."""
    match = _MEMINFO.match(_start("/proc/meminfo", 256))
    if match is None:
        import psutil  # the sampler, which reads its own memory here, needs nothing of it

        memory = psutil.virtual_memory()
        return memory.total, memory.available
    return int(match[1]) * 1024, int(match[2]) * 1024


def cpu_ticks() -> tuple[int, int]:
    """Return clock ticks of all CPUs: idle (or waiting for a disk), and in total."""
    _, user, nice, system, idle, iowait, irq, softirq, steal, *_ = _start("/proc/stat", 512).split(maxsplit=10)
    # user and nice hold guest and guest_nice already.
    waited = int(idle) + int(iowait)
    return waited, waited + int(user) + int(nice) + int(system) + int(irq) + int(softirq) + int(steal)


def network_bytes() -> tuple[int, int]:
    """Return bytes received and sent by all interfaces but the loopback."""
    received = sent = 0
    for line in _content("/proc/net/dev").splitlines()[2:]:
        name, _, counters = line.partition(b":")
        words = counters.split()
        if name.strip() != b"lo" and len(words) > 8:
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def own_rss_bytes() -> int:
    """Return resident memory of this process."""
    return int(_start("/proc/self/statm", 256).split(maxsplit=2)[1]) * _PAGE_BYTES


def own_boot_id() -> str | None:
    """Return the id of this boot of this machine; None where the kernel has none."""
    try:
        return _start("/proc/sys/kernel/random/boot_id", 64).decode("ascii").strip()
    except OSError:
        return None


def _content(path: str) -> bytes:
    content = b""
    while part := os.pread(_kept_open(path), 65_536, len(content)):
        content += part
    return content


def _start(path: str, max_bytes: int) -> bytes:
    return os.pread(_kept_open(path), max_bytes, 0)


@cache
def _kept_open(path: str) -> int:
    """Open a file for the life of this process: the kernel writes it again for each read from its start.

    Opening and closing costs as much CPU as reading.
    """
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
