"""The one way to the NVIDIA driver: every call counted, every error put in words, no hopeless call made twice.

Error semantics: nvml.h 12.9 and nvidia-ml-py 13.615.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import pynvml

from pertoken.agent.readings import Unavailable
from pertoken.agent.workers import Clock

Value = TypeVar("Value")
ValueCo = TypeVar("ValueCo", covariant=True)


class FaultScope(Enum):
    """Extent of an error."""

    CALL = "this device never answers this call"
    MOMENT = "this device did not answer this call this time"
    DEVICE = "this device answers nothing"
    LIBRARY = "no device answers until the library is initialised again"


@dataclass(frozen=True, slots=True)
class DriverFault:
    """A driver error in the words of a `Unavailable`."""

    scope: FaultScope
    status: str
    reason: str
    remedy: str | None = None
    code: int | None = None
    """Code of NVML for an error without a row in `FAULTS`."""

    def missing(self, metric: str) -> Unavailable:
        """Return the gap this fault leaves in a metric."""
        return Unavailable(metric, self.status, self.reason, self.remedy)


class NvmlFault(Exception):
    """A call that gave no value."""

    def __init__(self, fault: DriverFault) -> None:
        super().__init__(fault.reason)
        self.fault = fault

    def of_call(self) -> DriverFault:
        """Return the fault of this call alone; raise this error if the device or the library fails."""
        if self.fault.scope in (FaultScope.DEVICE, FaultScope.LIBRARY):
            raise self
        return self.fault


_UPDATE = "update the NVIDIA driver"
NOT_SUPPORTED = DriverFault(
    FaultScope.CALL, "unsupported", "this GPU, or the mode it is in (MIG, vGPU), does not offer it"
)
LOST = DriverFault(
    FaultScope.DEVICE,
    "failing",
    "the GPU fell off the bus",
    "look for Xid lines in `dmesg`; a reboot may bring it back",
)
GONE = DriverFault(
    FaultScope.DEVICE,
    "failing",
    "the NVIDIA driver no longer lists this GPU",
    "it was pulled out, or see `dmesg` for why",
)
OUTDATED = DriverFault(
    FaultScope.LIBRARY,
    "failing",
    "the NVIDIA driver's library and its kernel module are of different versions",
    "reload the NVIDIA kernel modules or reboot",
)
DENIED = DriverFault(
    FaultScope.CALL, "denied", "the NVIDIA driver gives it only to a privileged user", "run the agent as root"
)
NO_ENTRY = DriverFault(
    FaultScope.LIBRARY,
    "denied",
    "this process may not open the NVIDIA driver's device nodes, so that nothing of its GPUs can be read",
    "rights to read and write /dev/nvidiactl and /dev/nvidia*; `pertoken agent install` gives them",
)
NONSENSE = DriverFault(FaultScope.MOMENT, "failing", "the NVIDIA driver's answer makes no sense", _UPDATE)
FAULTS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: DENIED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: DriverFault(
        FaultScope.CALL, "missing", "the installed NVIDIA driver is too old to have it", _UPDATE
    ),
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: DriverFault(
        FaultScope.CALL, "missing", "the installed NVIDIA driver has another version of this call", _UPDATE
    ),
    pynvml.NVML_ERROR_DEPRECATED: DriverFault(
        FaultScope.CALL, "unsupported", "the installed NVIDIA driver no longer offers it"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: DriverFault(
        FaultScope.DEVICE,
        "failing",
        "the GPU needs a reset",
        "stop its processes, then `nvidia-smi --gpu-reset -i UUID`",
    ),
    pynvml.NVML_ERROR_UNINITIALIZED: DriverFault(
        FaultScope.LIBRARY, "failing", "the NVIDIA driver was reloaded", "nothing: it is initialised again shortly"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: DriverFault(
        FaultScope.LIBRARY, "missing", "the NVIDIA kernel driver is not loaded", "load it: `modprobe nvidia`"
    ),
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: DriverFault(
        FaultScope.LIBRARY,
        "missing",
        "no NVIDIA driver library (libnvidia-ml.so.1) on this host",
        "with an NVIDIA GPU: install its driver; in a container: the NVIDIA container toolkit, capability `utility`",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: OUTDATED,
}


def fault_of(code: int) -> DriverFault:
    """Return the meaning of an error code."""
    return FAULTS.get(code) or DriverFault(
        FaultScope.MOMENT, "failing", f"the NVIDIA driver answered error {code}", "see `dmesg` if it stays", code
    )


@dataclass(frozen=True, eq=False)  # no slots: typing cannot mark `Call[str]()` of a frozen class that has some
class DriverCall(Generic[ValueCo]):
    """A function of `pynvml`, or one of ours that raises its errors."""

    function: str | Callable[..., object]
    convert: Callable[..., ValueCo] = lambda value: value
    """Makes our value of its answer."""
    arguments: tuple[int, ...] = ()
    """Follow the handle."""
    sized: bool = False
    """Whether `pynvml` asks the driver twice: for the number of rows, then for the rows."""


class Nvml:
    """The gateway. `calls` counts the calls that reached the driver."""

    def __init__(self) -> None:
        self.calls = 0
        self._refused: defaultdict[str, dict[Hashable, DriverFault]] = defaultdict(dict)

    def ask(self, owner: str, call: DriverCall[Value], *arguments: object) -> Value:
        """Return the converted answer of `call` to `arguments` (a handle first) and its own arguments.

        Raises NvmlFault; without asking, if `owner` (a device's UUID) refused this call for good before.
        """
        if refusal := self._refused[owner].get(call):
            raise NvmlFault(refusal)
        try:
            function = getattr(pynvml, call.function) if isinstance(call.function, str) else call.function
            answer = function(*arguments, *call.arguments)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
            fault = self._fault(error)
            if fault.scope is FaultScope.CALL:
                self.refuse(owner, call, fault)
            raise NvmlFault(fault) from None
        except Exception as error:  # a count of rows, a text or a number that Python cannot make anything of
            self.calls += 1
            reason = f"{NONSENSE.reason} ({type(error).__name__})"
            raise NvmlFault(replace(NONSENSE, reason=reason)) from None
        self.calls += 2 if call.sized and answer else 1
        return call.convert(answer)

    def first(self, owner: str, calls: tuple[DriverCall[Value], ...], handle: object) -> Value:
        """Return the answer of the first of `calls` that the device does not refuse for good.

        Raises NvmlFault: the refusal that explains most, when all refuse.
        """
        refusals = []
        for call in calls:
            try:
                return self.ask(owner, call, handle)
            except NvmlFault as error:
                if error.fault.scope is not FaultScope.CALL:
                    raise
                refusals.append(error)
        raise next((refusal for refusal in refusals if refusal.fault.status != "missing"), refusals[-1])

    def refusals(self, owner: str) -> Mapping[Hashable, DriverFault]:
        """Return calls, and parts of their answers, that `owner` never gives, with the reason."""
        return self._refused[owner]

    def refuse(self, owner: str, call: Hashable, fault: DriverFault) -> None:
        """Remember that `owner` never answers a call, or gives a part of its answer."""
        self._refused[owner][call] = fault

    def forget(self) -> None:
        """Forget all refusals: another driver may answer."""
        self._refused.clear()

    def _fault(self, error: Exception) -> DriverFault:
        # pynvml raises an error of its own, no code in it, where an unversioned function is missing.
        code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if code not in (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND):
            self.calls += 1
        return fault_of(code)


_V2 = (pynvml.nvmlMemory_v2,)
Table = dict[str, tuple[DriverCall[object], ...]]
"""Fields of `DeviceReading` -> the calls that give them, preferred first."""
MEMORY: Table = {
    "memory_bytes": (
        DriverCall("nvmlDeviceGetMemoryInfo", lambda memory: memory.total, _V2),
        DriverCall("nvmlDeviceGetMemoryInfo", lambda memory: memory.total),
    ),
    # v1 counts what the driver reserves for itself as used.
    "memory_used_bytes": (
        DriverCall("nvmlDeviceGetMemoryInfo", lambda memory: memory.used, _V2),
        DriverCall("nvmlDeviceGetMemoryInfo", lambda memory: memory.used),
    ),
}
"""Calls that GPUs and MIG devices answer alike."""
NAME, UUID = DriverCall[str]("nvmlDeviceGetName"), DriverCall[str]("nvmlDeviceGetUUID")
_UNIFIED = {
    "memory_bytes": lambda meminfo: meminfo["MemTotal"],
    "memory_used_bytes": lambda meminfo: meminfo["MemTotal"] - meminfo["MemAvailable"],
}
_SHARED = "the driver reports none, as on GPUs that share the host's memory: this is the whole host's, of /proc/meminfo"


@dataclass(slots=True)
class DriverSource:
    """The gateway, the clock (monotonic seconds) and the /proc of one host."""

    nvml: Nvml
    clock: Clock
    proc: Path

    def values(self, owner: str, handle: object, table: Table) -> tuple[dict[str, object], dict[str, Unavailable]]:
        """Return values by metric, and gaps for those refused. Raises NvmlFault if the device or the library fails."""
        values: dict[str, object] = {}
        unavailable: dict[str, Unavailable] = {}
        for metric, calls in table.items():
            try:
                values[metric] = self.nvml.first(owner, calls, handle)
            except NvmlFault as error:
                unavailable[metric] = error.of_call().missing(metric)
                if error.fault is NOT_SUPPORTED and metric in _UNIFIED:
                    values[metric] = _UNIFIED[metric](_meminfo(self.proc))
                    unavailable[metric] = replace(unavailable[metric], reason=_SHARED)
        return values, unavailable

    def answer(self, owner: str, call: DriverCall[Value | None], *arguments: object) -> Value | DriverFault:
        """Return the answer to a call, or the `DriverFault` of this call alone. Raises NvmlFault for any other."""
        try:
            answer = self.nvml.ask(owner, call, *arguments)
        except NvmlFault as error:
            return error.of_call()
        return NONSENSE if answer is None else answer


def _meminfo(proc: Path) -> dict[str, int]:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


WAIT_MS = 1000
"""How long one wait lasts, and so how long the release of the driver may take."""
_CREATE, _FREE = DriverCall[object]("nvmlEventSetCreate"), DriverCall[object]("nvmlEventSetFree")
_REGISTER = DriverCall[object]("nvmlDeviceRegisterEvents")
NO_INSTANCE = 0xFFFFFFFF
"""NVML's number for no GPU instance and no compute instance."""


@dataclass(frozen=True, slots=True)
class Xid:
    """A critical error of a GPU, by its UUID. Instances are of MIG; None: the driver names none."""

    uuid: str
    number: int
    gpu_instance: int | None
    compute_instance: int | None


class XidWatch:
    """One event set over some GPUs. `calls` counts the driver calls of its thread."""

    def __init__(self) -> None:
        self.calls = 0
        self._pending: SimpleQueue[Xid] = SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._events: object = None
        self._uuids: dict[int, str] = {}
        """UUIDs of the GPUs in the set, by their handles' addresses."""

    def watch(self, nvml: Nvml, handles: Mapping[str, object]) -> dict[str, Unavailable]:
        """Wait for Xids of these GPUs, too (handles by UUID); return the gaps that this leaves, by UUID.

        To be repeated now and then: a GPU found later joins the set, and a set that broke, as one does when a GPU of
        it falls off the bus, is made again. Raises NvmlFault if the library fails.
        """
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        unavailable = {}
        try:
            if self._thread is None:
                self._events, self._uuids = nvml.ask("", _CREATE), {}
            for uuid, handle in handles.items():
                if self._uuids.get(_address(handle)) == uuid:
                    continue
                try:
                    nvml.ask(uuid, _REGISTER, handle, pynvml.nvmlEventTypeXidCriticalError, self._events)
                    self._uuids[_address(handle)] = uuid
                except NvmlFault as error:
                    if error.fault.scope is FaultScope.LIBRARY:
                        raise
                    unavailable[uuid] = error.fault.missing("xid")
        except NvmlFault as error:
            if error.fault.scope is FaultScope.LIBRARY:
                raise
            return dict.fromkeys(handles, error.fault.missing("xid"))
        if self._thread is None and self._uuids:
            self._stop = threading.Event()
            waiting = (self._events, self._uuids, self._stop)
            self._thread = threading.Thread(target=self._wait, args=waiting, name="xid", daemon=True)
            self._thread.start()
        elif self._thread is None:
            with suppress(NvmlFault):
                nvml.ask("", _FREE, self._events)
        return unavailable

    def pending(self) -> tuple[Xid, ...]:
        """Return the Xids that were reported since the last call."""
        xids = []
        with suppress(Empty):
            while True:
                xids.append(self._pending.get_nowait())
        return tuple(xids)

    def stop(self) -> None:
        """Wait no longer; return when the thread is out of the driver."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5 * WAIT_MS / 1000)
            self._thread = None

    def _wait(self, events: object, uuids: Mapping[int, str], stop: threading.Event) -> None:
        while not stop.is_set():
            self.calls += 1
            try:
                event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    continue
                break  # the driver is gone, or a GPU of the set is lost: the probe begins a new wait
            uuid = uuids.get(_address(event.device))
            if uuid is not None:
                instances = (event.gpuInstanceId, event.computeInstanceId)
                gpu, compute = (None if instance == NO_INSTANCE else instance for instance in instances)
                self._pending.put(Xid(uuid, event.eventData, gpu, compute))
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
