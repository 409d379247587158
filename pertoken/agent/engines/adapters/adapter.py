"""Table of one engine: how its processes look, the names of its counters, and how it reports its model."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePath
from typing import TypeVar

from pertoken.agent.readings import HistogramReading, Unavailable
from pertoken.agent.scrape import Labels, MetricsPage, PageError
from pertoken.metrics import ENGINE_TIMES

_M = TypeVar("_M", bound="Metric")
GetJson = Callable[[str], object]
"""GETs a path of the engine and returns the JSON; None for any status but 200. Raises ScrapeError otherwise."""


PROCESS_START = "process_start_time_seconds"
"""Gauge that servers of one process show by `prometheus_client` and its like: Unix time by their own clock."""
MILLISECOND = 1e-3
"""`Counter.unit` of seconds that are counted in milliseconds."""
TOKENS = ("prompt_tokens", "cached_tokens", "generated_tokens")


class PageOrigin(StrEnum):
    """Origin of the pages an adapter was tested on. Only the first is a real engine."""

    LIVE = "a live engine"
    COLLECTOR = "a page that its own collector classes wrote; untested against a live engine"
    DOCUMENTS = "a page written from its documents; untested against a live engine"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of `pertoken.metrics` and the engine's names for it, newest first: the first on a page is read.

    A histogram's name is without `_bucket`.
    """

    name: str
    engine_names: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()
    """Only series with these labels; `*` at the end of a value stands for any text."""
    parts: str | None = None
    """Label that is empty on the series of the total; series with a value of it repeat parts of the total."""


@dataclass(frozen=True, slots=True)
class Counter(Metric):
    """A counter; `_sum` of a histogram is one too."""

    reason: str | None = None
    """Label with the reason why a request ended."""
    unit: float = 1
    """The engine's units in one of ours: 1e-3 for seconds that become milliseconds."""
    elsewhere: tuple[tuple[str, str], ...] = ()
    """Labels of series that another server or another counter counts."""
    only_with: tuple[str, ...] = ()
    """Names of a sample without which a page's counter is not read."""
    unless: tuple[str, ...] = ()
    """Names of a sample with which a page's counter is not read: this one replaces it."""
    plus: tuple[str, ...] = ()
    """Names of samples with more of the same, by the same labels."""
    at_most: "tuple[Counter, ...]" = ()
    """Counters of parts of this one, with the same labels beside `where`: it counts no more than their sum."""


@dataclass(frozen=True, slots=True)
class EngineGauge(Metric):
    """A gauge, and how its series (data-parallel ranks) become one number."""

    combine: Callable[[Sequence[float]], float] = sum


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Identity that an engine reports."""

    served_model: str | None
    version: str | None = None
    model_path: str | None = None
    model_facts: dict[str, object] = field(default_factory=dict)
    knobs: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _PageSeries:
    """Series of a page that are read: each metric with its name on the page, and its copies there by our series."""

    counters: tuple[tuple[Counter, str, Mapping[str, Sequence[Labels]]], ...]
    gauges: tuple[tuple[EngineGauge, str, Mapping[str, Sequence[Labels]]], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One engine, as a table."""

    kind: str
    tested_on: PageOrigin
    """Origin of the pages of its tests."""
    source: str
    """Where its names come from, and as of when."""
    marks: re.Pattern[str]
    """Pattern that only pages of this engine match; searched in the whole page."""
    identify: Callable[[GetJson, MetricsPage], EngineIdentity]
    metrics_off: str
    """Advice to people when the page has no counters."""
    recognises: Callable[[Sequence[str]], bool]
    """Whether a command line is that of a server of this engine."""
    metrics_path: str | None = "/metrics"
    """None: it has no metrics page; `identify` is called at each tick instead."""
    metrics_off_status: int | None = None
    """Status of the metrics page when metrics are switched off."""
    router_status: int | None = None
    """Status of that page at a router: its servers have pages of their own."""
    asleep: tuple[str, str, re.Pattern[str]] | None = None
    """Path and member of JSON that show an engine asleep which its metrics page keeps awake, and the versions that
    have no such page any more."""
    greeting: tuple[str, re.Pattern[str]] | None = None
    """Path, and text there that names it where neither a page nor an owner of models does."""
    never_read: str | None = None
    """Path that looks like the metrics page, but drops values when it is read."""
    counters: tuple[Counter, ...] = ()
    gauges: tuple[EngineGauge, ...] = ()
    histograms: tuple[Metric, ...] = ()
    at_finish: frozenset[str] = frozenset()
    """Counters that rise in one step when a request finishes, so that they lag over windows as short as requests."""
    absent_is_zero: bool = False
    """Whether token counters are missing from the page until they have counted, while other series are there."""
    never_counted: tuple[str, ...] = ()
    """Counters of events that do not happen: they have no series and are 0."""
    no_tokens: Unavailable | None = None
    """Why it counts no tokens, and how to have them counted; a page that counts some all the same is read."""
    model_label: str | None = "model_name"
    """Label of its series that names the served model."""
    copies: frozenset[str] = frozenset()
    """Labels that distinguish copies of one count: the largest copy counts."""
    stages: tuple[str, ...] = ()
    """Labels that name the stages of one request: tokens, requests and latencies are of the first one."""
    staged: tuple[str, ...] = ()
    """Names of samples of a page of stages: `engine` numbers them there where no label of `stages` does."""
    owned_by: str | None = None
    """Value of `owned_by` in its `/v1/models`."""
    info: tuple[str, ...] = ()
    """Further series of the page that `identify` reads."""
    library: re.Pattern[str] | None = None
    """Library file by which a process is recognised if its command line shows no sign of the engine."""
    shared: bool = False
    """Whether its command line fits other programs too: a process counts only if it answers as this engine."""
    limits: str | None = None
    """The limits of its numbers, as a sentence."""
    several: bool = False
    """Whether its page may have series of several models; each model is read as one engine."""

    @property
    def no_time(self) -> Unavailable | None:
        """Why its busy time is unknown, where it counts no time."""
        if any(metric.name in ENGINE_TIMES for metric in self.counters):
            return None
        remedy = self.no_tokens.remedy if self.no_tokens else None
        return Unavailable("busy", "missing", f"{self.kind} exposes no time that its engine worked", remedy)

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all series read from a page."""
        return frozenset({name for _, name in self._named()} | {*self.info, *self.staged, PROCESS_START})

    def counters_of(self, page: MetricsPage) -> dict[str, int]:
        """Return counters of the page, keyed as in `readings.EngineReading`; empty if it has none of its series.

        Raises PageError for values a counter cannot have.
        """
        counters: dict[str, int] = {}
        for metric, name, series in self._series_of(page).counters:
            try:
                counts = page.counter(name, metric.unit)
            except PageError:
                if metric.name not in ENGINE_TIMES:
                    raise
                continue  # a sum of seconds that is no number leaves busy time unknown, not the tokens
            for further in (name for name in metric.plus if name in page.samples):
                more = page.counter(further, metric.unit)
                counts = {labels: count + more.get(labels, 0) for labels, count in counts.items()}
            if metric.at_most:
                counts = _limited(page, metric, counts)
            for key, copies in series.items():
                counters[key] = max((counts[copy] for copy in copies), default=0)
        counters |= dict.fromkeys(self.never_counted if counters else (), 0)
        if self.absent_is_zero and (counters or self.gauges_of(page)):
            counters |= dict.fromkeys(self._not_yet(page, counters), 0)
        return counters

    def gauges_of(self, page: MetricsPage) -> dict[str, float]:
        """Return gauges of the page by our names."""
        gauges: dict[str, float] = {}
        for gauge, name, series in self._series_of(page).gauges:
            values = page.gauge(name)
            gauge_values = [
                max(on_page)
                for copies in series.values()
                if (on_page := [values[copy] for copy in copies if copy in values])
            ]
            if gauge_values:
                gauges[gauge.name] = gauge.combine(gauge_values)
        return gauges

    def histograms_of(self, page: MetricsPage) -> dict[str, HistogramReading]:
        """Return histograms of the page by our names. Raises PageError for buckets that a histogram cannot have."""
        histograms: dict[str, HistogramReading] = {}
        for name, series in page.layout.once((self, "histograms"), lambda: self._series_of_histograms(page)):
            buckets = page.histogram(name)
            for key, copies in series.items():
                if copies:
                    histograms[key] = HistogramReading(*max((buckets[copy] for copy in copies), key=_observations))
        return histograms

    def models(self, page: MetricsPage) -> tuple[str, ...]:
        """Return names of the models that the page's series are of."""
        return page.layout.once((self, "models"), lambda: self._models(page))

    def _models(self, page: MetricsPage) -> tuple[str, ...]:
        labels_seen = {
            text(dict(labels).get(self.model_label or ""))
            for metric, name in self._named()
            for labels in page.samples.get(name, {})
            if _has(labels, metric.where)
        }
        return tuple(sorted(name for name in labels_seen if name is not None))

    def _named(self) -> Iterator[tuple[Metric, str]]:
        """Yield every metric with each of the samples it may be read from."""
        limits = (limit for counter in self.counters for limit in counter.at_most)
        for metric in (*self.counters, *limits, *self.gauges):
            yield from ((metric, name) for name in metric.engine_names)
            if isinstance(metric, Counter):
                yield from ((metric, name) for name in (*metric.plus, *metric.only_with, *metric.unless))
        for metric in self.histograms:
            yield from ((metric, f"{name}_bucket") for name in metric.engine_names)

    def _not_yet(self, page: MetricsPage, counters: Mapping[str, int]) -> Iterator[str]:
        """Yield token counters that are missing only because they have not counted yet."""
        on_page = {metric.name for metric, _ in _present(page, self.counters)}
        finished = any(value for series, value in counters.items() if series.startswith("requests_finished"))
        for name in {counter.name for counter in self.counters}.intersection(TOKENS) - on_page:
            if not finished or (name == "cached_tokens" and "prompt_tokens" in on_page):
                yield name

    def _later_stages(self, page: MetricsPage) -> frozenset[tuple[str, str]]:
        """Return the labels on a page of stages to which another one hands a request on."""
        if not self.stages:
            return frozenset()
        series = (labels for _, name in _present(page, self.counters) for labels in page.samples[name])
        pairs = {pair for labels in series for pair in labels}
        staged = any(name in page.samples for name in self.staged)
        label = next(
            (name for name in self.stages if any(name == key for key, _ in pairs)), "engine" if staged else None
        )
        values = {value for key, value in pairs if key == label}
        first = _first_stage(values)
        return frozenset((str(label), value) for value in values if first is not None and value != first)

    def _series_of(self, page: MetricsPage) -> _PageSeries:
        return page.layout.once(self, lambda: self._page_series(page))

    def _page_series(self, page: MetricsPage) -> _PageSeries:
        stages = self._later_stages(page)
        return _PageSeries(
            counters=tuple(
                (metric, name, self._copies(metric, page.samples[name], stages))
                for metric, name in _present(page, self.counters)
                if _is_read(metric, page)
            ),
            gauges=tuple(
                (metric, name, self._copies(metric, page.samples[name])) for metric, name in _present(page, self.gauges)
            ),
        )

    def _series_of_histograms(self, page: MetricsPage) -> tuple[tuple[str, Mapping[str, Sequence[Labels]]], ...]:
        stages = self._later_stages(page)
        return tuple(
            (name, self._copies(metric, page.histogram(name), stages))
            for metric, name in _present(page, self.histograms, "_bucket")
        )

    def _copies(
        self, metric: Metric, candidates: Iterable[Labels], stages: frozenset[tuple[str, str]] = frozenset()
    ) -> dict[str, list[Labels]]:
        """Return copies on the page by our series: they differ only in `copies` and are not counted elsewhere."""
        reason, elsewhere = (metric.reason, metric.elsewhere) if isinstance(metric, Counter) else (None, ())
        stages = frozenset() if metric.name in ENGINE_TIMES else stages
        series: dict[str, list[Labels]] = {}
        for labels in candidates:
            if _has(labels, metric.where) and not dict(labels).get(metric.parts or ""):
                kept = tuple(pair for pair in labels if pair[0] not in self.copies)
                copies = series.setdefault(metric.name + _braces(kept, reason), [])
                if not stages.intersection(labels) and not set(elsewhere) & set(kept):
                    copies.append(labels)
        return series


def renamed(adapter: Adapter, rename: Callable[[str], tuple[str, ...]]) -> Adapter:
    """Return the adapter with other names for the same series: `rename` gives the names of one, newest first."""

    def all_names(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new_name for name in names for new_name in rename(name))

    def metrics_of(metrics: tuple[_M, ...]) -> tuple[_M, ...]:
        return tuple(replace(metric, engine_names=all_names(metric.engine_names)) for metric in metrics)

    def counters_of(counters: tuple[Counter, ...]) -> tuple[Counter, ...]:
        return tuple(
            replace(
                counter,
                plus=all_names(counter.plus),
                only_with=all_names(counter.only_with),
                unless=all_names(counter.unless),
                at_most=counters_of(counter.at_most),
            )
            for counter in metrics_of(counters)
        )

    return replace(
        adapter,
        counters=counters_of(adapter.counters),
        gauges=metrics_of(adapter.gauges),
        histograms=metrics_of(adapter.histograms),
    )


def invocation(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the program a command line runs, and its arguments; a Python script or module counts as the program.

    `python -u -m a.b x` is (`a.b`, (`x`,)); `/bin/python /bin/vllm serve` is (`vllm`, (`serve`,)).
    """
    return _invocation(tuple(argv))


@lru_cache(maxsize=1024)  # every adapter asks it of every process: two thirds of what a look for engines cost
def _invocation(argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    if not argv:
        return "", ()
    program = PurePath(argv[0]).name
    if not re.fullmatch(r"python[0-9.]*", program):
        return program, argv[1:]
    words = argv[1:]
    while words and words[0].startswith("-"):
        if words[0] == "-m":
            return "".join(words[1:2]), words[2:]
        words = words[2 if words[0] in ("-X", "-W") else 1 :]
    return PurePath(*words[:1]).name, words[1:]


def runs(*programs: str, command: tuple[str, ...] = ()) -> Callable[[Sequence[str]], bool]:
    """Return the test whether a command line runs one of these programs with this command."""

    def is_run(argv: Sequence[str]) -> bool:
        program, arguments = invocation(argv)
        return program in programs and arguments[: len(command)] == command

    return is_run


def identify_by_models(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    """Return the first model of `/v1/models`."""
    return EngineIdentity(served_model=text(pick(get_json("/v1/models"), "data", 0, "id")))


def pick(document: object, *path: str | int) -> object:
    """Return the value at `path` in parsed JSON; None where the document has another shape."""
    for step in path:
        if isinstance(step, str) and isinstance(document, dict):
            document = document.get(step)
        elif isinstance(step, int) and isinstance(document, list) and len(document) > step:
            document = document[step]
        else:
            return None
    return document


def adapters_of(models: object) -> list[str] | None:
    """Return the names of the LoRA adapters in an answer of `/v1/models`: models with a parent; None for no answer.

    Source: vllm.entrypoints.openai.models.serving (0.32.0), where a base model and its further names have no parent.
    """
    listed = pick(models, "data")
    if not isinstance(listed, list):
        return None
    return sorted(name for row in listed if text(pick(row, "parent")) and (name := text(pick(row, "id"))))


def text(value: object) -> str | None:
    """Return the value if it is text and not blank."""
    return value if isinstance(value, str) and value not in ("", "None", "undefined") else None


def positive(value: object) -> int | None:
    """Return the value if it is a whole number above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _present(page: MetricsPage, metrics: Sequence[_M], suffix: str = "") -> Iterator[tuple[_M, str]]:
    for metric in metrics:
        name = next((name for name in metric.engine_names if name + suffix in page.samples), None)
        if name is not None:
            yield metric, name


def _has(labels: Labels, where: Iterable[tuple[str, str]]) -> bool:
    """Return whether a series has all labels of `where`."""
    values = dict(labels)
    return all(
        name in values and (values[name] == value or (value.endswith("*") and values[name].startswith(value[:-1])))
        for name, value in where
    )


def _is_read(counter: Counter, page: MetricsPage) -> bool:
    """Return whether the other samples of a page permit to read a counter."""
    if any(name in page.samples for name in counter.unless):
        return False
    return not counter.only_with or any(name in page.samples for name in counter.only_with)


def _limited(page: MetricsPage, counter: Counter, counts: Mapping[Labels, int]) -> dict[Labels, int]:
    """Return the counts of a counter, each at most the sum of its parts on the page."""
    limits = [
        (limit.where, page.counter(name, limit.unit))
        for limit, name in _present(page, counter.at_most)
        if _is_read(limit, page)
    ]

    def limit_of(labels: Labels) -> int:
        rest = set(labels) - set(counter.where)
        return sum(parts.get(tuple(sorted({*rest, *where})), 0) for where, parts in limits)

    return {labels: min(count, limit_of(labels)) for labels, count in counts.items()}


def _first_stage(values: set[str]) -> str | None:
    """Return the stage that gets the request: the lowest number, or the thinker; None where neither is known."""
    numbers = {value: int(digits[0]) for value in values if (digits := re.search("[0-9]{1,9}$", value))}
    if numbers and len(numbers) == len(values):
        return min(numbers, key=numbers.__getitem__)
    return "thinker" if "thinker" in values else None


def _observations(histogram: tuple[tuple[float, ...], tuple[int, ...]]) -> int:
    return sum(histogram[1])


def _braces(labels: Labels, reason: str | None = None) -> str:
    renamed_labels = sorted(("reason" if name == reason else name, value) for name, value in labels)
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in renamed_labels)
    return f"{{{pairs}}}" if pairs else ""
