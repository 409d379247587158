"""NVIDIA GPUs through `nvidia-ml-py`: the fewest driver calls that tell identity, load, power and energy.

Never asked: PCIe throughput (20 ms each) and fan speed. The process list is slow on real drivers (milliseconds, under
a lock the workload needs), so it is read only when asked for. Power is a 1 s average on Ampere (but A100) and newer.
"""

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from pertoken.agent.probes.backoff import Backoff, Clock
from pertoken.agent.probes.nvml import LOST, NOT_SUPPORTED, OUTDATED, Call, Fault, Nvml, NvmlFault, Scope
from pertoken.agent.readings import DeviceProcess, DeviceReading, Gap


def _processes(rows: list[Any]) -> tuple[DeviceProcess, ...]:
    return tuple(DeviceProcess(row.pid, row.usedGpuMemory) for row in rows)


_V2 = (pynvml.nvmlMemory_v2,)
Table = dict[str, tuple[Call, ...]]
"""Fields of `DeviceReading` -> the calls that give them, preferred first."""
PROCESSES: Table = {
    "processes": (
        Call("nvmlDeviceGetComputeRunningProcesses", _processes),
        Call("nvmlDeviceGetComputeRunningProcesses_v2", _processes),
    )
}
"""Read when asked for."""
IDENTITY: Table = {
    "name": (Call("nvmlDeviceGetName"),),
    "memory_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total),
    ),
    "power_limit_mw": (Call("nvmlDeviceGetEnforcedPowerLimit"),),
    "pci_bus_id": (Call("nvmlDeviceGetPciInfo", lambda pci: pci.busId),),
}
"""Read when a GPU is found; the power limit again with the processes, for caps change."""
TICK: Table = {
    "util_1e4": (Call("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu * 100),),
    # v1 counts what the driver reserves for itself as used.
    "memory_used_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used),
    ),
    "power_mw": (Call("nvmlDeviceGetPowerUsage"),),
    "energy_mj": (Call("nvmlDeviceGetTotalEnergyConsumption"),),
    "sm_clock_mhz": (Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_SM,)),),
    "memory_clock_mhz": (Call("nvmlDeviceGetClockInfo", arguments=(pynvml.NVML_CLOCK_MEM,)),),
    "temperature_c": (
        Call("nvmlDeviceGetTemperatureV", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
        Call("nvmlDeviceGetTemperature", arguments=(pynvml.NVML_TEMPERATURE_GPU,)),
    ),
    "throttle_reasons": (
        Call("nvmlDeviceGetCurrentClocksEventReasons"),
        Call("nvmlDeviceGetCurrentClocksThrottleReasons"),
    ),
}
"""Read every time."""
_INIT, _SHUTDOWN = Call("nvmlInit"), Call("nvmlShutdown")
_DRIVER_VERSION, _COUNT = Call("nvmlSystemGetDriverVersion"), Call("nvmlDeviceGetCount")
_BY_SLOT, _BY_UUID = Call("nvmlDeviceGetHandleByIndex"), Call("nvmlDeviceGetHandleByUUID")
_UUID = Call("nvmlDeviceGetUUID")
_LIBRARY = ""
"""Owner of the calls that belong to no device."""
_UNIFIED = {
    "memory_bytes": lambda meminfo: meminfo["MemTotal"],
    "memory_used_bytes": lambda meminfo: meminfo["MemTotal"] - meminfo["MemAvailable"],
}
_SHARED = "the driver tells none, as on GPUs that share the host's memory: this is the whole host's, of /proc/meminfo"
_PID_MAX = 2**22
_SCRAMBLED = Gap(
    "processes",
    "failing",
    "the driver's process list makes no sense (drivers near 535.43 changed its layout unannounced)",
    "update the NVIDIA driver",
)
_FOREIGN = Gap(
    "processes",
    "denied",
    "none of the pids the driver names can be seen from here",
    "run the agent in the host's pid namespace (`--pid=host`, or `hostPID: true`)",
)


@dataclass(slots=True)
class _Gpu:
    known: DeviceReading
    """Its identity, with the gaps in that."""
    handle: Any
    backoff: Backoff
    lost: str | None = None

    def reading(self) -> DeviceReading:
        return replace(self.known, lost=self.lost)


class NvidiaProbe:
    """Reads all NVIDIA GPUs of this host; one that fails costs only itself.

    `clock` is monotonic seconds, `proc` the /proc to look up pids and host memory in.
    """

    def __init__(self, clock: Clock = time.monotonic, proc: Path = Path("/proc")) -> None:
        self.nvml = Nvml()
        self.outdated = False
        """The driver changed under the library this process has loaded: only a new process can read it."""
        self._clock = clock
        self._proc = proc
        self._gpus: dict[str, _Gpu] = {}
        self._unseen: dict[int, tuple[Gap, Backoff]] = {}
        """Slots whose GPU would not even tell its UUID."""
        self._driver_version: str | None = None
        self._up = self._was_up = False
        self._down: tuple[Gap, ...] = ()
        self._backoff = Backoff(clock)

    @property
    def calls(self) -> int:
        """Calls made to the driver so far."""
        return self.nvml.calls

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Gap, ...]]:
        """Every GPU ever seen, by slot, and what is missing for the whole host. No driver error is raised."""
        once_more = self._up
        while self._up or self._backoff.due:
            try:
                if not self._up:
                    self._start()
                self._look_again()
                readings = [self._read(gpu, processes) for gpu in self._gpus.values()]
                return _by_slot(readings), tuple(gap for gap, _ in self._unseen.values())
            except NvmlFault as error:
                self._stop(error.fault)
                if not once_more:
                    self._backoff.failed()
                once_more = False
        return _by_slot([gpu.reading() for gpu in self._gpus.values()]), self._down

    def close(self) -> None:
        """Let go of the driver, so that it can be unloaded."""
        if self._up:
            self._up = False
            with suppress(NvmlFault):
                self.nvml.ask(_LIBRARY, _SHUTDOWN)

    # -- the library -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.nvml.ask(_LIBRARY, _INIT)
        self._up = True
        self._driver_version = self.nvml.ask(_LIBRARY, _DRIVER_VERSION)
        for gpu in self._gpus.values():
            gpu.handle, gpu.lost = None, "the NVIDIA driver no longer lists this GPU"
        self._unseen.clear()
        for slot in range(self.nvml.ask(_LIBRARY, _COUNT)):
            self._find(slot, Backoff(self._clock))
        self._was_up, self._backoff = True, Backoff(self._clock)

    def _stop(self, fault: Fault) -> None:
        self.close()
        self.nvml.forget()
        self.outdated = fault is OUTDATED and self._was_up
        self._down = (fault.gap("nvidia"),)
        for gpu in self._gpus.values():
            gpu.handle, gpu.lost = None, fault.reason

    # -- finding GPUs ----------------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        for slot, (_, backoff) in list(self._unseen.items()):
            if backoff.due:
                self._find(slot, backoff)

    def _find(self, slot: int, backoff: Backoff) -> None:
        try:
            handle = self.nvml.ask(f"slot {slot}", _BY_SLOT, slot)
            uuid = self.nvml.ask(f"slot {slot}", _UUID, handle)
            values, gaps = self._values(uuid, handle, IDENTITY)
        except NvmlFault as error:
            if error.fault.scope is Scope.LIBRARY:
                raise
            backoff.failed()
            self._unseen[slot] = (error.fault.gap(f"gpu {slot}"), backoff)
            return
        self._unseen.pop(slot, None)
        known = DeviceReading(
            uuid=uuid,
            kind="gpu",
            vendor="NVIDIA",
            slot=slot,
            driver_version=self._driver_version,
            gaps=tuple(gaps.values()),
            **{"name": "NVIDIA GPU"} | values,
        )
        self._gpus[uuid] = _Gpu(known, handle, Backoff(self._clock))

    # -- reading one -----------------------------------------------------------------------------------------------

    def _read(self, gpu: _Gpu, processes: bool) -> DeviceReading:
        if gpu.lost and not gpu.backoff.due:
            return gpu.reading()
        uuid = gpu.known.uuid
        try:
            if gpu.handle is None:
                gpu.handle = self.nvml.ask(uuid, _BY_UUID, uuid)
            values, gaps = self._values(uuid, gpu.handle, TICK)
            if not values:
                raise NvmlFault(replace(LOST, reason=f"the GPU answers nothing: {gaps['power_mw'].reason}"))
            if processes:
                self._know_more(gpu)
                held, hidden = self._values(uuid, gpu.handle, PROCESSES)
                values, gaps = values | held, gaps | hidden
        except NvmlFault as error:
            if error.fault.scope is Scope.LIBRARY:
                raise
            gpu.handle, gpu.lost = None, error.fault.reason
            gpu.backoff.failed()
            return gpu.reading()
        if gpu.lost:
            gpu.lost, gpu.backoff = None, Backoff(self._clock)
        if values.get("processes"):
            values["processes"], scrambled = self._sane(values["processes"], gpu.known.memory_bytes)
            gaps |= {gap.metric: gap for gap in scrambled}
        gaps = {gap.metric: gap for gap in gpu.known.gaps} | gaps
        return replace(gpu.known, **values, gaps=tuple(gaps.values()))

    def _know_more(self, gpu: _Gpu) -> None:
        """Read again what may change of a GPU's identity (its power cap), and what was not told at first."""
        untold = {gap.metric for gap in gpu.known.gaps} | {"power_limit_mw"}
        table = {metric: calls for metric, calls in IDENTITY.items() if metric in untold}
        values, gaps = self._values(gpu.known.uuid, gpu.handle, table)
        gpu.known = replace(gpu.known, **values, gaps=tuple(gaps.values()))

    def _values(self, uuid: str, handle: Any, table: Table) -> tuple[dict[str, Any], dict[str, Gap]]:
        values: dict[str, Any] = {}
        gaps: dict[str, Gap] = {}
        for metric, calls in table.items():
            try:
                values[metric] = self.nvml.first(uuid, calls, handle)
            except NvmlFault as error:
                if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                    raise
                gaps[metric] = error.fault.gap(metric)
                if error.fault is NOT_SUPPORTED and metric in _UNIFIED:
                    values[metric] = _UNIFIED[metric](self._meminfo())
                    gaps[metric] = replace(gaps[metric], reason=_SHARED)
        return values, gaps

    def _meminfo(self) -> dict[str, int]:
        lines = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}

    def _sane(
        self, rows: tuple[DeviceProcess, ...], memory_bytes: int | None
    ) -> tuple[tuple[DeviceProcess, ...] | None, tuple[Gap, ...]]:
        for row in rows:
            too_much = row.memory_bytes and memory_bytes and row.memory_bytes > memory_bytes
            if not 0 < row.pid <= _PID_MAX or too_much:
                return None, (_SCRAMBLED,)
        alive = tuple(row for row in rows if (self._proc / str(row.pid)).exists())
        return (alive, ()) if alive else (None, (_FOREIGN,))


def _by_slot(readings: list[DeviceReading]) -> tuple[DeviceReading, ...]:
    return tuple(sorted(readings, key=lambda reading: reading.slot or 0))
