"""AMD GPUs through `amdsmi`. Not yet run on AMD hardware: it is tested over a stand-in library at the C ABI.

Importing `amdsmi` 7.0 without ROCm prints to stdout and raises KeyError, so its library is looked for first, in the
places the package itself looks, and what it prints is discarded. The package must fit the library, so the one that
the host's ROCm ships beside it is preferred over the one installed with pertoken.

A card in partitions is one device with a part for each of them: power and energy are reported for the whole card. Of
the two dies of an MI250 the second shows 0 W: there they are None with that reason, so that a card is never counted
twice.
"""

import ctypes
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pertoken.agent.backoff import Clock
from pertoken.agent.probes.cards import CardProbe
from pertoken.agent.probes.patience import PATIENCE_S
from pertoken.agent.readings import DeviceProcess, DeviceReading, Unavailable
from pertoken.units import SHARE

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


def _known(value: Any) -> Any:
    return None if value in _NO_VALUE else value


def _mib(number: Any) -> int | None:
    return None if _known(number) is None else int(number) * 2**20


def _power_mw(power: dict[str, Any]) -> int | None:
    # MI300 has the current one, MI200 and Radeon the average; the second die of an MI250 shows 0 in all.
    words = ("current_socket_power", "average_socket_power", "socket_power")
    watts = [power[word] for word in words if _known(power.get(word)) is not None]
    return round(max(watts) * 1000) if watts else None


def _power_limit_mw(cap: dict[str, Any]) -> int | None:
    # In watts or in microwatts, by release; no card is limited to a single watt or allowed ten kilowatts.
    limit: int | None = _known(cap["power_cap"])
    if not limit:
        return None
    return limit // 1000 if limit >= 10_000 else limit * 1000


def _energy_mj(count: dict[str, Any]) -> int | None:
    accumulator, microjoules = _known(count["energy_accumulator"]), count["counter_resolution"]
    return round(accumulator * microjoules / 1000) if accumulator and microjoules > 0 else None


def _util_1e4(activity: dict[str, Any]) -> int | None:
    percent = _known(activity["gfx_activity"])
    return None if percent is None else percent * 100


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    convert: Callable[[Any], Any]


IDENTITY = {
    "name": _Call("amdsmi_get_gpu_asic_info", lambda asic: _known(asic["market_name"])),
    "pci_bus_id": _Call("amdsmi_get_gpu_device_bdf", _known),
    "driver_version": _Call("amdsmi_get_gpu_driver_info", lambda driver: _known(driver["driver_version"])),
    "memory_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: _mib(vram["vram_total"])),
    "power_limit_mw": _Call("amdsmi_get_power_cap_info", _power_limit_mw),
}
TICK = {
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
_PROCESSES = _Call(
    "amdsmi_get_gpu_process_list",
    lambda rows: [(int(row["pid"]), _known(row["memory_usage"]["vram_mem"])) for row in rows],
)
_NO_PROCESS_MEMORY = Unavailable(
    "processes",
    "failing",
    "the AMD driver lists every process under every GPU, and does not report whose memory is on this one",
    "update the AMD driver",
)


@contextmanager
def silenced() -> Iterator[None]:
    """What Python and C code print to stdout meanwhile is discarded."""
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


def load() -> Any | Unavailable:
    """Return the `amdsmi` module, or why there is none. Prints nothing, raises nothing."""
    packages = _packages()
    if not packages:
        return Unavailable("amd", "missing", "the Python package amdsmi is not installed", "pip install amdsmi")
    with silenced():
        if not any(_loads(place) for package in packages for place in _places(package)):
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
    """Return folders of the `amdsmi` packages there are: the one of this host's ROCm first, then the installed one.

    ROCm is a folder of the host, or the wheel `rocm-sdk-core` of TheRock in this environment.
    """
    roots = [Path(root) for root in (os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    wheel = importlib.util.find_spec(_ROCM_WHEEL)
    roots += [Path(folder) for folder in (wheel.submodule_search_locations or ())] if wheel else []
    shipped = [root / "share/amd_smi/amdsmi" for root in roots]
    spec = importlib.util.find_spec("amdsmi")
    installed = [Path(spec.origin).parent] if spec and spec.origin else []
    return [path for path in shipped if (path / "__init__.py").is_file()][:1] + installed


def _imported(package: Path) -> Any:
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


def _loads(place: str) -> bool:
    try:
        ctypes.CDLL(place)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Processor:
    """Processor with a handle of amdsmi: a card, or a partition of one."""

    handle: Any
    known: DeviceReading


class AmdLibrary:
    """ROCm's library. `calls` counts what was asked of it."""

    vendor = "amd"

    def __init__(self) -> None:
        self.calls = 0
        self.failure: type[Exception] = Exception
        self._smi: Any = None
        self._handles: list[Any] = []
        self._refused: dict[tuple[str, _Call], Unavailable] = {}

    def absent(self) -> bool:
        """Never: that no ROCm is there is worth a gap."""
        return False

    def load(self) -> Unavailable | None:
        """Import the package that fits this host's ROCm."""
        if self._smi is None:
            smi = load()
            if isinstance(smi, Unavailable):
                return smi
            self._smi, self.failure = smi, smi.AmdSmiException
        return None

    def start(self) -> int:
        """Initialise, and ask for all handles. Raises AmdSmiException."""
        self._refused.clear()
        self.calls += 2
        self._smi.amdsmi_init()
        self._handles = self._smi.amdsmi_get_processor_handles()
        return len(self._handles)

    def find(self, slot: int) -> _Processor:
        """Return the processor in a slot. Raises AmdSmiException if it does not report its UUID."""
        handle = self._handles[slot]
        self.calls += 1
        uuid = self._smi.amdsmi_get_gpu_device_uuid(handle)
        values, unavailable = self.values(uuid, handle, IDENTITY)
        values["name"] = values["name"] or "AMD GPU"
        return _Processor(
            handle, DeviceReading(uuid=uuid, kind="gpu", vendor="AMD", slot=slot, unavailable=unavailable, **values)
        )

    def cards(self, processors: Sequence[_Processor]) -> Sequence["_Card"]:
        """Return processors by card: partitions of one are functions of one PCI device."""
        cards: dict[str, list[_Processor]] = {}
        for processor in processors:
            device = (processor.known.pci_bus_id or "").rpartition(".")[0]
            cards.setdefault(device or processor.known.uuid, []).append(processor)
        return [_Card.of(self, parts) for parts in cards.values()]

    def stop(self) -> None:
        """Release the driver. Raises AmdSmiException."""
        self._smi.amdsmi_shut_down()

    def quiet(self) -> AbstractContextManager[None]:
        """Return the library prints."""
        return silenced()

    def values(self, uuid: str, handle: Any, table: dict[str, _Call]) -> tuple[dict[str, Any], tuple[Unavailable, ...]]:
        """Return values by metric, and gaps for those that are None."""
        values, unavailable = {}, []
        for metric, call in table.items():
            values[metric], missing = self._ask(uuid, handle, call)
            if missing is not None:
                unavailable.append(replace(missing, metric=metric))
        return values, tuple(unavailable)

    def processes(self, uuid: str, handle: Any) -> tuple[tuple[DeviceProcess, ...] | None, tuple[Unavailable, ...]]:
        """Return its processes, or the reason why they are unknown."""
        rows, missing = self._ask(uuid, handle, _PROCESSES)
        if missing is None and not rows and os.geteuid() != 0:
            missing = Unavailable(
                "", "denied", "the AMD driver shows processes only to a privileged user", _STATUS[10][2]
            )
        if missing is not None:
            return None, (replace(missing, metric="processes"),)
        # Every process is listed under every GPU; those with memory there hold it. Asking made us one of them.
        others = [(pid, memory_bytes) for pid, memory_bytes in rows if pid != os.getpid()]
        if any(memory_bytes is None for _, memory_bytes in others):
            return None, (_NO_PROCESS_MEMORY,)
        return tuple(DeviceProcess(pid, memory_bytes) for pid, memory_bytes in others if memory_bytes), ()

    def _ask(self, uuid: str, handle: Any, call: _Call) -> tuple[Any, Unavailable | None]:
        if missing := self._refused.get((uuid, call)):
            return None, missing
        self.calls += 1
        try:
            value = call.convert(getattr(self._smi, call.function)(handle))
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
    """UUIDs and bus id: by these a card is the same as before."""
    library: AmdLibrary = field(compare=False)
    known: DeviceReading = field(compare=False)
    parts: tuple[_Processor, ...] = field(compare=False)

    @classmethod
    def of(cls, library: AmdLibrary, processors: Sequence[_Processor]) -> "_Card":
        first = processors[0].known
        if len(processors) == 1:
            return cls((first.uuid, first.pci_bus_id or ""), library, first, tuple(processors))
        parts = tuple(
            replace(processor, known=_partition(first, processor.known, n, len(processors)))
            for n, processor in enumerate(processors)
        )
        kept = tuple(missing for missing in first.unavailable if missing.metric not in _OF_PARTITIONS)
        unavailable = (*kept, *(replace(_BY_PARTITION, metric=metric) for metric in _OF_PARTITIONS))
        return cls(
            (first.uuid, first.pci_bus_id or "", *(part.known.uuid for part in parts)),
            library,
            first._replace(memory_bytes=None, unavailable=unavailable),
            parts,
        )

    def unread(self, why: str) -> tuple[DeviceReading, ...]:
        partitions = self.parts if len(self.parts) > 1 else ()
        return tuple(known._replace(lost=why) for known in (self.known, *(part.known for part in partitions)))

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        if len(self.parts) == 1:
            (part,) = self.parts
            return (self._read(part.handle, self.known, TICK, processes),)
        whole = {metric: TICK[metric] for metric in TICK if metric in _OF_THE_CARD}
        table = {metric: TICK[metric] for metric in TICK if metric not in _OF_THE_CARD}
        card = self._read(self.parts[0].handle, self.known, whole, False)
        card = card._replace(processes=()) if processes and not card.lost else card  # they run on its partitions
        return (card, *(self._read(part.handle, part.known, table, processes) for part in self.parts))

    def _read(self, handle: Any, known: DeviceReading, table: dict[str, _Call], processes: bool) -> DeviceReading:
        values, unavailable = self.library.values(known.uuid, handle, table)
        if all(value is None for value in values.values()):
            return known._replace(lost=f"the GPU answers nothing: {unavailable[0].reason}")
        if values.get("power_mw") == 0:
            values |= {metric: None for metric in _OF_THE_CARD}
            unavailable = tuple(missing for missing in unavailable if missing.metric not in _OF_THE_CARD)
            unavailable += tuple(replace(_ON_FIRST_DIE, metric=metric) for metric in _OF_THE_CARD)
        if processes:
            values["processes"], hidden = self.library.processes(known.uuid, handle)
            unavailable += hidden
        return known._replace(**values, unavailable=known.unavailable + unavailable)


def _partition(card: DeviceReading, known: DeviceReading, n: int, of: int) -> DeviceReading:
    unavailable = tuple(missing for missing in known.unavailable if missing.metric not in _OF_THE_CARD)
    return known._replace(
        uuid=f"{card.uuid}/{n}",
        kind="partition",
        name=f"{known.name} partition ({n})",
        slot=card.slot,
        parent_uuid=card.uuid,
        part_1e6=SHARE // of,
        power_limit_mw=None,
        unavailable=(*unavailable, *(replace(_BY_CARD, metric=metric) for metric in _OF_THE_CARD)),
    )


class AmdProbe(CardProbe):
    """Reads all AMD GPUs of this host. `clock` is monotonic seconds; a call may take `patience_s`."""

    def __init__(self, clock: Clock = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        super().__init__(AmdLibrary(), clock, patience_s)
