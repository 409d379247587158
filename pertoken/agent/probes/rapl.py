"""CPU energy from the kernel's RAPL counters (`/sys/class/powercap`).

Source: Linux Documentation/power/powercap/powercap.rst. Only the packages are counted: their sub-zones are part of
them, and `psys` and `intel-rapl-mmio` count the same energy again. Memory outside the package is not in it.
"""

from pathlib import Path

from pertoken.agent.readings import Unavailable

_DENIED = Unavailable(
    "energy_mj",
    "denied",
    "the kernel lets only root read the CPU's energy counter",
    "the right CAP_DAC_READ_SEARCH, which `pertoken agent install` gives; or let the agent's group read it: a line "
    "`z /sys/devices/virtual/powercap/intel-rapl/intel-rapl:*/energy_uj 0440 root pertoken - -` in "
    "/etc/tmpfiles.d/pertoken.conf",
)
_MISSING = Unavailable(
    "energy_mj",
    "missing",
    "this host shows no CPU energy counter, as is usual in virtual machines and containers",
    "on bare metal: `modprobe intel_rapl_msr`; in a container: mount the host's /sys/devices/virtual/powercap",
)


def read_packages(sys: Path) -> tuple[int, int] | Unavailable:
    """Return energy of all CPU packages and where that sum wraps, millijoules; or why there is none.

    Each package wraps for itself at the same value, so the sum is a counter only modulo that value.
    """
    total_uj, ranges_uj = 0, set()
    try:
        for zone in sorted((sys / "class/powercap").glob("intel-rapl:[0-9]*")):
            if ":" in zone.name.removeprefix("intel-rapl:") or not _read(zone, "name").startswith("package"):
                continue
            total_uj += int(_read(zone, "energy_uj"))
            ranges_uj.add(int(_read(zone, "max_energy_range_uj")))
    except PermissionError:
        return _DENIED
    except (OSError, ValueError) as error:
        return Unavailable("energy_mj", "failing", f"the CPU's energy counter cannot be read: {error}", _MISSING.remedy)
    if not total_uj or not ranges_uj:  # Some virtual machines show a counter that is always 0.
        return _MISSING
    if len(ranges_uj) > 1:
        return Unavailable(
            "energy_mj", "unsupported", f"the CPU packages' energy counters wrap at {sorted(ranges_uj)} µJ each"
        )
    (wraps_uj,) = ranges_uj
    return total_uj % wraps_uj // 1000, wraps_uj // 1000


def _read(zone: Path, name: str) -> str:
    return (zone / name).read_text().strip()
