"""Bytes the CPUs moved to and from memory, from the kernel's resctrl counters (`/sys/fs/resctrl`).

Source: Linux Documentation/arch/x86/resctrl.rst. Of the root group, all memory domains: what runs in a monitoring group
of its own is counted there and not here.
"""

from pathlib import Path

from pertoken.agent.readings import Unavailable

METRIC = "memory_traffic_bytes"
_FLAG = "cqm_mbm_total"
NO_COUNTER = Unavailable(METRIC, "unsupported", "this CPU shows no counter of memory traffic (no cqm_mbm_total)")
_NOT_MOUNTED = Unavailable(
    METRIC,
    "missing",
    "the kernel's counters of memory traffic are not mounted",
    "mount -t resctrl resctrl /sys/fs/resctrl",
)
_DENIED = Unavailable(
    METRIC,
    "denied",
    "the kernel's counters of memory traffic may not be read",
    "the right CAP_DAC_READ_SEARCH, which `pertoken agent install` gives",
)


def counts_traffic(cpu_flags: str) -> bool:
    """Return whether the CPUs count it at all; `cpu_flags` is the line `flags` of /proc/cpuinfo."""
    return _FLAG in cpu_flags.split()


def read_traffic(sys: Path) -> int | Unavailable:
    """Return bytes read from and written to memory so far, all domains together; or why that is not known."""
    counters = sorted((sys / "fs/resctrl/mon_data").glob("mon_L3_*/mbm_total_bytes"))
    if not counters:
        return _NOT_MOUNTED
    try:
        return sum(int(counter.read_text()) for counter in counters)
    except PermissionError:
        return _DENIED
    except (OSError, ValueError) as error:  # "Unavailable" for a while after a domain came up.
        return Unavailable(METRIC, "failing", f"the counter of memory traffic cannot be read: {error}")
