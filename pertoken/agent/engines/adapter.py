"""What an engine is to us: how its processes look, what it names its counters, and whom it says it serves."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from pertoken.agent.page import Labels, Page
from pertoken.agent.readings import HistogramReading

Ask = Callable[[str], object]
"""GETs a path of the engine and returns the JSON; None for any status but 200. Raises ScrapeError otherwise."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One of our words and the engine's names for it, newest first: the first that is on a page is taken.

    A histogram's name is without `_bucket`.
    """

    word: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gauge(Metric):
    """A gauge, and how its series (data-parallel ranks) become one number."""

    combine: Callable[[Sequence[float]], float] = sum


@dataclass(frozen=True, slots=True)
class Identity:
    """What an engine says of itself."""

    served_model: str | None
    version: str | None = None
    model_path: str | None = None
    model_facts: dict[str, object] = field(default_factory=dict)
    knobs: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of one page in our words; see `readings.EngineReading` for the keys."""

    counters: dict[str, int]
    gauges: dict[str, float]
    histograms: dict[str, HistogramReading]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One engine, as a table."""

    kind: str
    prefix: str
    """Every metric of the engine begins so."""
    owned_by: str
    """What it calls the owner of its models in `/v1/models`."""
    counters: tuple[Metric, ...]
    gauges: tuple[Gauge, ...]
    histograms: tuple[Metric, ...]
    identify: Callable[[Ask, Page], Identity]
    metrics_off: str
    """What to do when the page has no counters."""
    recognises: Callable[[Sequence[str]], bool]
    """Whether a command line is that of a server of this engine."""
    metrics_off_status: int | None = None
    """Status of the metrics page when metrics are switched off."""
    info: tuple[str, ...] = ()
    """Further series that `identify` wants of the page."""
    child_title: str | None = None
    """How the titles of its child processes begin, where they give themselves one."""
    library: re.Pattern[str] | None = None
    """File mapped into a process that serves it without saying so on its command line."""

    @property
    def wanted(self) -> frozenset[str]:
        """Names of all series read from a page."""
        plain = {name for metric in (*self.counters, *self.gauges) for name in metric.names}
        buckets = {f"{name}_bucket" for metric in self.histograms for name in metric.names}
        return frozenset(plain | buckets | set(self.info))

    def read(self, page: Page) -> Values:
        """The page in our words.

        Raises PageError for values a counter or a histogram cannot have.
        """
        counters = {
            word + _braces(labels): value
            for word, name in _present(page, self.counters)
            for labels, value in page.counter(name).items()
        }
        gauges = {}
        for gauge in self.gauges:
            for _, name in _present(page, (gauge,)):
                if values := list(page.gauge(name).values()):
                    gauges[gauge.word] = gauge.combine(values)
        histograms = {
            word + _braces(labels): HistogramReading(*buckets)
            for word, name in _present(page, self.histograms, "_bucket")
            for labels, buckets in page.histogram(name).items()
        }
        return Values(counters, gauges, histograms)


def invocation(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The program a command line runs, and its arguments; a Python script or module counts as the program.

    `python -u -m a.b x` is (`a.b`, (`x`,)); `/bin/python /bin/vllm serve` is (`vllm`, (`serve`,)).
    """
    if not argv:
        return "", ()
    program = PurePath(argv[0]).name
    if not re.fullmatch(r"python[0-9.]*", program):
        return program, tuple(argv[1:])
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-m":
            return (argv[at + 1] if at + 1 < len(argv) else ""), tuple(argv[at + 2 :])
        at += 2 if argv[at] in ("-X", "-W") else 1
    return (PurePath(argv[at]).name if at < len(argv) else ""), tuple(argv[at + 1 :])


def pick(document: object, *path: str | int) -> object:
    """What lies at `path` in parsed JSON: None where the document has another shape."""
    for step in path:
        if isinstance(step, str) and isinstance(document, dict):
            document = document.get(step)
        elif isinstance(step, int) and isinstance(document, list) and len(document) > step:
            document = document[step]
        else:
            return None
    return document


def text(value: object) -> str | None:
    """The value if it is text that says something."""
    return value if isinstance(value, str) and value not in ("", "None") else None


def positive(value: object) -> int | None:
    """The value if it is a whole number above 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _present(page: Page, metrics: Sequence[Metric], suffix: str = "") -> Iterator[tuple[str, str]]:
    for metric in metrics:
        name = next((name for name in metric.names if name + suffix in page.samples), None)
        if name is not None:
            yield metric.word, name


def _braces(labels: Labels) -> str:
    pairs = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""
