"""One NVIDIA GPU and its MIG devices: what is asked of them, how often, and what their answers mean.

Never asked: PCIe throughput (20 ms each) and fan speed. The process list is slow on real drivers (milliseconds, under
a lock the workload needs), so it is read only when asked for, and with it what changes slowly.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from pertoken.agent.probes import fields
from pertoken.agent.probes.backoff import Backoff, Clock
from pertoken.agent.probes.gpm import Gpm, GpmRequest
from pertoken.agent.probes.gpu_processes import read_processes
from pertoken.agent.probes.nvml import GONE, LOST, NOT_SUPPORTED, Call, Nvml, NvmlFault, Scope
from pertoken.agent.probes.xid import Xid
from pertoken.agent.readings import DeviceReading, Gap, Happened, reading_of

_V2 = (pynvml.nvmlMemory_v2,)
Table = dict[str, tuple[Call, ...]]
"""Fields of `DeviceReading` -> the calls that give them, preferred first."""
IDENTITY: Table = {
    "name": (Call("nvmlDeviceGetName"),),
    "memory_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total),
    ),
    "power_limit_mw": (Call("nvmlDeviceGetEnforcedPowerLimit"),),
    "pci_bus_id": (Call("nvmlDeviceGetPciInfo", lambda pci: pci.busId),),
}
"""Read when a GPU is found; the power limit again with what is slow, for caps change."""
TICK: Table = {
    "util_1e4": (Call("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu * 100),),
    # v1 counts what the driver reserves for itself as used.
    "memory_used_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used),
    ),
    "sm_clock_mhz": (Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_SM,)),),
    "throttle_reasons": (
        Call("nvmlDeviceGetCurrentClocksEventReasons"),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
}
"""Read every time, beside field values and GPM."""
SLOW: Table = {
    "memory_clock_mhz": (Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_MEM,)),),
    "temperature_c": (
        Call("nvmlDeviceGetTemperatureV", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
        Call("nvmlDeviceGetTemperature", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
    ),
}
"""Read with the processes, and kept until they are read again."""
_SLICE_IDENTITY: Table = {name: IDENTITY[name] for name in ("name", "memory_bytes")}
_SLICE_TICK: Table = {"memory_used_bytes": TICK["memory_used_bytes"]}
_BY_UUID, _UUID = Call("nvmlDeviceGetHandleByUUID"), Call("nvmlDeviceGetUUID")
_MIG_MODE = Call("nvmlDeviceGetMigMode", lambda modes: modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
_MOST_SLICES, _SLICE = Call("nvmlDeviceGetMaxMigDeviceCount"), Call("nvmlDeviceGetMigDeviceHandleByIndex")
_INSTANCE, _COMPUTE_INSTANCE = Call("nvmlDeviceGetGpuInstanceId"), Call("nvmlDeviceGetComputeInstanceId")
_COMPUTE_SLICES = Call("nvmlDeviceGetAttributes_v2", lambda attributes: attributes.computeInstanceSliceCount)
_UNIFIED = {
    "memory_bytes": lambda meminfo: meminfo["MemTotal"],
    "memory_used_bytes": lambda meminfo: meminfo["MemTotal"] - meminfo["MemAvailable"],
}
_SHARED = "the driver tells none, as on GPUs that share the host's memory: this is the whole host's, of /proc/meminfo"
_OF_PARENT = "NVIDIA drivers tell it of the whole GPU only, not of a MIG device"
_NOT_OF_SLICES = ("util_1e4", "power_mw", "energy_mj", "sm_clock_mhz", "memory_clock_mhz", "temperature_c")


@dataclass(slots=True)
class _Slice:
    known: DeviceReading
    handle: Any
    gpm: Gpm
    instances: tuple[int, int]
    """Its GPU instance, and its compute instance in that."""


@dataclass(slots=True)
class Source:
    """What all GPUs of a host are read with. `clock` is monotonic seconds, `proc` the /proc to look into."""

    nvml: Nvml
    clock: Clock
    proc: Path


class Gpu:
    """A GPU as it is known, and the way to it. `handle` None: it has to be looked up by its UUID again."""

    def __init__(self, source: Source, known: DeviceReading, handle: Any) -> None:
        self._source = source
        self.known, self.handle = known, handle
        self.lost: str | None = None
        self._backoff = Backoff(source.clock)
        self._slices: dict[str, _Slice] = {}
        self._in_slices = False
        self._slow: tuple[dict[str, Any], dict[str, Gap]] | None = None
        self._seen_us = 0
        # Of its own: a call that hangs on one GPU may write its answer while another is read.
        self._gpm_request, self._field_requests = GpmRequest(), fields.Requests()
        self._gpm = Gpm(known.uuid, self._gpm_request)

    @classmethod
    def found(cls, source: Source, handle: Any, slot: int, driver_version: str | None) -> "Gpu":
        """The GPU behind a handle. Raises NvmlFault if it does not even tell its UUID."""
        uuid = source.nvml.ask(f"slot {slot}", _UUID, handle)
        values, gaps = _values(source, uuid, handle, IDENTITY)
        known = DeviceReading(
            uuid=uuid,
            kind="gpu",
            vendor="NVIDIA",
            slot=slot,
            driver_version=driver_version,
            gaps=tuple(gaps.values()),
            **{"name": "NVIDIA GPU"} | values,
        )
        return cls(source, known, handle)

    def unread(self, why: str | None = None) -> tuple[DeviceReading, ...]:
        """It and its MIG devices, with no value and the reason."""
        why = why or self.lost
        return tuple(each._replace(lost=why) for each in (self.known, *(one.known for one in self._slices.values())))

    def lose(self, why: str) -> None:
        """Its handle is dead; so is what was begun with it."""
        self.handle, self.lost = None, why
        self._gpm = Gpm(self.known.uuid, self._gpm_request)
        for uuid, each in self._slices.items():
            each.gpm = Gpm(uuid, self._gpm_request)

    def struck(self, xid: Xid) -> Happened:
        """An Xid as it is told: of the MIG device that it struck if the driver names that, else of the GPU."""
        text = f"the driver reported Xid {xid.number}; NVIDIA's Xid list says what it means"
        told = xid.gpu_instance, xid.compute_instance
        for uuid, each in self._slices.items():
            if told in (each.instances, (each.instances[0], None)):
                return Happened(uuid, "xid", text)
        if not self._in_slices:
            return Happened(self.known.uuid, "xid", text)
        named = "no MIG device, as it does for an unprivileged agent or an error of the whole GPU"
        if xid.gpu_instance is not None:
            named = f"GPU instance {xid.gpu_instance}, where no MIG device is known"
        return Happened(self.known.uuid, "xid", f"{text}. It struck a GPU in MIG devices; the driver names {named}")

    def free(self) -> None:
        """Give back what the driver keeps for it. Raises NvmlFault."""
        for gpm in (self._gpm, *(each.gpm for each in self._slices.values())):
            gpm.free(self._source.nvml)

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        """It and its MIG devices now. Raises NvmlFault only for what is wrong with the whole library."""
        if self.lost and not self._backoff.due:
            return self.unread()
        nvml, uuid = self._source.nvml, self.known.uuid
        try:
            if self.handle is None:
                self.handle = nvml.ask(uuid, _BY_UUID, uuid)
                self._slow = None
            readings = self._read(processes)
        except NvmlFault as error:
            if error.fault.scope is Scope.LIBRARY:
                raise
            gone = self.handle is None and error.fault.code == pynvml.NVML_ERROR_NOT_FOUND
            self.lose(GONE.reason if gone else error.fault.reason)
            self._backoff.failed()
            return self.unread()
        if self.lost:
            self.lost, self._backoff = None, Backoff(self._source.clock)
        return readings

    def _read(self, processes: bool) -> tuple[DeviceReading, ...]:
        source, uuid = self._source, self.known.uuid
        slow = processes or self._slow is None
        values, gaps = _values(source, uuid, self.handle, TICK)
        asked = fields.ALL if slow else fields.TICK
        told, hidden = fields.read_fields(source.nvml, uuid, self.handle, asked, self._field_requests)
        values |= told
        gaps |= hidden
        if not values:
            raise NvmlFault(replace(LOST, reason=f"the GPU answers nothing: {gaps['power_mw'].reason}"))
        if slow:
            self._read_slow(processes, values, gaps)
        for metric, value in self._slow[0].items() if self._slow else ():
            values.setdefault(metric, value)
        for metric, gap in self._slow[1].items() if self._slow else ():
            gaps.setdefault(metric, gap)
        if not self._in_slices:
            told, hidden = self._gpm.read(source.nvml, self.handle, source.clock())
            values |= told
            gaps |= hidden
        if processes:
            held, hidden = self._processes(uuid, self.handle)
            values |= held
            gaps |= hidden
        gaps = {gap.metric: gap for gap in self.known.gaps} | gaps
        reading = reading_of(self.known, **values, gaps=tuple(gaps.values()))
        return (reading, *(self._read_slice(each, processes) for each in self._slices.values()))

    def _read_slow(self, processes: bool, values: dict[str, Any], gaps: dict[str, Gap]) -> None:
        """What changes seldom: clocks of the memory, temperature, errors of the memory, power cap, MIG."""
        slow_values, slow_gaps = _values(self._source, self.known.uuid, self.handle, SLOW)
        for metric in (each.metric for each in fields.SLOW):
            if metric in values:
                slow_values[metric] = values[metric]
            if metric in gaps:
                slow_gaps[metric] = gaps[metric]
        if self._slow is not None or processes:
            self._know_more()
        self._slow = slow_values, slow_gaps
        self._find_slices()

    def _know_more(self) -> None:
        """Read again what may change of its identity (its power cap), and what was not told at first."""
        untold = {gap.metric for gap in self.known.gaps} | {"power_limit_mw"}
        table = {metric: calls for metric, calls in IDENTITY.items() if metric in untold}
        values, gaps = _values(self._source, self.known.uuid, self.handle, table)
        self.known = self.known._replace(**values, gaps=tuple(gaps.values()))

    def _processes(self, uuid: str, handle: Any) -> tuple[dict[str, Any], dict[str, Gap]]:
        if self._in_slices and uuid == self.known.uuid:
            return {"processes": ()}, {}  # they run on its MIG devices
        memory_bytes = self._slices[uuid].known.memory_bytes if uuid in self._slices else self.known.memory_bytes
        found = read_processes(self._source.nvml, uuid, handle, memory_bytes, self._seen_us)
        self._seen_us = found.seen_us
        if found.gap is not None:
            return {"processes": None}, {"processes": found.gap}
        return {"processes": found.processes}, {}

    # -- MIG -------------------------------------------------------------------------------------------------------

    def _find_slices(self) -> None:
        """Which MIG devices there are now: they come and go while the GPU stays."""
        nvml, uuid = self._source.nvml, self.known.uuid
        found: dict[str, _Slice] = {}
        self._in_slices = False
        try:
            self._in_slices = nvml.ask(uuid, _MIG_MODE, self.handle)
            most = nvml.ask(uuid, _MOST_SLICES, self.handle) if self._in_slices else 0
        except NvmlFault as error:
            if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                raise
            most = 0
        for index in range(most):
            try:
                handle = nvml.ask(f"{uuid} slice {index}", _SLICE, self.handle, index)
                each = self._slice(handle, index, most)
            except NvmlFault as error:
                if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                    raise
                continue  # empty
            found[each.known.uuid] = each
        self._slices = found

    def _slice(self, handle: Any, index: int, most: int) -> _Slice:
        nvml = self._source.nvml
        uuid = nvml.ask(f"{self.known.uuid} slice {index}", _UUID, handle)
        instances = nvml.ask(uuid, _INSTANCE, handle), nvml.ask(uuid, _COMPUTE_INSTANCE, handle)
        before = self._slices.get(uuid)
        if before is not None:
            before.handle = handle
            return before
        values, gaps = _values(self._source, uuid, handle, _SLICE_IDENTITY)
        values["name"] = f"{values.get('name', f'{self.known.name} MIG')} ({index})"
        known = DeviceReading(
            uuid=uuid,
            kind="mig",
            vendor="NVIDIA",
            slot=self.known.slot,
            driver_version=self.known.driver_version,
            pci_bus_id=self.known.pci_bus_id,
            parent_uuid=self.known.uuid,
            part_1e6=nvml.ask(uuid, _COMPUTE_SLICES, handle) * 1_000_000 // most,
            gaps=(*gaps.values(), *(Gap(metric, "unsupported", _OF_PARENT) for metric in _NOT_OF_SLICES)),
            **values,
        )
        return _Slice(known, handle, Gpm(uuid, self._gpm_request, instances[0]), instances)

    def _read_slice(self, each: _Slice, processes: bool) -> DeviceReading:
        source, uuid = self._source, each.known.uuid
        values, gaps = _values(source, uuid, each.handle, _SLICE_TICK)
        told, hidden = each.gpm.read(source.nvml, self.handle, source.clock())
        values |= told
        gaps |= hidden
        if processes:
            held, hidden = self._processes(uuid, each.handle)
            values |= held
            gaps |= hidden
        gaps = {gap.metric: gap for gap in each.known.gaps} | gaps
        return reading_of(each.known, **values, gaps=tuple(gaps.values()))


def _values(source: Source, uuid: str, handle: Any, table: Table) -> tuple[dict[str, Any], dict[str, Gap]]:
    values: dict[str, Any] = {}
    gaps: dict[str, Gap] = {}
    for metric, calls in table.items():
        try:
            values[metric] = source.nvml.first(uuid, calls, handle)
        except NvmlFault as error:
            if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                raise
            gaps[metric] = error.fault.gap(metric)
            if error.fault is NOT_SUPPORTED and metric in _UNIFIED:
                values[metric] = _UNIFIED[metric](_meminfo(source.proc))
                gaps[metric] = replace(gaps[metric], reason=_SHARED)
    return values, gaps


def _meminfo(proc: Path) -> dict[str, int]:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
