"""The host, and its CPUs as one device (a model may be served by them)."""

from __future__ import annotations

import os
import platform
import time
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from pertoken.agent.host import proc
from pertoken.agent.readings import DeviceReading, HostReading, Unavailable, energy_step, reading_of
from pertoken.agent.workers import Backoff, Clock

_ENERGY_DENIED = Unavailable(
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
        return _ENERGY_DENIED
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


_TRAFFIC = "memory_traffic_bytes"
_TRAFFIC_FLAG = "cqm_mbm_total"
NO_COUNTER = Unavailable(_TRAFFIC, "unsupported", "this CPU shows no counter of memory traffic (no cqm_mbm_total)")
_NOT_MOUNTED = Unavailable(
    _TRAFFIC,
    "missing",
    "the kernel's counters of memory traffic are not mounted",
    "mount -t resctrl resctrl /sys/fs/resctrl",
)
_TRAFFIC_DENIED = Unavailable(
    _TRAFFIC,
    "denied",
    "the kernel's counters of memory traffic may not be read",
    "the right CAP_DAC_READ_SEARCH, which `pertoken agent install` gives",
)


def counts_traffic(cpu_flags: str) -> bool:
    """Return whether the CPUs count it at all; `cpu_flags` is the line `flags` of /proc/cpuinfo."""
    return _TRAFFIC_FLAG in cpu_flags.split()


def read_traffic(sys: Path) -> int | Unavailable:
    """Return bytes read from and written to memory so far, all domains together; or why that is not known."""
    counters = sorted((sys / "fs/resctrl/mon_data").glob("mon_L3_*/mbm_total_bytes"))
    if not counters:
        return _NOT_MOUNTED
    try:
        return sum(int(counter.read_text()) for counter in counters)
    except PermissionError:
        return _TRAFFIC_DENIED
    except (OSError, ValueError) as error:  # "Unavailable" for a while after a domain came up.
        return Unavailable(_TRAFFIC, "failing", f"the counter of memory traffic cannot be read: {error}")


_MACHINE_ID = ("etc/machine-id", "var/lib/dbus/machine-id", "sys/class/dmi/id/product_uuid")
_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
_NAMESPACE = uuid.UUID("5f0a6d0e-9f0b-5c35-9c5e-6a0c2c1f7a11")
"""Of the CPU device's UUID, made of the machine id, which must not leave the host as it is."""


class CpuProbe:
    """Reads host and CPUs. `root` is the folder of /proc, /sys and /etc; `clock` is monotonic seconds.

    Utilization and power, which need a difference, are None in the first reading.
    """

    def __init__(self, root: Path = Path("/"), clock: Clock = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._boot_ms = round(psutil.boot_time()) * 1000
        processor = self._cpuinfo()
        self._cpu_name = processor.get("model name") or None
        self._counts_traffic = counts_traffic(processor.get("flags", ""))
        self._vendor = _VENDORS.get(processor.get("vendor_id", ""), "unknown")
        self._machine_id = self._first_text(*_MACHINE_ID)
        self._boot_id = self._first_text("proc/sys/kernel/random/boot_id")
        self._name, self._os = platform.node(), f"{platform.system()} {platform.release()}"
        self._cpu_count = psutil.cpu_count() or 1
        self._times: tuple[int, int] | None = None
        self._before: tuple[float, DeviceReading] | None = None
        self._no_energy: Unavailable | None = None
        self._no_power: tuple[Unavailable, ...] = ()
        self._energy_backoff = Backoff(clock)
        key = f"{self._machine_id or self._name} cpu"
        self._device_known = DeviceReading(
            uuid=f"CPU-{uuid.uuid5(_NAMESPACE, key)}",
            kind="cpu",
            vendor=self._vendor,
            name=self._cpu_name or f"{platform.machine()} CPU",
        )

    def read(self) -> tuple[HostReading, DeviceReading]:
        """Return both at one instant."""
        memory_bytes, available_bytes = proc.memory_bytes()
        traffic = read_traffic(self._root / "sys") if self._counts_traffic else NO_COUNTER
        unknown = (traffic,) if isinstance(traffic, Unavailable) else ()
        received_bytes, sent_bytes = proc.network_bytes()
        host = HostReading(
            name=self._name,
            machine_id=self._machine_id,
            boot_id=self._boot_id,
            boot_ms=self._boot_ms,
            os=self._os,
            cpu_name=self._cpu_name,
            cpu_count=self._cpu_count,
            memory_bytes=memory_bytes,
            cpu_util_1e4=self._utilization(),
            load_1e2=round(os.getloadavg()[0] * 100),
            memory_used_bytes=memory_bytes - available_bytes,
            network_rx_bytes=received_bytes,
            network_tx_bytes=sent_bytes,
            memory_traffic_bytes=None if isinstance(traffic, Unavailable) else traffic,
        )
        return host, self._device(host, unknown)

    def _device(self, host: HostReading, unknown: tuple[Unavailable, ...]) -> DeviceReading:
        values: dict[str, object] = {
            "memory_bytes": host.memory_bytes,
            "util_1e4": host.cpu_util_1e4,
            "memory_used_bytes": host.memory_used_bytes,
        }
        energy, now_s = self._energy(), self._clock()
        if isinstance(energy, Unavailable):
            self._before = None
            return reading_of(self._device_known, **values, unavailable=(energy, *self._no_power, *unknown))
        values |= {"energy_mj": energy[0], "energy_wraps_mj": energy[1], "unavailable": unknown}
        device = reading_of(self._device_known, **values)
        if self._before is not None:
            elapsed_ms = round((now_s - self._before[0]) * 1000)
            used_mj = energy_step(self._before[1], device, elapsed_ms).counter_mj
            device = device._replace(power_mw=None if used_mj is None else used_mj * 1000 // elapsed_ms)
        self._before = now_s, device
        return device

    def _energy(self) -> tuple[int, int] | Unavailable:
        """Return the counter and its limit; a missing counter is looked for again only now and then."""
        if self._no_energy is not None and not self._energy_backoff.due:
            return self._no_energy
        packages = read_packages(self._root / "sys")
        if isinstance(packages, Unavailable):
            self._energy_backoff.failed()
            self._no_energy, self._no_power = packages, (replace(packages, metric="power_mw"),)
        else:
            self._no_energy, self._energy_backoff = None, Backoff(self._clock)
        return packages

    def _utilization(self) -> int | None:
        idle, total = proc.cpu_ticks()
        previous, self._times = self._times, (idle, total)
        if previous is None or total <= previous[1]:
            return None
        return round(10_000 * min(1, max(0, 1 - (idle - previous[0]) / (total - previous[1]))))

    def _cpuinfo(self) -> dict[str, str]:
        """Return the fields of the first processor."""
        fields: dict[str, str] = {}
        with suppress(OSError), (self._root / "proc/cpuinfo").open() as lines:
            for line in lines:
                word, separator, value = line.partition(":")
                if not separator:
                    break
                fields[word.strip()] = value.strip()
        return fields

    def _first_text(self, *paths: str) -> str | None:
        for path in paths:
            with suppress(OSError):
                text = (self._root / path).read_text().strip()
                if text and text != "uninitialized":
                    return text
        return None
