"""The sampler: the agent's child that alone talks to drivers, so that it can hang or die alone.

`python -m pertoken.agent.sampler` reads one request line `{"processes": true|false, "drivers": true|false}` at a time
from stdin, answers each with one `ProbeReading` line (`pertoken.agent.wire`) on stdout, and ends at end of file.
Without `drivers` it reads the host alone and touches no driver. It ignores SIGTERM: a process must not end inside a
driver call, and its parent's end is its own.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable

import psutil

from pertoken.agent.probes.amd import AmdProbe
from pertoken.agent.probes.cpu import CpuProbe
from pertoken.agent.probes.nvidia import NvidiaProbe
from pertoken.agent.probes.xid import XidWatch
from pertoken.agent.readings import DeviceReading, Gap, ProbeReading
from pertoken.agent.wire import encode

Read = Callable[[bool], tuple[tuple[DeviceReading, ...], tuple[Gap, ...]]]


class Probes:
    """All probes of this host, and what this process costs."""

    def __init__(self) -> None:
        self.nvidia = NvidiaProbe(watch=XidWatch())
        self.amd = AmdProbe()
        self._cpu = CpuProbe()
        self._process = psutil.Process()
        self._calls = 0
        self._cpu_ms = 0

    def read(self, processes: bool, drivers: bool = True) -> ProbeReading:
        """Everything at one instant; the process lists only if asked for. Not `drivers`: the host alone."""
        host, cpu = self._cpu.read()
        nothing: tuple[tuple[DeviceReading, ...], tuple[Gap, ...]] = (), ()
        nvidia, no_nvidia = _apart("nvidia", self.nvidia.read, processes) if drivers else nothing
        amd, no_amd = _apart("amd", self.amd.read, processes) if drivers else nothing
        calls, cpu_ms = self.nvidia.calls + self.amd.calls, int(time.process_time() * 1000)
        reading = ProbeReading(
            host=host,
            devices=(*nvidia, *amd, cpu),
            gaps=no_nvidia + no_amd,
            happened=self.nvidia.happened(),
            driver_calls=calls - self._calls,
            cpu_ms=cpu_ms - self._cpu_ms,
            rss_bytes=self._process.memory_info().rss,
        )
        self._calls, self._cpu_ms = calls, cpu_ms
        return reading

    def close(self) -> None:
        """Let go of the drivers, so that they can be unloaded."""
        self.nvidia.close()
        self.amd.close()


def _apart(vendor: str, read: Read, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Gap, ...]]:
    """A vendor's devices; its library's surprises cost no other vendor."""
    try:
        return read(processes)
    except Exception as error:
        return (), (Gap(vendor, "failing", f"the probe failed: {error!r}", "please report this"),)


def _protocol_fd() -> int:
    """A descriptor of our own for answers; what libraries print to stdout goes to stderr from here on."""
    fd = os.dup(1)
    os.dup2(2, 1)
    return fd


def main() -> None:
    """Answer until end of file."""
    answers = _protocol_fd()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    probes = Probes()
    for request in sys.stdin.buffer:
        asked = json.loads(request)
        line = memoryview(encode(probes.read(asked["processes"], asked["drivers"])).encode() + b"\n")
        try:
            while line:
                line = line[os.write(answers, line) :]
        except BrokenPipeError:
            break
        if probes.nvidia.outdated:
            break
    probes.close()


if __name__ == "__main__":
    main()
