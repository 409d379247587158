"""AMD GPUs through `amdsmi`. Not yet run on AMD hardware: only its guard and its conversions are tested.

Importing `amdsmi` 7.0 without ROCm prints to stdout and raises KeyError, so its library is looked for first, in the
places the package itself looks, and what it prints is discarded. The package must be of the host's ROCm version.
Power limits are not read: their unit differs between ROCm releases.
"""

import ctypes
import importlib
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
    # MI300 has the current one, MI200 and Radeon the average; the second die of an MI250 shows 0.
    words = ("current_socket_power", "average_socket_power", "socket_power")
    watts = next((power[word] for word in words if _known(power.get(word))), None)
    return None if watts is None else round(watts * 1000)


def _energy_mj(count: dict[str, Any]) -> int | None:
    accumulator = _known(count["energy_accumulator"])
    return None if accumulator is None else round(accumulator * count["counter_resolution"] / 1000)


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
}
TICK = {
    "power_mw": _Call("amdsmi_get_power_info", _power_mw),
    "energy_mj": _Call("amdsmi_get_energy_count", _energy_mj),
    "util_1e4": _Call("amdsmi_get_gpu_activity", _util_1e4),
    "memory_used_bytes": _Call("amdsmi_get_gpu_vram_usage", lambda vram: vram["vram_used"] * 2**20),
}
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
    spec = importlib.util.find_spec("amdsmi")
    if spec is None or spec.origin is None:
        return Gap("amd", "missing", "the Python package amdsmi is not installed", "pip install amdsmi")
    with silenced():
        if not any(_loads(place) for place in _places(Path(spec.origin).parent)):
            return _NO_ROCM
        try:
            return importlib.import_module("amdsmi")
        except BaseException as error:  # A library older than the package lacks symbols: AttributeError, and others.
            return Gap(
                "amd",
                "failing",
                f"the Python package amdsmi does not fit this host's ROCm: {error!r}",
                "install the amdsmi of your ROCm release: pip install /opt/rocm/share/amd_smi",
            )


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
                self._gpus = [(handle, self._identity(smi, handle, slot)) for slot, handle in enumerate(handles)]
        except smi.AmdSmiException as error:
            self._down = (Gap("amd", "failing", f"ROCm found no GPU it can read: {error!r}", "see `dmesg`"),)
            return
        self._smi = smi

    def _identity(self, smi: Any, handle: Any, slot: int) -> DeviceReading:
        uuid = smi.amdsmi_get_gpu_device_uuid(handle)
        values, gaps = self._values(smi, uuid, handle, IDENTITY)
        values["name"] = values["name"] or "AMD GPU"
        return DeviceReading(uuid=uuid, kind="gpu", vendor="AMD", slot=slot, gaps=gaps, **values)

    def _read(self, handle: Any, known: DeviceReading, processes: bool) -> DeviceReading:
        values, gaps = self._values(self._smi, known.uuid, handle, TICK)
        if all(value is None for value in values.values()):
            return replace(known, lost=f"the GPU answers nothing: {gaps[0].reason}")
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
