"""Reads gateways beside the ticks, once a minute: pages of their counters, or why there are none."""

import json
import threading
from collections.abc import Mapping, Sequence

from pertoken.agent.engines.adapters.adapter import PROCESS_START, text
from pertoken.agent.gateways.adapters import ADAPTERS, GatewayAdapter
from pertoken.agent.readings import GatewayReading, Unavailable
from pertoken.agent.scrape.http import Limits, ScrapeError, get
from pertoken.agent.scrape.page import Labels, Page, PageError, parse
from pertoken.agent.workers import Workers
from pertoken.metrics import TENANT_LABELS
from pertoken.settings.fleet import GatewaySettings

READ_S = 60.0
"""Time between two readings of a gateway: dollars are split by the hour."""
MAX_SERIES = 10_000
"""Series of one page: each is a counter to remember. A gateway with more exposes labels that nobody is billed by."""


def read_gateway(setting: GatewaySettings, limits: Limits) -> GatewayReading:
    """Return what a gateway counts now. Raises ScrapeError where its page cannot be used."""
    kinds = [ADAPTERS[setting.kind]] if setting.kind else list(ADAPTERS.values())
    error: ScrapeError | None = None
    for path in dict.fromkeys(path for adapter in kinds for path in adapter.paths):
        try:
            reply = get(setting.url + path, limits)
        except ScrapeError as failed:
            error = failed
            if failed.status is None:
                raise
            continue
        shown = reply.body.decode(errors="replace")
        adapter = next((kind for kind in kinds if setting.kind or kind.marks.search(shown)), None)
        if adapter is None:
            continue
        try:
            page = parse(reply.body, adapter.wanted, eof_required="openmetrics" in reply.content_type)
            return _reading(setting, adapter, page)
        except PageError as broken:
            raise ScrapeError("malformed", f"{setting.url}{path}: {broken}") from None
    if error is not None:
        raise error
    raise ScrapeError("malformed", f"{setting.url}: answers, but as none of the gateways {', '.join(ADAPTERS)}")


def _reading(setting: GatewaySettings, adapter: GatewayAdapter, page: Page) -> GatewayReading:
    """Raises PageError for values that no counter can have, ScrapeError for more series than can be remembered."""
    counters: dict[str, int] = {}
    metric_of: dict[str, str] = {}
    for metric in adapter.counters:
        name = next((engine_name for engine_name in metric.engine_names if engine_name in page.samples), None)
        for labels, value in page.counter(name, metric.unit).items() if name is not None else ():
            if set(metric.where) <= set(labels):
                series = f"{metric.name}{json.dumps(labels, ensure_ascii=False)}"
                counters[series] = value
                metric_of[series] = metric.name + tenant_of(setting, adapter, labels)
    if len(counters) > MAX_SERIES:
        raise ScrapeError("too_large", f"{setting.url}: {len(counters):,} series of tokens, more than {MAX_SERIES:,}")
    started = page.gauge(PROCESS_START)
    life_ms = round(1000 * next(iter(started.values()))) if len(started) == 1 else None
    return GatewayReading(adapter.kind, setting.url, counters, metric_of, life_ms)


def tenant_of(setting: GatewaySettings, adapter: GatewayAdapter, labels: Labels) -> str:
    """Return whose tokens a series counts: `{key="...",model="...",...}`, what it does not name left out."""
    named = dict(labels)
    values: dict[str, str] = {}
    for name in TENANT_LABELS:
        value = next((value for label in adapter.labels.get(name, ()) if (value := text(named.get(label)))), None)
        if value is not None and (name != "user" or setting.users):
            values[name] = setting.models.get(value, value) if name == "model" else value
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    return f"{{{pairs}}}"


class GatewayWatch:
    """Reads the gateways of the settings in threads of its own. For one thread, but for the calls it submits."""

    def __init__(self, gateways: Sequence[GatewaySettings], limits: Limits) -> None:
        self._gateways, self._limits = gateways, limits
        self._workers = Workers(max(1, min(4, len(gateways))), "gateways")
        self._lock = threading.Lock()
        self._done: list[GatewayReading] = []
        self._under_way: set[str] = set()
        self._faults: dict[str, Unavailable] = {}

    def start_read(self) -> None:
        """Begin to read every gateway that is not being read."""
        for gateway in self._gateways:
            with self._lock:
                if gateway.url in self._under_way:
                    continue
                self._under_way.add(gateway.url)
            self._workers.submit(lambda setting=gateway: self._read(setting))  # type: ignore[misc]

    def take(self) -> tuple[GatewayReading, ...]:
        """Return what was read since this was last called; of a gateway that was read twice the newest page."""
        with self._lock:
            done: Mapping[str, GatewayReading] = {reading.base_url: reading for reading in self._done}
            self._done = []
        return tuple(done.values())

    @property
    def unavailable(self) -> tuple[Unavailable, ...]:
        """Gateways that could not be read when they were last asked."""
        with self._lock:
            return tuple(self._faults.values())

    def close(self) -> None:
        """Read no further."""
        self._workers.close()

    def _read(self, setting: GatewaySettings) -> None:
        try:
            reading = read_gateway(setting, self._limits)
        except ScrapeError as error:
            missing = Unavailable(f"gateway {setting.url}", "failing", error.message, _REMEDIES.get(error.kind, _LOOK))
            with self._lock:
                self._faults[setting.url] = missing
        else:
            with self._lock:
                self._faults.pop(setting.url, None)
                self._done.append(reading)
        finally:
            with self._lock:
                self._under_way.discard(setting.url)


_LOOK = "check the url in [[gateways]]: LiteLLM needs `callbacks: [prometheus]` to expose tokens"
_REMEDIES = {
    "access": "set in agent.access, for its url, which token or certificate it asks for",
    "timeout": "raise agent.scrape_timeout if it is only slow",
    "too_large": "raise agent.page_limit_mb, or have it expose fewer labels (without end users)",
}
