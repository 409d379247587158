"""Intel Gaudi through `pyhlml`, device by device. Not yet run on Gaudi hardware: tested over a stand-in library.

The library tells no processes, so nothing on a Gaudi can be attributed. `pyhlml` prints and raises where its library is
not at the one path it knows, so that path is looked at first: without it nothing is imported and nothing said.
"""

import ctypes
import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pertoken.agent.probes.backoff import Backoff, Clock
from pertoken.agent.readings import DeviceReading, Gap

LIBRARY = Path("/usr/lib/habanalabs/libhlml.so")
_NO_PROCESSES = Gap("processes", "unsupported", "Gaudi's library lists no processes")
_NOT_SUPPORTED, _LOST = 3, 15
_AIP_SENSOR = 0

Ask = Callable[[Any, Any], Any]
"""(module, device) -> value in our units."""

IDENTITY: dict[str, Ask] = {
    "uuid": lambda hlml, device: hlml.hlmlDeviceGetUUID(device).decode(),
    "name": lambda hlml, device: hlml.hlmlDeviceGetName(device).decode(),
    "pci_bus_id": lambda hlml, device: hlml.hlmlDeviceGetPCIInfo(device).bus_id.decode(),
    "memory_bytes": lambda hlml, device: hlml.hlmlDeviceGetMemoryInfo(device).total,
    "power_limit_mw": lambda hlml, device: hlml.hlmlDeviceGetPowerManagementDefaultLimit(device),
}
TICK: dict[str, Ask] = {
    "util_1e4": lambda hlml, device: hlml.hlmlDeviceGetUtilizationRates(device) * 100,
    "memory_used_bytes": lambda hlml, device: hlml.hlmlDeviceGetMemoryInfo(device).used,
    "power_mw": lambda hlml, device: hlml.hlmlDeviceGetPowerUsage(device),
    "energy_mj": lambda hlml, device: hlml.hlmlDeviceGetTotalEnergyConsumption(device),
    "temperature_c": lambda hlml, device: hlml.hlmlDeviceGetTemperature(device, _AIP_SENSOR),
}


class GaudiProbe:
    """Reads all Gaudi devices of this host. `clock` is monotonic seconds; `library` where its library is to be."""

    def __init__(self, clock: Clock = time.monotonic, library: Path = LIBRARY) -> None:
        self.calls = 0
        self.outdated = False
        self._library = library
        self._hlml: Any = None
        self._devices: list[tuple[Any, DeviceReading]] = []
        self._unsupported: set[tuple[str, str]] = set()
        self._down: tuple[Gap, ...] = ()
        self._backoff = Backoff(clock)

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Gap, ...]]:
        """Every device found at the start, and what is missing for the whole host; nothing on a host without Gaudi."""
        if self._hlml is None:
            if not self._library.exists() or not self._backoff.due:
                return (), self._down
            self._start()
            if self._hlml is None:
                self._backoff.failed()
                return (), self._down
        read = tuple(self._read(device, known) for device, known in self._devices)
        return read, ()

    def close(self) -> None:
        """Let go of the driver."""
        if self._hlml is not None:
            self._hlml.hlmlShutdown()
            self._hlml = None

    def _start(self) -> None:
        try:
            hlml = importlib.import_module("pyhlml")
        except ImportError:
            remedy = "pip install 'pertoken[gaudi]'"
            self._down = (Gap("gaudi", "missing", "the Python package pyhlml is not installed", remedy),)
            return
        try:
            hlml.hlmlInit()
            count = hlml.hlmlDeviceGetCount()
            # pyhlml hands out one and the same object for every device: only a copy stays what it is.
            handles = [ctypes.c_void_p(hlml.hlmlDeviceGetHandleByIndex(slot).value) for slot in range(count)]
            self._devices = [(handle, self._identity(hlml, handle, slot)) for slot, handle in enumerate(handles)]
        except hlml.HLMLError as error:
            self._down = (Gap("gaudi", "failing", f"the Gaudi driver does not start: {error}", "see `dmesg`"),)
            return
        self._hlml, self._down = hlml, ()

    def _identity(self, hlml: Any, handle: Any, slot: int) -> DeviceReading:
        values = {metric: self._ask(hlml, f"#{slot}", handle, metric, ask) for metric, ask in IDENTITY.items()}
        gaps = tuple(value for value in values.values() if isinstance(value, Gap))
        known: dict[str, Any] = {metric: None if isinstance(value, Gap) else value for metric, value in values.items()}
        if known["uuid"] is None:
            raise hlml.HLMLError(_LOST)
        known["name"] = known["name"] or "Intel Gaudi"
        return DeviceReading(kind="gpu", vendor="Intel", slot=slot, gaps=(_NO_PROCESSES, *gaps), **known)

    def _read(self, handle: Any, known: DeviceReading) -> DeviceReading:
        values = {metric: self._ask(self._hlml, known.uuid, handle, metric, ask) for metric, ask in TICK.items()}
        gaps = tuple(value for value in values.values() if isinstance(value, Gap))
        if len(gaps) == len(values):
            return replace(known, lost=f"the device answers nothing: {gaps[0].reason}")
        read: dict[str, Any] = {metric: None if isinstance(value, Gap) else value for metric, value in values.items()}
        return replace(known, **read, gaps=known.gaps + gaps)

    def _ask(self, hlml: Any, uuid: str, handle: Any, metric: str, ask: Ask) -> Any:
        if (uuid, metric) not in self._unsupported:
            self.calls += 1
            try:
                return ask(hlml, handle)
            except hlml.HLMLError as error:
                if error.value != _NOT_SUPPORTED:
                    return Gap(metric, "failing", f"the Gaudi driver answered {error}", "see `dmesg` if it stays")
                self._unsupported.add((uuid, metric))
        return Gap(metric, "unsupported", "this device or driver does not offer it")
