"""Gateways: servers before engines that know the tenants of their tokens. Front door: `GatewayWatch`."""

from __future__ import annotations

import collections
import json
import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pertoken.agent.engines.adapters.adapter import MILLISECOND, PROCESS_START, Counter, PageOrigin, text
from pertoken.agent.readings import GatewayReading, Unavailable
from pertoken.agent.scrape import Labels, MetricsPage, PageError, RequestLimits, ScrapeError, get, parse
from pertoken.agent.workers import Workers
from pertoken.errors import BadInput
from pertoken.metrics import TENANT_LABELS
from pertoken.printable import short
from pertoken.settings.fleet import GatewaySettings
from pertoken.store.schema.telemetry import MINUTE


@dataclass(frozen=True, slots=True)
class GatewayAdapter:
    """One gateway, as a table."""

    kind: str
    tested_on: PageOrigin
    """Origin of the page that the table was tested on."""
    source: str
    """Where its names come from, and as of when."""
    marks: re.Pattern[str]
    """Text in its metrics page alone, also before it has counted anything: searched in all of it."""
    paths: tuple[str, ...]
    """Paths of its metrics page, the usual one first."""
    counters: tuple[Counter, ...]
    """Onto `metrics.TENANT_TOKENS`; of a histogram the name of its sum."""
    labels: Mapping[str, tuple[str, ...]]
    """By name in `metrics.TENANT_LABELS`: labels that hold it, the first with a value is taken."""

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all series read from a page."""
        return frozenset({name for counter in self.counters for name in counter.engine_names} | {PROCESS_START})


LITELLM = GatewayAdapter(
    kind="litellm",
    tested_on=PageOrigin.LIVE,
    source="litellm 1.106.2 with the callback `prometheus`; its page captured (2026-11-22)",
    marks=re.compile(r"\blitellm_\w*tokens_metric"),
    # Without the slash it redirects.
    paths=("/metrics/",),
    counters=(
        Counter("tenant_prompt_tokens", ("litellm_input_tokens_metric_total", "litellm_input_tokens_metric")),
        Counter("tenant_generated_tokens", ("litellm_output_tokens_metric_total", "litellm_output_tokens_metric")),
        Counter("tenant_cached_tokens", ("litellm_input_cached_tokens_metric_total",)),
        Counter("tenant_reasoning_tokens", ("litellm_output_reasoning_tokens_metric_total",)),
        Counter("tenant_prompt_audio_tokens", ("litellm_input_audio_tokens_metric_total",)),
        Counter("tenant_audio_tokens", ("litellm_output_audio_tokens_metric_total",)),
        Counter("tenant_images", ("litellm_images_generated_metric_total",)),
        Counter("tenant_video_ms", ("litellm_video_duration_seconds_metric_total",), unit=MILLISECOND),
    ),
    labels={
        "model": ("model", "litellm_model_name", "requested_model"),
        "team": ("team_alias", "team"),
        "key": ("api_key_alias", "hashed_api_key"),
        "user": ("end_user",),
    },
)
SGL_ROUTER = GatewayAdapter(
    kind="sgl-router",
    tested_on=PageOrigin.DOCUMENTS,
    source="SMG (sgl-model-gateway) reference of metrics (2026-11): tokens of the gRPC router alone, by model",
    marks=re.compile(r"\bsmg_router_"),
    paths=("/metrics",),
    counters=(
        Counter("tenant_prompt_tokens", ("smg_router_tokens_total",), where=(("token_type", "input"),)),
        Counter("tenant_generated_tokens", ("smg_router_tokens_total",), where=(("token_type", "output"),)),
    ),
    labels={"model": ("model",), "team": ("tenant", "team"), "key": ("api_key_alias",), "namespace": ("namespace",)},
)
LLM_D = GatewayAdapter(
    kind="llm-d",
    tested_on=PageOrigin.DOCUMENTS,
    source="llm-d-router's endpoint picker, names of the Gateway API Inference Extension before it (2026-11)",
    marks=re.compile(r"\b(llm_d_router_epp_|inference_objective_|inference_model_)"),
    paths=("/metrics",),
    counters=(
        Counter(
            "tenant_prompt_tokens",
            (
                "llm_d_router_epp_input_tokens_sum",
                "inference_objective_input_tokens_sum",
                "inference_model_input_tokens_sum",
            ),
        ),
        Counter(
            "tenant_generated_tokens",
            (
                "llm_d_router_epp_output_tokens_sum",
                "inference_objective_output_tokens_sum",
                "inference_model_output_tokens_sum",
            ),
        ),
        Counter("tenant_cached_tokens", ("inference_objective_prompt_cached_tokens_sum",)),
    ),
    # Each team's objective has a model name of its own that leads to a served one.
    labels={
        "model": ("target_model_name", "model_name"),
        "key": ("fairness_id", "model_name"),
        "namespace": ("namespace",),
    },
)
ADAPTERS: Mapping[str, GatewayAdapter] = {adapter.kind: adapter for adapter in (LITELLM, SGL_ROUTER, LLM_D)}
"""All gateways that can be read, by kind."""


READ_S = 60.0
"""Time between two readings of a gateway: dollars are split by the hour."""
MAX_SERIES = 10_000
"""Series of one page: each is a counter to remember. A gateway with more exposes labels that nobody is billed by."""


def read_gateway(setting: GatewaySettings, limits: RequestLimits) -> GatewayReading:
    """Return the counts of a gateway now. Raises ScrapeError where its page cannot be used."""
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


def _reading(setting: GatewaySettings, adapter: GatewayAdapter, page: MetricsPage) -> GatewayReading:
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
    """Return the tenant of a series: `{key="...",model="...",...}`, without labels that it does not name."""
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

    def __init__(self, gateways: Sequence[GatewaySettings], limits: RequestLimits) -> None:
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
        """Return the readings since the last call; of a gateway that was read twice the newest page."""
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


MAX_BYTES = 512 * 2**20

MAX_TOKENS = 10**9
"""Tokens of one request: more is no count."""
_ALL_ROWS = "export it again as `GET /spend/logs?summarize=false`, which returns a row for each request"
_REQUEST_COLUMNS = frozenset({"request_id", "call_type", "prompt_tokens", "completion_tokens"})
"""Columns: a row of a request has at least one."""
_STORED_ANSWER = re.compile(r"a?(get|retrieve|list|delete|cancel)_")
"""Types of calls that handle an answer of an earlier request: its own row has the tokens."""


@dataclass(frozen=True, slots=True)
class SpendLog:
    """Requests and tokens that a log counts."""

    tokens: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Tokens by start of the minute in which requests ended, epoch seconds, and by metric of a tenant."""
    requests: int = 0
    cached: int = 0
    """Requests that the gateway answered from its own cache: no engine saw them, and none of their tokens count."""
    repeated: int = 0
    """Rows of a request that was in the file before, and of calls that fetched a stored answer again."""
    failed: int = 0
    """Requests that failed: the tokens in their rows are an estimate of the gateway."""


def read_spend_log(path: Path, setting: GatewaySettings) -> SpendLog:
    """Return the tokens of a log: JSON (a list, or an object with `data`), or one of these or a row on each line.

    Raises BadInput naming the file, the row and its fault.
    """
    tokens: dict[int, collections.Counter[str]] = defaultdict(collections.Counter)
    requests = cached = repeated = failed = 0
    seen: set[str] = set()
    for number, row in enumerate(_rows(path), 1):
        where = f"{path}: row {number}"
        request_id = row.get("request_id")
        if isinstance(request_id, str) and request_id:
            if request_id in seen:
                repeated += 1
                continue
            seen.add(request_id)
        if _STORED_ANSWER.match(str(row.get("call_type"))):
            repeated += 1
            continue
        if str(row.get("status")).casefold() == "failure":
            failed += 1
            continue
        usage = _object(_object(row.get("metadata")).get("usage_object"))
        prompt, generated = (_object(usage.get(f"{name}_tokens_details")) for name in ("prompt", "completion"))
        counts = {
            "tenant_prompt_tokens": _count(where, row, "prompt_tokens"),
            "tenant_generated_tokens": _count(where, row, "completion_tokens"),
            "tenant_cached_tokens": _count(where, prompt, "cached_tokens"),
            "tenant_reasoning_tokens": _count(where, generated, "reasoning_tokens"),
            "tenant_prompt_audio_tokens": _count(where, prompt, "audio_tokens"),
            "tenant_audio_tokens": _count(where, generated, "audio_tokens"),
            "tenant_images": _count(where, usage, "output_image_count"),
            "tenant_video_ms": _milliseconds(where, usage, "duration_seconds"),
        }
        if str(row.get("cache_hit")).casefold() == "true":
            cached += 1
            continue
        minute = _time(where, row) // MINUTE * MINUTE
        requests += 1
        tenant = tenant_of(setting, LITELLM, tuple(_labels(row).items()))
        for name, count in counts.items():
            if count:
                tokens[minute][name + tenant] += count
    if not (requests or cached or failed or repeated):
        raise BadInput(f"{path}: holds no request")
    return SpendLog(
        {minute: dict(counts_by_metric) for minute, counts_by_metric in sorted(tokens.items())},
        requests,
        cached,
        repeated,
        failed,
    )


def _rows(path: Path) -> list[Mapping[str, object]]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES // 2**20} MiB: export fewer days")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = _lines(path, text)
    rows: list[Mapping[str, object]] = []
    for row in (row for document in documents for row in _rows_of(document)):
        if not isinstance(row, dict):
            raise BadInput(f"{path}: must be a list of objects, or one object on each line")
        rows.append(row)
    _check_pages(path, [page for page in documents if isinstance(page, dict) and isinstance(page.get("data"), list)])
    summary = next((number for number, row in enumerate(rows, 1) if not _REQUEST_COLUMNS & row.keys()), None)
    if summary is not None:
        raise BadInput(f"{path}: row {summary} is a summary of a day, not a request: {_ALL_ROWS}")
    return rows


def _rows_of(document: object) -> list[object]:
    rows = document.get("data") if isinstance(document, dict) else document
    return rows if isinstance(rows, list) else [document]


def _check_pages(path: Path, pages: Sequence[Mapping[str, object]]) -> None:
    """Raise BadInput for pages of a reply that has further pages, or more rows than they hold."""
    last = max((count for page in pages if (count := _whole(page.get("total_pages")))), default=0)
    missing = set(range(1, last + 1)) - {_whole(page.get("page")) or 1 for page in pages}
    if missing:
        raise BadInput(
            f"{path}: lacks {len(missing)} of {last} pages of the reply, page {min(missing)} among them: "
            f"put all pages into it, one on each line, or {_ALL_ROWS}"
        )
    total = max((count for page in pages if (count := _whole(page.get("total")))), default=0)
    held = sum(len(_rows_of(page)) for page in pages)
    if total > held:
        raise BadInput(f"{path}: holds {held} of {total} rows of the reply: {_ALL_ROWS}")


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _lines(path: Path, text: str) -> list[object]:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not valid JSON: {error}") from None


def _labels(row: Mapping[str, object]) -> dict[str, str]:
    """Return the names in a row, under the labels of the gateway's metrics."""
    about = _object(row.get("metadata"))
    named = {
        "model": row.get("model"),
        "requested_model": row.get("model_group"),
        "team_alias": about.get("user_api_key_team_alias"),
        "team": row.get("team_id"),
        "api_key_alias": about.get("user_api_key_alias"),
        "hashed_api_key": row.get("api_key"),
        "end_user": row.get("end_user"),
    }
    return {label: value for label, value in named.items() if isinstance(value, str) and value}


def _object(value: object) -> Mapping[str, object]:
    """Return an object, or the one that a text holds; an empty one for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _count(where: str, row: Mapping[str, object], column: str) -> int:
    value = row.get(column, 0)
    if value is None:
        return 0
    if type(value) is not int or not 0 <= value <= MAX_TOKENS:
        raise BadInput(f"{where}: {column} {short(repr(value))} is not a number of tokens")
    return value


def _milliseconds(where: str, row: Mapping[str, object], column: str) -> int:
    value = row.get(column)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TOKENS:
        raise BadInput(f"{where}: {column} {short(repr(value))} is not a number of seconds")
    return round(1000.0 * float(value))


def _time(where: str, row: Mapping[str, object]) -> int:
    """Return when a request ended, which is when a gateway counts it."""
    text = row.get("endTime") or row.get("startTime")
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise BadInput(f"{where}: endTime {short(repr(text))} is not a time") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
