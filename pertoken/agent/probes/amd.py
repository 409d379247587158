"""AMD GPUs through `amdsmi`. Not yet run on AMD hardware: it is tested over a stand-in library at the C ABI.

Importing `amdsmi` 7.0 without ROCm prints to stdout and raises KeyError, so its library is looked for first, in the
places the package itself looks, and what it prints is discarded. The package must fit the library, so the one that
the host's ROCm ships beside it is preferred over the one installed with pertoken.

Power and energy are of the whole card: they are kept on its first partition only, and on the first die of an MI250,
whose second die shows 0 W. Elsewhere they are None with that reason, so that a card is never counted twice.
"""

import ctypes
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pertoken.agent.probes.backoff import Backoff, Clock
from pertoken.agent.readings import DeviceProcess, DeviceReading, Gap

_SONAME = "libamd_smi.so"
_NO_ROCM = Gap(
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
    "memory_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: vram["vram_total"] * 2**20),
    "power_limit_mw": _Call("amdsmi_get_power_cap_info", _power_limit_mw),
}
TICK = {
    "power_mw": _Call("amdsmi_get_power_info", _power_mw),
    "energy_mj": _Call("amdsmi_get_energy_count", _energy_mj),
    "util_1e4": _Call("amdsmi_get_gpu_activity", _util_1e4),
    "memory_used_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: vram["vram_used"] * 2**20),
}
_OF_THE_CARD = ("power_mw", "energy_mj", "power_limit_mw")
_ON_FIRST_PARTITION = Gap("", "unsupported", "it is told of the whole card, and counted on the card's first partition")
_ON_FIRST_DIE = Gap("", "unsupported", "it is told of the whole card, and counted on its other die: this one shows 0 W")
_PROCESSES = _Call("amdsmi_get_gpu_process_list", lambda rows: rows)


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


def load() -> Any | Gap:
    """The `amdsmi` module, or why there is none. Prints nothing, raises nothing."""
    packages = _packages()
    if not packages:
        return Gap("amd", "missing", "the Python package amdsmi is not installed", "pip install amdsmi")
    with silenced():
        if not any(_loads(place) for package in packages for place in _places(package)):
            return _NO_ROCM
        for package in packages:
            try:
                return _imported(package)
            except BaseException as error:  # A library older than the package lacks symbols: AttributeError, others.
                gap = Gap(
                    "amd",
                    "failing",
                    f"the Python package amdsmi in {package} does not fit this host's ROCm: {error!r}",
                    "install the amdsmi of your ROCm release: pip install /opt/rocm/share/amd_smi",
                )
    return gap


def _packages() -> list[Path]:
    """Folders of the `amdsmi` packages there are: the one of this host's ROCm first, then the installed one."""
    roots = (os.environ.get("ROCM_HOME"), os.environ.get("ROCM_PATH"), "/opt/rocm")
    shipped = [Path(root) / "share/amd_smi/amdsmi" for root in roots if root]
    spec = importlib.util.find_spec("amdsmi")
    installed = [Path(spec.origin).parent] if spec and spec.origin else []
    return [each for each in shipped if (each / "__init__.py").is_file()][:1] + installed


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
    return [*first, _SONAME, str(package / _SONAME), str(installed)]


def _loads(place: str) -> bool:
    try:
        ctypes.CDLL(place)
    except OSError:
        return False
    return True


class AmdProbe:
    """Reads all AMD GPUs of this host. `clock` is monotonic seconds. `calls` counts the calls to the library."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.calls = 0
        self.outdated = False
        self._smi: Any = None
        self._gpus: list[tuple[Any, DeviceReading]] = []
        self._secondary: set[str] = set()
        self._refused: dict[tuple[str, _Call], Gap] = {}
        self._down: tuple[Gap, ...] = ()
        self._backoff = Backoff(clock)

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Gap, ...]]:
        """Every GPU found at the start, and what is missing for the whole host."""
        if self._smi is None:
            if not self._backoff.due:
                return (), self._down
            self._start()
            if self._smi is None:
                self._backoff.failed()
                return (), self._down
        with silenced():
            return tuple(self._read(handle, known, processes) for handle, known in self._gpus), ()

    def close(self) -> None:
        """Let go of the driver."""
        if self._smi is not None:
            with silenced():
                self._smi.amdsmi_shut_down()
            self._smi = None

    def _start(self) -> None:
        smi = load()
        if isinstance(smi, Gap):
            self._down = (smi,)
            return
        try:
            with silenced():
                smi.amdsmi_init()
                handles = smi.amdsmi_get_processor_handles()
                gpus = [(handle, self._identity(smi, handle, slot)) for slot, handle in enumerate(handles)]
                self._gpus = self._partitioned(gpus)
        except smi.AmdSmiException as error:
            self._down = (Gap("amd", "failing", f"ROCm found no GPU it can read: {error!r}", "see `dmesg`"),)
            return
        self._smi = smi

    def _identity(self, smi: Any, handle: Any, slot: int) -> DeviceReading:
        uuid = smi.amdsmi_get_gpu_device_uuid(handle)
        values, gaps = self._values(smi, uuid, handle, IDENTITY)
        values["name"] = values["name"] or "AMD GPU"
        return DeviceReading(uuid=uuid, kind="gpu", vendor="AMD", slot=slot, gaps=gaps, **values)

    def _partitioned(self, gpus: list[tuple[Any, DeviceReading]]) -> list[tuple[Any, DeviceReading]]:
        """The same with a UUID for every partition; those that are not the first of their card are noted."""
        cards: dict[str, int] = {}
        uuids: set[str] = set()
        found = []
        self._secondary = set()
        for handle, known in gpus:
            # Partitions of a card are functions of one PCI device.
            card = (known.pci_bus_id or known.uuid).rpartition(".")[0] or known.uuid
            n = cards[card] = cards.get(card, -1) + 1
            if known.uuid in uuids:
                known = replace(known, uuid=f"{known.uuid}/{n}")
            uuids.add(known.uuid)
            if n:
                self._secondary.add(known.uuid)
                known = replace(known, power_limit_mw=None)
            found.append((handle, known))
        return found

    def _read(self, handle: Any, known: DeviceReading, processes: bool) -> DeviceReading:
        values, gaps = self._values(self._smi, known.uuid, handle, TICK)
        if all(value is None for value in values.values()):
            return replace(known, lost=f"the GPU answers nothing: {gaps[0].reason}")
        shared = _ON_FIRST_PARTITION if known.uuid in self._secondary else None
        shared = shared or (_ON_FIRST_DIE if values["power_mw"] == 0 else None)
        if shared:
            values |= {metric: None for metric in _OF_THE_CARD}
            gaps = tuple(gap for gap in gaps if gap.metric not in _OF_THE_CARD)
            gaps += tuple(replace(shared, metric=metric) for metric in _OF_THE_CARD)
        if processes:
            values["processes"], hidden = self._processes(known.uuid, handle)
            gaps += hidden
        return replace(known, **values, gaps=known.gaps + gaps)

    def _values(
        self, smi: Any, uuid: str, handle: Any, table: dict[str, _Call]
    ) -> tuple[dict[str, Any], tuple[Gap, ...]]:
        values, gaps = {}, []
        for metric, call in table.items():
            values[metric], gap = self._ask(smi, uuid, handle, call)
            if gap is not None:
                gaps.append(replace(gap, metric=metric))
        return values, tuple(gaps)

    def _ask(self, smi: Any, uuid: str, handle: Any, call: _Call) -> tuple[Any, Gap | None]:
        if gap := self._refused.get((uuid, call)):
            return None, gap
        self.calls += 1
        try:
            value = call.convert(getattr(smi, call.function)(handle))
        except smi.AmdSmiException as error:
            code = getattr(error, "err_code", None)
            if code in _STATUS:
                gap = self._refused[uuid, call] = Gap("", *_STATUS[code])
                return None, gap
            return None, Gap("", "failing", f"the AMD driver answered {error!r}", "see `dmesg` if it stays")
        return value, Gap("", "unsupported", "the AMD driver shows no value for it") if value is None else None

    def _processes(self, uuid: str, handle: Any) -> tuple[tuple[DeviceProcess, ...] | None, tuple[Gap, ...]]:
        rows, gap = self._ask(self._smi, uuid, handle, _PROCESSES)
        if gap is None and not rows and os.geteuid() != 0:
            gap = Gap("", "denied", "the AMD driver shows processes only to a privileged user", _STATUS[10][2])
        if gap is not None:
            return None, (replace(gap, metric="processes"),)
        held = ((row["pid"], row["memory_usage"]["vram_mem"]) for row in rows)
        # Every process is listed under every GPU; those with memory there hold it. Asking made us one of them.
        return tuple(DeviceProcess(pid, used) for pid, used in held if used and pid != os.getpid()), ()
