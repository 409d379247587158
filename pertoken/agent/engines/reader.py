"""Reader of one engine: its page each time, its own identity now and then. A failure is a value, with its remedy.

The model is checked on each page that names it in a label (all engines but llama.cpp, TGI and a page without series),
and when the counters of a living process begin again; a page without a label is checked every `MODEL_S`.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from urllib.parse import urlsplit

from pertoken.agent.checkpoints.checkpoint import read_checkpoint
from pertoken.agent.checkpoints.facts import Checkpoint
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PROCESS_START, TOKENS, Adapter, EngineIdentity, pick
from pertoken.agent.engines.processes import TOPOLOGY, locate
from pertoken.agent.host.processes import HostProcesses, ProcessLife, host_processes
from pertoken.agent.readings import LATE, SLEEP_AFTER, Endpoint, EngineReading, Unavailable
from pertoken.agent.scrape import MetricsPage, PageError, Parser, RequestLimits, ScrapeError, get
from pertoken.catalog.knobs import merged, undetermined
from pertoken.store.schema.shared import CONNECTOR

IDENTITY_S = 300
"""Age of the identity of a living server at which it is asked again, where each page names its model."""
SLEEP_MARGIN_S = 2
"""Added to the time after which an idle server sleeps, before it is asked again."""
MODEL_S = 15
"""The same where only its API names the model: one that is swapped counts as the old one for so long."""

REMEDIES = {
    "closed": "start the server, or correct its URL in agent.engines",
    "http": "look into the server's log",
    "access": "name in agent.access the token or certificate it asks for, and the authority to trust",
    "malformed": "check that the URL is that of the inference server itself",
    "too_large": "raise agent.page_limit_mb if its page really is that large",
    "timeout": "raise agent.scrape_timeout if the server is only slow",
    "no_model": "have it load a model, or let /v1/models be read without a key",
    "several_models": "serve each of them from a server of its own",
    "router": "let the agent find these servers (agent.discover) or name their ports, not the router's",
    "several_servers": "give each server an address or a port of its own",
    "agent": "report it, with the traceback in the agent's log",
}
"""Remedies by `fault_kind`; each adapter has its own for `metrics_off`."""
_ROUTER_PAGE = re.compile(r"^vllm:(current_qps|healthy_pods_total)\b", re.M)
"""Series that only vLLM's production-stack router has, beside series with the names of vLLM's own."""
READABLE = (
    "run the agent as root or as the server's user, so that it may look at the model's config.json or GGUF header"
)


class EngineReader:
    """Reader of one endpoint. `endpoint` follows the process that listens there, if it is one of this host."""

    def __init__(
        self,
        endpoint: Endpoint,
        limits: RequestLimits,
        *,
        processes: Callable[[], HostProcesses] = host_processes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self._adapter = ADAPTERS[endpoint.kind]
        self._parser = Parser(self._adapter.wanted)
        self._limits = limits
        self._processes = processes
        self._clock = clock
        self._unsure = endpoint.pid is None
        self._identities: dict[str | None, tuple[EngineIdentity, float]] = {}
        """Identities with the time of their report, by model for an engine of several."""
        self._life: ProcessLife | None = None
        self._life_ms: int | None = None
        """Process start by the headers of the last page."""
        self._counted: dict[str | None, tuple[int | None, dict[str, int]]] = {}
        """Life and counters of the last page by model."""
        self._swapped: dict[str, dict[str, int]] = {}
        """Last counters by model that is served no more while its series stay on the page."""
        self._checkpoint: tuple[object, Checkpoint] = None, Checkpoint()
        self._idle: tuple[float, tuple[EngineReading, ...]] | None = None
        """Time and readings of the last page of an idle server that its page keeps awake."""

    def read(self, *, latencies: bool = True) -> tuple[EngineReading, ...]:
        """Return one reading, or one for each model of an engine of several.

        Without `latencies` they have no histograms, unless the engine has started again. Never raises for a failure
        of the engine: `fault` has the reason.
        """
        if self.endpoint.follows:
            return (self._following(),)
        try:
            if (resting := self._resting()) is not None:
                return resting
            readings = self._read(latencies)
        except ScrapeError as error:
            return self._fault(error)
        except PageError as error:
            return self._fault(ScrapeError("malformed", f"{self._url}: {error}"))
        self._unsure = False
        self._idle = (self._clock(), readings) if self._may_sleep(readings) else None
        return readings

    def _may_sleep(self, readings: tuple[EngineReading, ...]) -> bool:
        """Return whether the server is idle and its page keeps it awake."""
        if self._adapter.asleep is None or SLEEP_AFTER not in self.endpoint.knobs:
            return False
        repaired = self._adapter.asleep[2]
        return not any(
            repaired.match(reading.version or "") or reading.gauges.get("running") or reading.gauges.get("waiting")
            for reading in readings
        )

    def _resting(self) -> tuple[EngineReading, ...] | None:
        """Return the readings of a server that its page would wake or keep from its sleep; None for any other.

        While it sleeps nothing counts. Before, it is not asked for as long as it waits to sleep; the next page has
        its counts.
        """
        if self._idle is None or self._adapter.asleep is None or self._ended():
            return None
        read_s, readings = self._idle
        path, member, _ = self._adapter.asleep
        if pick(_json(self.endpoint.base_url + path, self._limits), member) is True:
            return tuple(
                replace(reading, gauges={**reading.gauges, "awake": 0}, histograms=None) for reading in readings
            )
        wait_s = int(str(self.endpoint.knobs[SLEEP_AFTER])) + SLEEP_MARGIN_S
        return self.late("not asked, so that it can fall asleep") if self._clock() - read_s < wait_s else None

    def _read(self, latencies: bool, begun_again: bool = False) -> tuple[EngineReading, ...]:
        """Read the page. `begun_again`: the page just read does not go on from the counters before."""
        url = self.endpoint.base_url
        unsure = self._unsure or self._ended()
        # A reset in a living process is a swap inside of it, or another process that answers at its address.
        if unsure or (begun_again and self.endpoint.pid is not None):
            self.endpoint = locate(self.endpoint, self._processes())
        if self.endpoint.contested:
            raise ScrapeError("several_servers", f"{url}: several servers answer there in turn, so none is counted")
        latencies = latencies or unsure or not self._identities  # a page that goes on from none is read whole at once
        page = self._page(latencies)
        parts = self._parts(page)
        identities = {model: self._identify(model, part, unsure, begun_again) for model, part in parts.items()}
        readings = tuple(self._reading(model, part, identities[model][0], latencies) for model, part in parts.items())
        if self._counted and not (begun_again or unsure) and any(self._from_start(reading) for reading in readings):
            return self._read(latencies=True, begun_again=True)
        if self._ended() or (unsure and locate(self.endpoint, self._processes()) != self.endpoint):
            # Two processes may have answered, and a counter means nothing without knowing whose it is.
            raise ScrapeError("closed", f"{url}: its process changed while it was read")
        self._identities = identities
        self._counted = {reading.endpoint.model: (reading.life_ms, reading.counters) for reading in readings}
        return readings

    def _parts(self, page: MetricsPage) -> dict[str | None, MetricsPage]:
        """Return the page by model for an engine of several, else the page of the served one.

        Series of a model that was swapped for another may stay on the page. The page that shows the new model first
        still counts for the old one, so that its last tokens are its own; the next counts for the new one, from 0.
        Raises ScrapeError for counts of several models that may all be served.
        """
        models, label = self._adapter.models(page), self._adapter.model_label
        if self._adapter.several and label is not None and models:
            return {model: page.only(label, model) for model in models}
        if len(models) <= 1 or label is None:
            self._swapped = {model: counts for model, counts in self._swapped.items() if model in models}
            return {None: page}
        parts = {model: page.only(label, model) for model in models}
        still = {model for model, counts in self._swapped.items() if self._adapter.counters_of(parts[model]) == counts}
        served = set(models) - still
        previous = self._identities[None][0].served_model if None in self._identities else None
        if len(served) == 2 and previous in served and not self._swapped:
            self._swapped[previous] = self._adapter.counters_of(parts[previous])
            return {None: parts[previous]}
        if len(served) != 1:
            raise ScrapeError(
                "several_models", f"{self._url}: counts of several models on one page: {', '.join(models)}"
            )
        return {None: parts[served.pop()]}

    def _reading(
        self, model: str | None, page: MetricsPage, identity: EngineIdentity, latencies: bool
    ) -> EngineReading:
        counters = self._adapter.counters_of(page)
        if not counters and self._adapter.no_tokens is None:
            raise ScrapeError("metrics_off", f"{self._url} has no counters of {self.endpoint.kind}")
        started_ms = None if model else _started_ms(page)  # a page of several models shows the start of its own server
        path = identity.model_path or self.endpoint.model_path
        files = self._files(path)
        knobs = _with_dtype(merged(self.endpoint.knobs, identity.knobs), files)
        return EngineReading(
            self.endpoint if model is None else replace(self.endpoint, model=model),
            served_model=identity.served_model,
            version=identity.version,
            model_path=path,
            model_facts={**files.facts, **identity.model_facts},
            knobs=knobs,
            counters=counters,
            gauges=self._adapter.gauges_of(page),
            histograms=self._adapter.histograms_of(page) if latencies else None,
            started_ms=started_ms,
            life_ms=started_ms or self._life_ms,
            unavailable=(*self._unavailable(files, counters), *_uncounted_transfers(knobs, counters)),
        )

    def _from_start(self, reading: EngineReading) -> bool:
        """Return whether its counters do not go on from the page before."""
        life_ms, counted = self._counted.get(reading.endpoint.model, (None, None))
        if counted is None or life_ms != reading.life_ms:
            return True
        return any(reading.counters.get(series, 0) < value for series, value in counted.items())

    def _unavailable(self, files: Checkpoint, counters: Collection[str]) -> tuple[Unavailable, ...]:
        counts_tokens = any(series.partition("{")[0] in TOKENS for series in counters)
        no_tokens = None if counts_tokens else self._adapter.no_tokens
        never = tuple(missing for missing in (no_tokens, self._adapter.no_time) if missing is not None)
        unread = (Unavailable("model_files", "missing", files.reason, READABLE),) if files.reason else ()
        absent = (Unavailable("model_shape", "missing", "; ".join(files.unknown)),) if files.unknown else ()
        return (*never, *unread, *absent, *_late(self._adapter))

    def _following(self) -> EngineReading:
        """Return ranks that another host leads: they answer nothing, and their devices are neither idle nor others'."""
        address, path = self.endpoint.knobs["rendezvous"], self.endpoint.model_path
        files = self._files(path)
        led = f"ranks led from {address}"
        reason = f"{led}: their tokens are counted there, and joined where both hosts report"
        return EngineReading(
            self.endpoint,
            served_model=path or led,
            model_path=path,
            model_facts=dict(files.facts),
            knobs=_with_dtype(self.endpoint.knobs, files),
            unavailable=(Unavailable("rendezvous", "unresolved", reason),),
        )

    @property
    def _url(self) -> str:
        return self.endpoint.base_url + (self._adapter.metrics_path or "")

    def _ended(self) -> bool:
        pid, started_ms = self.endpoint.pid, self.endpoint.process_start_ms
        if pid is None:
            return False
        if self._life is None or (self._life.pid, self._life.started_ms) != (pid, started_ms):
            self._life = ProcessLife(pid, started_ms)
        return self._life.ended()

    def _page(self, latencies: bool) -> MetricsPage:
        if self._adapter.metrics_path is None:
            return MetricsPage({})
        try:
            reply = get(self._url, self._limits)
        except ScrapeError as error:
            if error.status is not None and error.status == self._adapter.metrics_off_status:
                raise ScrapeError("metrics_off", error.message) from None
            if error.status is not None and error.status == self._adapter.router_status:
                message = f"{self._url}: a router, which starts servers of its own for its models"
                raise ScrapeError("router", message) from None
            raise
        start = reply.process_start
        self._life_ms = int(start) // 1000 if re.fullmatch("[0-9]{4,18}", start) else None
        return self._parser.parse(reply.body, eof_required="openmetrics" in reply.content_type, buckets=latencies)

    def _identify(
        self, model: str | None, page: MetricsPage, unsure: bool, begun_again: bool
    ) -> tuple[EngineIdentity, float]:
        """Return the engine's own identity, and the time of its report.

        `unsure`: its process may be another one, so no earlier identity counts. `begun_again`: it is the same and
        began again, so the earlier identity counts if it does not answer.
        """
        earlier, reported_s = self._identities.get(model, (None, 0.0))
        unsure = unsure or self._adapter.metrics_path is None
        label = next(iter(self._adapter.models(page)), None)
        if earlier is not None and label not in (None, earlier.served_model):
            earlier = None  # another model is served now
        believed_s = 0 if unsure or begun_again else MODEL_S if label is None else IDENTITY_S
        if earlier is not None and self._clock() - reported_s < believed_s:
            return earlier, reported_s
        try:
            identity = self._adapter.identify(lambda path: _json(self.endpoint.base_url + path, self._limits), page)
        except ScrapeError:
            if earlier is None or unsure:
                raise
            identity = earlier
        identity = replace(identity, served_model=label or identity.served_model)
        if identity.served_model is None:
            raise ScrapeError("no_model", f"{self.endpoint.base_url}: does not name the model it serves")
        return identity, self._clock()

    def _files(self, path: str | None) -> Checkpoint:
        """Return the facts in the model's files, read once in the life of a process; none for another host's."""
        pid = self.endpoint.pid
        if path is None or pid is None:
            return Checkpoint()
        key = (path, pid, self.endpoint.process_start_ms)
        if self._checkpoint[0] != key:
            self._checkpoint = key, read_checkpoint(path, pid)
        return self._checkpoint[1]

    def late(self, reason: str = "still being read") -> tuple[EngineReading, ...]:
        """Return the readings while a read is under way, or put off."""
        return self._faults(f"{self._url}: {reason}", LATE, REMEDIES["timeout"])

    def failed(self, error: Exception) -> tuple[EngineReading, ...]:
        """Return the readings for a read that ended in a defect of this program."""
        return self._fault(ScrapeError("agent", f"{self._url}: it could not be read: {type(error).__name__}: {error}"))

    def _fault(self, error: ScrapeError) -> tuple[EngineReading, ...]:
        # A look at all processes is expensive: a process that only hangs is watched, and the next look sees others.
        self._unsure = self._unsure or error.kind not in ("timeout", "several_servers")
        remedy = self._adapter.metrics_off if error.kind == "metrics_off" else REMEDIES[error.kind]
        if error.kind == "metrics_off" and (reason := self.endpoint.knobs.get(TOPOLOGY)):
            remedy = f"{remedy}; {reason}"
        return self._faults(error.message, error.kind, remedy)

    def _faults(self, fault: str, kind: str, remedy: str) -> tuple[EngineReading, ...]:
        return tuple(
            EngineReading(replace(self.endpoint, model=model), fault=fault, fault_kind=kind, remedy=remedy)
            for model in self._identities or (None,)
        )


def _uncounted_transfers(knobs: Mapping[str, object], counters: Collection[str]) -> tuple[Unavailable, ...]:
    """Return the gap of a server that may receive prompts computed by another one, and does not count them."""
    counted = any(series.startswith("transferred_tokens") for series in counters)
    if CONNECTOR not in knobs or counted or knobs.get("role") in ("prefill", "decode"):
        return ()
    reason = (
        f"{knobs[CONNECTOR]} may bring prompts that another server computed, and no series counts them: "
        "both servers then count such a prompt"
    )
    remedy = 'upgrade to vLLM 0.17 or newer, or give each its "kv_role": kv_producer or kv_consumer'
    return (Unavailable("transferred_tokens", "missing", reason, remedy),)


@cache
def _late(adapter: Adapter) -> tuple[Unavailable, ...]:
    reason = "counted when a request ends: exact over a window but for those still running at its two ends"
    counted = adapter.at_finish & {counter.name for counter in adapter.counters}
    return tuple(Unavailable(word, "late", reason) for word in sorted(counted))


def _started_ms(page: MetricsPage) -> int | None:
    """Return the start of the process that answers, as it reports it; None without a report, or with several."""
    reported = page.gauge(PROCESS_START)
    return round(1000 * next(iter(reported.values()))) if len(reported) == 1 else None


def _with_dtype(knobs: dict[str, object], files: Checkpoint) -> dict[str, object]:
    """Return the knobs, with the weight dtype that the checkpoint decides.

    A quantized checkpoint decides it alone: a dtype named beside it is of the activations. Another one is served as
    it is stored unless the engine's flags ask for another dtype; some engines narrow 32 bits. A flag with a dtype
    that is not known leaves it unknown.
    """
    if files.quantized:
        others = {name: value for name, value in knobs.items() if name != "weight_dtype"}
        return others if files.dtype is None else merged(others, {"weight_dtype": files.dtype})
    if files.dtype in ("bf16", "fp16") and "weight_dtype" not in undetermined(knobs):
        return {"weight_dtype": files.dtype, **knobs}
    return knobs


def kind_at(base_url: str, limits: RequestLimits) -> str | None:
    """Return the kind of engine at a base URL: by the names on its metrics page, else by the owner of its models.

    None if it is something else. Raises ScrapeError if nothing answers, or it answers that it cannot yet.
    """
    owner = _owner(base_url, limits)
    owned = next((adapter for adapter in ADAPTERS.values() if adapter.owned_by and adapter.owned_by == owner), None)
    refused: ScrapeError | None = None
    answered = owner is not None
    # A page that another engine must never be asked for comes last.
    adapters = sorted(ADAPTERS.values(), key=lambda adapter: adapter.never_read is None)
    for path in dict.fromkeys(adapter.metrics_path for adapter in adapters):
        if path is None or (owned and path == owned.never_read):
            continue
        try:
            page = get(base_url + path, limits).body.decode(errors="replace")
        except ScrapeError as error:
            if error.status is None:
                raise
            refused = error if refused is None or error.status != 404 else refused
            continue
        answered = True
        if _ROUTER_PAGE.search(page):
            message = f"{base_url}: is a router; its servers count the tokens, and run where an agent finds them"
            raise ScrapeError("router", message)
        for adapter in ADAPTERS.values():
            if adapter.metrics_path == path and adapter.marks.search(page):
                return adapter.kind
    greeted = owned or _greeted(base_url, limits)
    if greeted is None and refused is not None and not answered:
        raise refused
    return greeted.kind if greeted else None


def _greeted(base_url: str, limits: RequestLimits) -> Adapter | None:
    """Return the engine that answers a path of its own with its greeting."""
    for adapter in ADAPTERS.values():
        if adapter.greeting is not None:
            path, pattern = adapter.greeting
            try:
                answer = get(base_url + path, limits).body.decode(errors="replace")
            except ScrapeError as error:
                if error.status is None:
                    raise
                continue
            if pattern.search(answer):
                return adapter
    return None


def _owner(base_url: str, limits: RequestLimits) -> str | None:
    """Return the owner of the models at a base URL; None where nothing names one."""
    try:
        owner = pick(_json(f"{base_url}/v1/models", limits), "data", 0, "owned_by")
    except ScrapeError as error:
        if error.kind != "malformed":
            raise
        return None  # something that answers every path with a page of its own
    return owner if isinstance(owner, str) else None


def answers(base_url: str, limits: RequestLimits) -> str | None:
    """Return `kind_at`, or None for any program that does not answer as an engine: for ports that are only guessed."""
    try:
        return kind_at(base_url, limits)
    except ScrapeError:
        return None


def detect(base_url: str, limits: RequestLimits, processes: Callable[[], HostProcesses] = host_processes) -> Endpoint:
    """Return the endpoint a setting names, its kind found by asking, its process if it is one of this host.

    Raises ScrapeError if nothing answers there, or no engine that can be read.
    """
    kind = kind_at(base_url, limits)
    if kind is None:
        kinds = ", ".join(ADAPTERS)
        raise ScrapeError("malformed", f"{base_url}: answers, but as none of the engines that can be read ({kinds})")
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return locate(Endpoint(kind, base_url, "setting", port), processes())


def _json(url: str, limits: RequestLimits) -> object:
    """Return the JSON at `url`; None for any status but 200. Raises ScrapeError."""
    try:
        reply = get(url, limits)
    except ScrapeError as error:
        if error.status is not None:
            return None
        raise
    try:
        return json.loads(reply.body)
    except (ValueError, RecursionError):
        raise ScrapeError("malformed", f"{url}: not JSON") from None
