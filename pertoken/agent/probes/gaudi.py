"""Intel Gaudi by the CSV of `hl-smi`, which comes with its driver. Tested with a stand-in program, not on hardware.

`hl-smi` lists no processes and no energy counter, so nothing on a Gaudi can be attributed, and its energy is integrated
from its power. Source of the fields: Intel's guide of the tool ("System Management Interface Tool", options -Q and -f).
"""

import csv
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pertoken.agent.readings import DeviceReading, DriverEvent, Unavailable
from pertoken.agent.workers import Backoff, Clock

PROGRAM = "hl-smi"
DRIVER = Path("/sys/module/habanalabs")
"""There while Gaudi's driver is loaded."""
TIMEOUT_S = 4.0
"""Longest run of the program; a reading of all devices may take 5 s at the shortest interval."""
QUERIES = (
    *("index", "uuid", "name", "bus_id", "driver_version", "memory.total", "memory.used", "utilization.aip"),
    *("power.draw", "temperature.aip"),
)
_MIB = 2**20
UNITS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "memory_bytes": ("memory.total", {"MiB": _MIB, "MB": 10**6}),
    "memory_used_bytes": ("memory.used", {"MiB": _MIB, "MB": 10**6}),
    "util_1e4": ("utilization.aip", {"%": 100}),
    "power_mw": ("power.draw", {"W": 1000, "mW": 1}),
    "temperature_c": ("temperature.aip", {"C": 1}),
}
"""Query of each metric, and its value in our unit for each unit that the program may print."""
_AMOUNT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) *([A-Za-z%]+)")
_ABSENT = frozenset({"", "N/A", "[N/A]", "Not Supported", "[Not Supported]"})
_NO_VALUES = dict.fromkeys(metric for metric in UNITS if metric != "memory_bytes")
_NO_PROCESSES = Unavailable("processes", "unsupported", "hl-smi lists no processes of other users")
_REMEDY = "run `hl-smi` as the agent's user, and see `dmesg`"


class HlSmiError(Exception):
    """The program did not answer with a table of devices."""


class GaudiProbe:
    """Reads all Gaudi devices of this host. `clock` is monotonic seconds; `program` is looked for on PATH."""

    outdated = False

    def __init__(
        self,
        clock: Clock = time.monotonic,
        program: str = PROGRAM,
        driver: Path = DRIVER,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._clock, self._program, self._driver, self._timeout_s = clock, program, driver, timeout_s
        self._backoff = Backoff(clock)
        self._known: dict[str, DeviceReading] = {}
        """Devices by UUID, without values."""
        self._running: subprocess.Popen[str] | None = None
        """A run that did not end in time: nothing else is started before it does."""
        self._missing: Unavailable | None = None
        self._events: list[DriverEvent] = []
        self.calls = 0

    def read(self, processes: bool) -> tuple[tuple[DeviceReading, ...], tuple[Unavailable, ...]]:
        """Return every device that was ever listed, and the gaps of the whole host. Raises nothing."""
        program = shutil.which(self._program)
        if program is None and not self._driver.exists() and not self._known:
            return (), ()
        if self._backoff.due:
            try:
                devices = self._listed(program)
            except HlSmiError as error:
                self._failed(str(error))
            else:
                self._missing, self._backoff = None, Backoff(self._clock)
                return devices, ()
        assert self._missing is not None
        lost = tuple(device._replace(lost=self._missing.reason) for device in self._known.values())
        return lost, (self._missing,)

    def driver_events(self) -> tuple[DriverEvent, ...]:
        """Return the driver's events since the last call."""
        events, self._events = self._events, []
        return tuple(events)

    def close(self) -> None:
        """End a run that still goes on."""
        if self._running is not None and self._running.poll() is None:
            _abandon(self._running)

    def _listed(self, program: str | None) -> tuple[DeviceReading, ...]:
        """Return all devices by one run of the program. Raises HlSmiError."""
        if program is None:
            raise HlSmiError(f"Gaudi's driver is loaded, but {self._program} is not on PATH: install Intel's tools")
        rows = list(csv.reader(self._output(program).splitlines(), skipinitialspace=True))
        readings = {reading.uuid: reading for row in rows if row for reading in (_reading(row),)}
        if not readings:
            raise HlSmiError(f"{self._program} lists no device")
        for uuid, reading in readings.items():
            self._known[uuid] = reading._replace(**_NO_VALUES)
        unlisted = [device for uuid, device in self._known.items() if uuid not in readings]
        lost = [device._replace(lost=f"{self._program} lists it no more") for device in unlisted]
        return *readings.values(), *lost

    def _output(self, program: str) -> str:
        """Return the output of the program. Raises HlSmiError."""
        if self._running is not None and self._running.poll() is None:
            raise HlSmiError(f"{self._program} hangs: it is not started again before it ends")
        self.calls += 1
        command = [program, "-Q", ",".join(QUERIES), "-f", "csv,noheader"]
        environment = {"HABANA_LOGS": tempfile.gettempdir(), **os.environ}  # it must be able to write its logs
        try:
            self._running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            )
            output, errors = self._running.communicate(timeout=self._timeout_s)
        except OSError as error:
            raise HlSmiError(f"{self._program} cannot be started: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            assert self._running is not None
            _abandon(self._running)
            raise HlSmiError(f"{self._program} did not answer within {self._timeout_s:g} s") from None
        if self._running.returncode:
            text = (errors.strip() or output.strip() or "no message").splitlines()[-1][:200]
            raise HlSmiError(f"{self._program} ended with status {self._running.returncode}: {text}")
        return output

    def _failed(self, reason: str) -> None:
        if self._missing is None:
            self._events.append(DriverEvent(None, "driver", f"gaudi: {reason}"))
        self._missing = Unavailable("gaudi", "failing" if self._known else "missing", reason, _REMEDY)
        self._backoff.failed()


def _reading(row: Sequence[str]) -> DeviceReading:
    """Return the device of a row. Raises HlSmiError for a row of another shape."""
    if len(row) != len(QUERIES):
        raise HlSmiError(f"a row has {len(row)} values instead of {len(QUERIES)}: {','.join(row)[:80]!r}")
    texts = dict(zip(QUERIES, (text.strip() for text in row), strict=True))
    if texts["uuid"] in _ABSENT:
        raise HlSmiError("a device without a UUID is listed")
    values: dict[str, object] = {}
    unavailable = [_NO_PROCESSES]
    for metric, (query, units) in UNITS.items():
        value = _amount(metric, texts[query], units)
        if isinstance(value, Unavailable):
            unavailable.append(value)
        else:
            values[metric] = value
    return DeviceReading(
        kind="gpu",
        vendor="Intel",
        uuid=texts["uuid"],
        name=texts["name"] if texts["name"] not in _ABSENT else "Intel Gaudi",
        slot=int(texts["index"]) if re.fullmatch(r"\d{1,4}", texts["index"]) else None,
        pci_bus_id=texts["bus_id"] if texts["bus_id"] not in _ABSENT else None,
        driver_version=texts["driver_version"] if texts["driver_version"] not in _ABSENT else None,
        unavailable=tuple(unavailable),
        **values,
    )


def _amount(metric: str, text: str, units: Mapping[str, int]) -> int | Unavailable:
    if text in _ABSENT:
        return Unavailable(metric, "unsupported", "this device or driver does not offer it")
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2] not in units:
        return Unavailable(metric, "failing", f"hl-smi printed {text[:40]!r}, which is no amount in {'|'.join(units)}")
    return round(float(match[1]) * units[match[2]])


def _abandon(process: subprocess.Popen[str]) -> None:
    """Kill a process without waiting for it: inside the driver it may not end."""
    process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
