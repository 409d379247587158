"""AMD GPUs through `amdsmi`. Not yet run on AMD hardware: it is tested over a stand-in library at the C ABI.

Importing `amdsmi` 7.0 without ROCm prints to stdout and raises KeyError, so its library is looked for first, in the
places the package itself looks, and what it prints is discarded. The package must fit the library, so the one that
the host's ROCm ships beside it is preferred over the one installed with pertoken.

A card in partitions is one device with a part for each of them: power and energy are reported for the whole card. Of
the two dies of an MI250 the second shows 0 W: there they are None with that reason, so that a card is never counted
twice.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

from pertoken.agent.readings import DeviceProcess, DeviceReading, DriverEvent, Unavailable
from pertoken.agent.workers import HANGS, PATIENCE_S, Backoff, Clock, Patience
from pertoken.units import SHARE

Value = TypeVar("Value")
ValueCo = TypeVar("ValueCo", covariant=True)
_START, _STOP = "start", "stop"
"""Items of calls that belong to no device."""
_VENDOR = "amd"

_SONAME = "libamd_smi.so"
_ROCM_WHEEL = "_rocm_sdk_core"
"""Package of TheRock's wheel `rocm-sdk-core`, laid out as a folder of ROCm."""
_NO_ROCM = Unavailable(
    "amd",
    "missing",
    f"no ROCm library ({_SONAME}) on this host",
    "with an AMD GPU: install ROCm, or set ROCM_PATH to where it is",
)
_NO_VALUE = (None, "N/A", 0xFFFF, 2**32 - 1, 2**64 - 1)
"""How releases of amdsmi show a value they do not have."""
_STATUS = {
    2: ("unsupported", "this GPU or ROCm release does not offer it", None),
    3: ("unsupported", "this ROCm release does not offer it", None),
    10: (
        "denied",
        "the AMD driver gives it only to a privileged user",
        "add the agent to the groups render and video",
    ),
}
"""amdsmi error codes that stay -> status, reason, remedy."""


def _optional(value: Value) -> Value | None:
    return None if value in _NO_VALUE else value


def _mib(number: int) -> int | None:
    return None if _optional(number) is None else int(number) * 2**20


def _power_mw(power: dict[str, float]) -> int | None:
    # MI300 has the current one, MI200 and Radeon the average; the second die of an MI250 shows 0 in all.
    words = ("current_socket_power", "average_socket_power", "socket_power")
    watts = [power[word] for word in words if _optional(power.get(word)) is not None]
    return round(max(watts) * 1000) if watts else None


def _power_limit_mw(cap: dict[str, int]) -> int | None:
    # In watts or in microwatts, by release; no card is limited to a single watt or allowed ten kilowatts.
    limit = _optional(cap["power_cap"])
    if not limit:
        return None
    return limit // 1000 if limit >= 10_000 else limit * 1000


def _energy_mj(count: dict[str, float]) -> int | None:
    accumulator, microjoules = _optional(count["energy_accumulator"]), count["counter_resolution"]
    return round(accumulator * microjoules / 1000) if accumulator and microjoules > 0 else None


def _util_1e4(activity: dict[str, int]) -> int | None:
    percent = _optional(activity["gfx_activity"])
    return None if percent is None else percent * 100


@dataclass(frozen=True)  # no slots: typing cannot mark `_Call[str]()` of a frozen class that has some
class _Call(Generic[ValueCo]):
    function: str
    convert: Callable[..., ValueCo] = lambda value: value


_Table = Mapping[str, _Call[object]]
_INIT, _SHUT_DOWN = _Call[object]("amdsmi_init"), _Call[object]("amdsmi_shut_down")
_HANDLES, _UUID = _Call[list[object]]("amdsmi_get_processor_handles"), _Call[str]("amdsmi_get_gpu_device_uuid")
IDENTITY: _Table = {
    "name": _Call("amdsmi_get_gpu_asic_info", lambda asic: _optional(asic["market_name"])),
    "pci_bus_id": _Call("amdsmi_get_gpu_device_bdf", _optional),
    "driver_version": _Call("amdsmi_get_gpu_driver_info", lambda driver: _optional(driver["driver_version"])),
    "memory_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: _mib(vram["vram_total"])),
    "power_limit_mw": _Call("amdsmi_get_power_cap_info", _power_limit_mw),
}
TICK: _Table = {
    "power_mw": _Call("amdsmi_get_power_info", _power_mw),
    "energy_mj": _Call("amdsmi_get_energy_count", _energy_mj),
    "util_1e4": _Call("amdsmi_get_gpu_activity", _util_1e4),
    "memory_used_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: _mib(vram["vram_used"])),
}
_OF_THE_CARD = ("power_mw", "energy_mj", "power_limit_mw")
_OF_PARTITIONS = ("util_1e4", "memory_bytes", "memory_used_bytes")
_BY_CARD = Unavailable("", "unsupported", "it is reported for the whole card, not for its partitions")
_BY_PARTITION = Unavailable("", "unsupported", "it is reported for the card's partitions")
_ON_FIRST_DIE = Unavailable(
    "", "unsupported", "it is reported for the whole card, and counted on its other die: this one shows 0 W"
)
_PROCESSES = _Call[list[tuple[int, int | None]]](
    "amdsmi_get_gpu_process_list",
    lambda rows: [(int(row["pid"]), _optional(row["memory_usage"]["vram_mem"])) for row in rows],
)
_NO_PROCESS_MEMORY = Unavailable(
    "processes",
    "failing",
    "the AMD driver lists every process under every GPU, and does not report whose memory is on this one",
    "update the AMD driver",
)


@contextmanager
def silenced() -> Iterator[None]:
    """Discard the output of Python and C code to stdout meanwhile."""
    libc = ctypes.PyDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    try:
        with open(os.devnull, "w") as sink, redirect_stdout(sink):  # noqa: PTH123
            yield
    finally:
        libc.fflush(None)  # C code keeps its lines until then: they must not come out later.
        os.dup2(kept, 1)
        os.close(kept)


def load() -> ModuleType | Unavailable:
    """Return the `amdsmi` module, or why there is none. Prints nothing, raises nothing."""
    packages = _packages()
    if not packages:
        return Unavailable("amd", "missing", "the Python package amdsmi is not installed", "pip install amdsmi")
    with silenced():
        if not any(_loads(path) for package in packages for path in _places(package)):
            return _NO_ROCM
        for package in packages:
            try:
                return _imported(package)
            except BaseException as error:  # A library older than the package lacks symbols: AttributeError, others.
                missing = Unavailable(
                    "amd",
                    "failing",
                    f"the Python package amdsmi in {package} does not fit this host's ROCm: {error!r}",
                    "install the amdsmi of your ROCm release: pip install /opt/rocm/share/amd_smi",
                )
    return missing


def _packages() -> list[Path]:
    """Return folders of the `amdsmi` packages: the one of this host's ROCm first, then the installed one.

    ROCm is a folder of the host, or the wheel `rocm-sdk-core` of TheRock in this environment.
    """
    roots = [Path(root) for root in (os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    wheel = importlib.util.find_spec(_ROCM_WHEEL)
    roots += [Path(folder) for folder in (wheel.submodule_search_locations or ())] if wheel else []
    shipped = [root / "share/amd_smi/amdsmi" for root in roots]
    spec = importlib.util.find_spec("amdsmi")
    installed = [Path(spec.origin).parent] if spec and spec.origin else []
    return [path for path in shipped if (path / "__init__.py").is_file()][:1] + installed


def _imported(package: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("amdsmi", package / "__init__.py")
    assert spec is not None and spec.loader is not None
    sys.modules["amdsmi"] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
            del sys.modules[name]
        raise
    return module


def _places(package: Path) -> list[str]:
    named = os.environ.get("ROCM_HOME", os.environ.get("ROCM_PATH"))
    first = [str(Path(named) / "lib" / _SONAME)] if named else []
    installed = Path(os.environ.get("ROCM_PATH", "/opt/rocm")) / "lib" / _SONAME
    beside = package.parents[2] / "lib"  # of the ROCm that ships the package; a wheel has a versioned name alone
    versioned = sorted(map(str, beside.glob(f"{_SONAME}*"))) if package.parent.name == "amd_smi" else []
    return [*first, *versioned, _SONAME, str(package / _SONAME), str(installed)]


def _loads(path: str) -> bool:
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Processor:
    """Processor with a handle of amdsmi: a card, or a partition of one."""

    handle: object
    identity: DeviceReading


class AmdLibrary:
    """ROCm's library."""

    def __init__(self) -> None:
        self.calls = 0
        """Calls to it so far."""
        self.failure: type[Exception] = Exception
        """The error of its calls; known once it is loaded."""
        self._smi: ModuleType | None = None
        self._handles: list[object] = []
        self._refused: dict[tuple[str, _Call[object]], Unavailable] = {}

    def load(self) -> Unavailable | None:
        """Import the package that fits this host's ROCm, or return the reason why there is none."""
        if self._smi is None:
            smi = load()
            if isinstance(smi, Unavailable):
                return smi
            self._smi, self.failure = smi, smi.AmdSmiException
        return None

    def start(self) -> int:
        """Initialise, and return the number of processors. Raises AmdSmiException."""
        self._refused.clear()
        self.calls += 2
        self._value(_INIT)
        self._handles = self._value(_HANDLES)
        return len(self._handles)

    def find(self, slot: int) -> _Processor:
        """Return the processor in a slot. Raises AmdSmiException if it does not report its UUID."""
        handle = self._handles[slot]
        self.calls += 1
        uuid = self._value(_UUID, handle)
        values, unavailable = self.values(uuid, handle, IDENTITY)
        name = str(values.pop("name") or "AMD GPU")
        return _Processor(handle, DeviceReading(uuid, "gpu", "AMD", name, slot, unavailable=unavailable, **values))

    def cards(self, processors: Sequence[_Processor]) -> Sequence[_Card]:
        """Return processors by card: partitions of one are functions of one PCI device."""
        cards: dict[str, list[_Processor]] = {}
        for processor in processors:
            device = (processor.identity.pci_bus_id or "").rpartition(".")[0]
            cards.setdefault(device or processor.identity.uuid, []).append(processor)
        return [_Card.of(self, parts) for parts in cards.values()]

    def stop(self) -> None:
        """Release the driver. Raises AmdSmiException."""
        self._value(_SHUT_DOWN)

    def _value(self, call: _Call[Value], *arguments: object) -> Value:
        return call.convert(getattr(self._smi, call.function)(*arguments))

    def values(self, uuid: str, handle: object, table: _Table) -> tuple[dict[str, object], tuple[Unavailable, ...]]:
        """Return values by metric, and gaps for those that are None."""
        values: dict[str, object] = {}
        unavailable: list[Unavailable] = []
        for metric, call in table.items():
            values[metric], missing = self._ask(uuid, handle, call)
            if missing is not None:
                unavailable.append(replace(missing, metric=metric))
        return values, tuple(unavailable)

    def processes(self, uuid: str, handle: object) -> tuple[tuple[DeviceProcess, ...] | None, tuple[Unavailable, ...]]:
        """Return its processes, or the reason why they are unknown."""
        rows, missing = self._ask(uuid, handle, _PROCESSES)
        if missing is None and not rows and os.geteuid() != 0:
            missing = Unavailable(
                "", "denied", "the AMD driver shows processes only to a privileged user", _STATUS[10][2]
            )
        if rows is None or missing is not None:
            return None, (replace(missing, metric="processes"),) if missing else ()
        # Every process is listed under every GPU; those with memory there hold it. Asking made us one of them.
        others = [(pid, memory_bytes) for pid, memory_bytes in rows if pid != os.getpid()]
        if any(memory_bytes is None for _, memory_bytes in others):
            return None, (_NO_PROCESS_MEMORY,)
        return tuple(DeviceProcess(pid, memory_bytes) for pid, memory_bytes in others if memory_bytes), ()

    def _ask(self, uuid: str, handle: object, call: _Call[Value]) -> tuple[Value | None, Unavailable | None]:
        if missing := self._refused.get((uuid, call)):
            return None, missing
        self.calls += 1
        try:
            value = self._value(call, handle)
        except self.failure as error:
            code = getattr(error, "err_code", None)
            if code in _STATUS:
                missing = self._refused[uuid, call] = Unavailable("", *_STATUS[code])
                return None, missing
            return None, Unavailable("", "failing", f"the AMD driver answered {error!r}", "see `dmesg` if it stays")
        except Exception as error:  # an answer of another shape than this release's, or that is no text or number
            reason = f"the AMD driver's answer makes no sense ({type(error).__name__})"
            return None, Unavailable("", "failing", reason, "update the AMD driver")
        return value, Unavailable("", "unsupported", "the AMD driver shows no value for it") if value is None else None


@dataclass(frozen=True, slots=True)
class _Card:
    """One card: the device that is paid for, and its partitions if it has several."""

    key: tuple[str, ...]
    """UUIDs and bus id, which identify a card."""
    library: AmdLibrary = field(compare=False)
    identity: DeviceReading = field(compare=False)
    parts: tuple[_Processor, ...] = field(compare=False)

    @classmethod
    def of(cls, library: AmdLibrary, processors: Sequence[_Processor]) -> _Card:
        first = processors[0].identity
        if len(processors) == 1:
            return cls((first.uuid, first.pci_bus_id or ""), library, first, tuple(processors))
        parts = tuple(
            replace(processor, identity=_partition(first, processor.identity, n, len(processors)))
            for n, processor in enumerate(processors)
        )
        kept = tuple(missing for missing in first.unavailable if missing.metric not in _OF_PARTITIONS)
        unavailable = (*kept, *(replace(_BY_PARTITION, metric=metric) for metric in _OF_PARTITIONS))
        return cls(
            (first.uuid, first.pci_bus_id or "", *(part.identity.uuid for part in parts)),
            library,
            first._replace(memory_bytes=None, unavailable=unavailable),
            parts,
        )

    def unread(self, why: str) -> tuple[DeviceReading, ...]:
        partitions = self.parts if len(self.parts) > 1 else ()
        identities = (self.identity, *(part.identity for part in partitions))
        return tuple(identity._replace(lost=why) for identity in identities)

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        if len(self.parts) == 1:
            (part,) = self.parts
            return (self._read(part.handle, self.identity, TICK, processes),)
        of_card = {metric: TICK[metric] for metric in TICK if metric in _OF_THE_CARD}
        of_part = {metric: TICK[metric] for metric in TICK if metric not in _OF_THE_CARD}
        card = self._read(self.parts[0].handle, self.identity, of_card, False)
        card = card._replace(processes=()) if processes and not card.lost else card  # they run on its partitions
        return (card, *(self._read(part.handle, part.identity, of_part, processes) for part in self.parts))

    def _read(self, handle: object, device: DeviceReading, table: _Table, processes: bool) -> DeviceReading:
        values, unavailable = self.library.values(device.uuid, handle, table)
        if all(value is None for value in values.values()):
            return device._replace(lost=f"the GPU answers nothing: {unavailable[0].reason}")
        if values.get("power_mw") == 0:
            values |= {metric: None for metric in _OF_THE_CARD}
            unavailable = tuple(missing for missing in unavailable if missing.metric not in _OF_THE_CARD)
            unavailable += tuple(replace(_ON_FIRST_DIE, metric=metric) for metric in _OF_THE_CARD)
        if processes:
            values["processes"], hidden = self.library.processes(device.uuid, handle)
            unavailable += hidden
        return device._replace(**values, unavailable=device.unavailable + unavailable)


def _partition(card: DeviceReading, processor: DeviceReading, n: int, count: int) -> DeviceReading:
    unavailable = tuple(missing for missing in processor.unavailable if missing.metric not in _OF_THE_CARD)
    return processor._replace(
        uuid=f"{card.uuid}/{n}",
        kind="partition",
        name=f"{processor.name} partition ({n})",
        slot=card.slot,
        parent_uuid=card.uuid,
        part_1e6=SHARE // count,
        power_limit_mw=None,
        unavailable=(*unavailable, *(replace(_BY_CARD, metric=metric) for metric in _OF_THE_CARD)),
    )


class AmdProbe:
    """Reads all AMD GPUs of this host. `clock` is monotonic seconds; a call may take `patience_s`, or else it hangs."""

    outdated = False

    def __init__(self, clock: Clock = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        self._library, self._clock = AmdLibrary(), clock
        self._patience = Patience(_VENDOR, patience_s)
        self._backoff = Backoff(clock)
        self._up = False
        self._opened: dict[int, _Processor] = {}
        self._unseen: dict[int, tuple[Unavailable, Backoff]] = {}
        """Slots with a card that does not report its identity."""
        self._cards: Sequence[_Card] = ()
        self._lost: str | None = None
        """Why no card is read, where there were some."""
        self._down: tuple[Unavailable, ...] = ()
        self._gave_up = False
        """Whether no card has answered since that was reported."""
        self._events: list[DriverEvent] = []

    @property
    def calls(self) -> int:
        """Calls to the library so far."""
        return self._library.calls

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Unavailable, ...]]:
        """Return every card found, and the gaps of the whole host. No error of the library is raised."""
        if not self._up:
            if self._backoff.due and not self._patience.hung:
                self._start()
            if not self._up:
                hangs = (_hangs(_VENDOR),) if self._patience.hung else ()
                unread = (reading for card in self._cards for reading in card.unread(self._lost or HANGS))
                return tuple(unread), (*self._down, *hangs)
        with silenced():
            due = [slot for slot, (_, backoff) in self._unseen.items() if backoff.due]
            if due:
                self._find(due)
            answers = self._patience.map(lambda card: card.read(processes), self._cards)
        devices = tuple(
            reading
            for card, readings in zip(self._cards, answers, strict=True)
            for reading in (card.unread(HANGS) if readings is None else readings)
        )
        if devices and all(reading.lost for reading in devices) and not self._patience.hung:
            self._give_up(devices[0].lost or HANGS)
        elif devices:
            self._gave_up = False
        return devices, tuple(missing for missing, _ in self._unseen.values())

    def driver_events(self) -> tuple[DriverEvent, ...]:
        """Return the driver's events since the last call."""
        events, self._events = self._events, []
        return tuple(events)

    def close(self) -> None:
        """Release the driver. A call that hangs is left to return."""
        self._stop()
        self._patience.close()

    def _start(self) -> None:
        missing = self._library.load()
        if missing is None:
            try:
                with silenced():
                    (listed,) = self._patience.map(lambda _: self._library.start(), [_START])
                    if listed is None:
                        return
                    self._up, self._down, self._lost = True, (), None
                    self._opened, self._unseen = {}, {}
                    self._find(range(listed))
            except self._library.failure as error:
                missing = Unavailable(_VENDOR, "failing", f"its driver does not start: {error}", "see `dmesg`")
        if missing is not None:
            self._down = (missing,)
            self._backoff.failed()

    def _find(self, slots: Sequence[int]) -> None:
        for slot, result in zip(slots, self._patience.map(self._open_slot, slots), strict=True):
            result = _hangs(f"gpu {slot}") if result is None else result
            if isinstance(result, Unavailable):
                _, backoff = self._unseen.get(slot) or (None, Backoff(self._clock))
                backoff.failed()
                if slot not in self._unseen:
                    self._events.append(DriverEvent(None, "device_lost", f"{result.metric}: {result.reason}"))
                self._unseen[slot] = result, backoff
            else:
                self._unseen.pop(slot, None)
                self._opened[slot] = result
        self._cards = self._library.cards([self._opened[slot] for slot in sorted(self._opened)])

    def _open_slot(self, slot: int) -> _Processor | Unavailable:
        try:
            return self._library.find(slot)
        except self._library.failure as error:
            return Unavailable(f"gpu {slot}", "failing", f"its driver answered {error}", "see `dmesg`")

    def _give_up(self, why: str) -> None:
        """Start again where no card answers: the driver may have been reloaded, which only a new start can show."""
        self._stop()
        self._lost = why
        self._backoff = Backoff(self._clock)
        self._backoff.failed()
        if not self._gave_up:
            text = f"no {_VENDOR} device answers ({why}): the driver is started again"
            self._events.append(DriverEvent(None, "driver", text))
        self._gave_up = True

    def _stop(self) -> None:
        if self._up and not self._patience.hung:
            with silenced():
                self._patience.map(self._stopped, [_STOP])
        self._up = False

    def _stopped(self, _: str) -> bool:
        try:
            self._library.stop()
        except self._library.failure:
            return False
        return True


def _hangs(metric: str) -> Unavailable:
    reason = f"a call of the {_VENDOR} driver hangs: nothing is asked of it until it returns"
    return Unavailable(metric, "failing", reason, "dmesg")
