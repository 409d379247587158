"""Power of the whole server at its plug, by its BMC, its PDU or a Prometheus series: the first source that answers.

Sources: DCMI 1.5 "Get Power Reading" as `ipmitool dcmi power reading` prints it; Redfish (DSP0268) `Power`,
`EnvironmentMetrics` and the `Outlet` of a PDU; the instant query of Prometheus's HTTP API.
"""

import json
import math
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from pertoken.agent.readings import PlugReading, Unavailable
from pertoken.agent.scrape import RequestLimits, ScrapeError, fetch
from pertoken.agent.workers import Clock, Workers
from pertoken.config import Settings
from pertoken.settings.fleet import PlugSource

READ_S = 20.0
"""Time between two readings. BMCs renew theirs every second to every few."""
MAX_AGE_S = 60.0
"""Oldest reading that counts as present."""
MAX_W = 1_000_000
"""A rack of 72 accelerators draws some 140 kW."""
PROGRAM = "ipmitool"
PROGRAM_S = 10.0
METRIC = "plug_power"
_WATTS = re.compile(r"Instantaneous power reading:\s*(\d+) Watts", re.IGNORECASE)
_STATE = re.compile(r"Power reading state is:\s*(\w+)", re.IGNORECASE)
_LOOK = "compare with what the source shows to the agent's user (IPMI: rights on /dev/ipmi0); agent.plug names it"


class PlugError(Exception):
    """A source gives no power."""


def read_ipmi(source: PlugSource, host: str, limits: RequestLimits) -> float:
    """Return the watts of this server's BMC by IPMI DCMI. Raises PlugError."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise PlugError(f"{PROGRAM} is not on PATH")
    try:
        done = subprocess.run(
            [program, "dcmi", "power", "reading"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlugError(f"{PROGRAM}: {error}") from None
    watts, state = _WATTS.search(done.stdout), _STATE.search(done.stdout)
    if watts is None or (state is not None and state[1].lower() != "activated"):
        text = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1][:200]
        raise PlugError(f"{PROGRAM} dcmi power reading: {text}")
    return float(watts[1])


def read_redfish(source: PlugSource, host: str, limits: RequestLimits) -> float:
    """Return the watts of a Redfish resource. Raises PlugError, ScrapeError."""
    document = _json(source.url, limits)
    watts = _part(document, "PowerWatts", "Reading")
    if watts is None:
        watts = _part(document, "PowerControl", 0, "PowerConsumedWatts")
    if isinstance(watts, bool) or not isinstance(watts, int | float):
        raise PlugError("it has neither PowerControl with PowerConsumedWatts nor PowerWatts with Reading")
    return float(watts)


def read_prometheus(source: PlugSource, host: str, limits: RequestLimits) -> float:
    """Return the watts that a query gives, with `$host` replaced by this host's name. Raises PlugError, ScrapeError."""
    query = source.query.replace("$host", host)
    document = _json(f"{source.url}/api/v1/query?query={quote(query, safe='')}", limits)
    result = _part(document, "data", "result")
    if not isinstance(result, list) or len(result) != 1:
        many = len(result) if result and isinstance(result, list) else "no"
        raise PlugError(f"the query {query} gives {many} series: it must give one")
    try:
        return float(str(_part(result, 0, "value", 1)))
    except ValueError:
        raise PlugError(f"the query {query} gives no number") from None


SOURCES: Mapping[str, Callable[[PlugSource, str, RequestLimits], float]] = {
    "ipmi": read_ipmi,
    "redfish": read_redfish,
    "prometheus": read_prometheus,
}
"""Reader of each kind of source (`settings.fleet.KINDS`): watts, of a host's name and limits of a request."""


def _json(url: str, limits: RequestLimits) -> Mapping[str, object]:
    reply = fetch("GET", url, limits, {"Accept": "application/json"})
    try:
        document = json.loads(reply.body, parse_int=float)  # an integer may have more digits than a float holds
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise PlugError(f"{url.partition('?')[0]} answers with no JSON object")
    return document


def _part(document: object, *keys: str | int) -> object:
    """Return a part of a document by names and numbers; None where it has none."""
    for key in keys:
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and isinstance(key, int) and key < len(document):
            document = document[key]
        else:
            return None
    return document


def read_plug(source: PlugSource, host: str, limits: RequestLimits) -> PlugReading | Unavailable:
    """Return the reading of a source, or why there is none."""
    try:
        watts = SOURCES[source.kind](source, host, limits)
        if not (math.isfinite(watts) and 0 < watts <= MAX_W):
            raise PlugError(f"it reports {watts:g} W, which no running server draws")
    except ScrapeError as error:
        reason = error.message
    except PlugError as error:
        reason = str(error)
    else:
        return PlugReading(round(watts * 1000), source.kind)
    return Unavailable(f"{METRIC} {source.shown}", "failing", f"{source.shown}: {reason}"[:500], _LOOK)


def plug_watch(settings: Settings) -> "PlugWatch":
    """Return the watch that the settings ask for; one without sources reads nothing."""
    return PlugWatch(settings.agent_plug, platform.node(), RequestLimits.of(settings))


class PlugWatch:
    """Reads the power at the plug, each source in a thread of its own: a BMC takes seconds to answer, or never does."""

    def __init__(
        self, sources: Sequence[PlugSource], host: str, limits: RequestLimits, clock: Clock = time.monotonic
    ) -> None:
        self._sources, self._host, self._limits, self._clock = sources, host, limits, clock
        self._workers = Workers(len(sources), "plug")
        self._lock = threading.Lock()
        self._under_way: set[PlugSource] = set()
        self._readings: dict[PlugSource, tuple[float, PlugReading]] = {}
        self._failures: dict[PlugSource, Unavailable] = {}

    def start_read(self) -> None:
        """Begin to read each source without a reading under way."""
        with self._lock:
            sources = set(self._sources) - self._under_way
            self._under_way |= sources
        for source in sources:
            self._workers.submit(partial(self._read, source))

    @property
    def newest(self) -> PlugReading | None:
        """The reading that stands for the present: of the first source that answers, else of one that just did."""
        with self._lock:
            oldest_s = self._clock() - MAX_AGE_S
            fresh = [source for source in self._sources if self._readings.get(source, (-math.inf,))[0] >= oldest_s]
            best = min(fresh, key=lambda source: source in self._failures, default=None)
            return self._readings[best][1] if best else None

    @property
    def unavailable(self) -> tuple[Unavailable, ...]:
        """Sources that gave nothing when they were last asked."""
        with self._lock:
            return tuple(self._failures[source] for source in self._sources if source in self._failures)

    def close(self) -> None:
        """Read no further."""
        self._workers.close()

    def _read(self, source: PlugSource) -> None:
        try:
            outcome = read_plug(source, self._host, self._limits)
            with self._lock:
                if isinstance(outcome, Unavailable):
                    self._failures[source] = outcome
                else:
                    self._failures.pop(source, None)
                    self._readings[source] = self._clock(), outcome
        finally:
            with self._lock:
                self._under_way.discard(source)
