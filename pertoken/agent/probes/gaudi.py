"""Intel Gaudi through `pyhlml`, device by device. Not yet run on Gaudi hardware: tested over a stand-in library.

The library lists no processes, so nothing on a Gaudi can be attributed. `pyhlml` prints and raises where its library is
not at the one path it knows, so that path is looked at first: without it nothing is imported and nothing printed.
"""

import ctypes
import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pertoken.agent.backoff import Clock
from pertoken.agent.probes.cards import CardProbe
from pertoken.agent.probes.patience import PATIENCE_S
from pertoken.agent.readings import DeviceReading, Unavailable

LIBRARY = Path("/usr/lib/habanalabs/libhlml.so")
_NO_PROCESSES = Unavailable("processes", "unsupported", "Gaudi's library lists no processes")
_NOT_SUPPORTED, _LOST = 3, 15
_AIP_SENSOR = 0

DriverCall = Callable[[Any, Any], Any]
"""(module, device) -> value in our units."""

IDENTITY: dict[str, DriverCall] = {
    "uuid": lambda hlml, device: hlml.hlmlDeviceGetUUID(device).decode(),
    "name": lambda hlml, device: hlml.hlmlDeviceGetName(device).decode(),
    "pci_bus_id": lambda hlml, device: hlml.hlmlDeviceGetPCIInfo(device).bus_id.decode(),
    "memory_bytes": lambda hlml, device: hlml.hlmlDeviceGetMemoryInfo(device).total,
    "power_limit_mw": lambda hlml, device: hlml.hlmlDeviceGetPowerManagementDefaultLimit(device),
}
TICK: dict[str, DriverCall] = {
    "util_1e4": lambda hlml, device: hlml.hlmlDeviceGetUtilizationRates(device) * 100,
    "memory_used_bytes": lambda hlml, device: hlml.hlmlDeviceGetMemoryInfo(device).used,
    "power_mw": lambda hlml, device: hlml.hlmlDeviceGetPowerUsage(device),
    "energy_mj": lambda hlml, device: hlml.hlmlDeviceGetTotalEnergyConsumption(device),
    "temperature_c": lambda hlml, device: hlml.hlmlDeviceGetTemperature(device, _AIP_SENSOR),
}


class GaudiLibrary:
    """Habana's library, at `path`. `calls` counts what was asked of it."""

    vendor = "gaudi"

    def __init__(self, path: Path) -> None:
        self.calls = 0
        self.failure: type[Exception] = Exception
        self._path = path
        self._hlml: Any = None
        self._unsupported: set[tuple[str, str]] = set()

    def absent(self) -> bool:
        """Return whether its library is not there."""
        return not self._path.exists()

    def load(self) -> Unavailable | None:
        """Import the package."""
        try:
            self._hlml = importlib.import_module("pyhlml")
        except ImportError:
            remedy = "pip install 'pertoken[gaudi]'"
            return Unavailable("gaudi", "missing", "the Python package pyhlml is not installed", remedy)
        self.failure = self._hlml.HLMLError
        return None

    def start(self) -> int:
        """Initialise. Raises HLMLError."""
        self._unsupported.clear()
        self.calls += 2
        self._hlml.hlmlInit()
        return int(self._hlml.hlmlDeviceGetCount())

    def find(self, slot: int) -> "_Gaudi":
        """Return the device in a slot. Raises HLMLError if it does not report its UUID."""
        self.calls += 1
        # pyhlml hands out one and the same object for every device: only a copy stays what it is.
        handle = ctypes.c_void_p(self._hlml.hlmlDeviceGetHandleByIndex(slot).value)
        values, unavailable = self.values(f"#{slot}", handle, IDENTITY)
        if values["uuid"] is None:
            raise self.failure(_LOST)
        values["name"] = values["name"] or "Intel Gaudi"
        known = DeviceReading(
            kind="gpu", vendor="Intel", slot=slot, unavailable=(_NO_PROCESSES, *unavailable), **values
        )
        return _Gaudi(self, handle, known)

    def cards(self, devices: Sequence["_Gaudi"]) -> Sequence["_Gaudi"]:
        """Return each device as a card of its own."""
        return devices

    def stop(self) -> None:
        """Release the driver. Raises HLMLError."""
        self._hlml.hlmlShutdown()

    def quiet(self) -> AbstractContextManager[None]:
        """Once it is loaded it prints nothing."""
        return nullcontext()

    def values(
        self, owner: str, handle: Any, table: dict[str, DriverCall]
    ) -> tuple[dict[str, Any], tuple[Unavailable, ...]]:
        """Return values by metric, and gaps for those that are None."""
        values = {metric: self._ask(owner, handle, metric, ask) for metric, ask in table.items()}
        unavailable = tuple(value for value in values.values() if isinstance(value, Unavailable))
        return {
            metric: None if isinstance(value, Unavailable) else value for metric, value in values.items()
        }, unavailable

    def _ask(self, owner: str, handle: Any, metric: str, ask: DriverCall) -> Any:
        if (owner, metric) not in self._unsupported:
            self.calls += 1
            try:
                return ask(self._hlml, handle)
            except self.failure as error:
                if getattr(error, "value", None) != _NOT_SUPPORTED:
                    return Unavailable(
                        metric, "failing", f"the Gaudi driver answered {error}", "see `dmesg` if it stays"
                    )
                self._unsupported.add((owner, metric))
            except Exception as error:  # a text or a number that Python cannot make anything of
                reason = f"the Gaudi driver's answer makes no sense ({type(error).__name__})"
                return Unavailable(metric, "failing", reason, "update the Gaudi driver")
        return Unavailable(metric, "unsupported", "this device or driver does not offer it")


@dataclass(frozen=True, slots=True, eq=False)
class _Gaudi:
    library: GaudiLibrary
    handle: Any
    known: DeviceReading

    def unread(self, why: str) -> tuple[DeviceReading, ...]:
        return (self.known._replace(lost=why),)

    def read(self, processes: bool) -> tuple[DeviceReading, ...]:
        values, unavailable = self.library.values(self.known.uuid, self.handle, TICK)
        if len(unavailable) == len(values):
            return self.unread(f"the device answers nothing: {unavailable[0].reason}")
        return (self.known._replace(**values, unavailable=self.known.unavailable + unavailable),)


class GaudiProbe(CardProbe):
    """Reads all Gaudi devices of this host. `clock` is monotonic seconds, `library` where its library is to be."""

    def __init__(self, clock: Clock = time.monotonic, library: Path = LIBRARY, patience_s: float = PATIENCE_S) -> None:
        super().__init__(GaudiLibrary(library), clock, patience_s)
