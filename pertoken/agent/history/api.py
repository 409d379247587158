"""The query API of a Prometheus server: ranges of series, within a time and a size.

Only the URL that a person named is contacted. Source: Prometheus HTTP API, /api/v1/query_range (2.42 and 3.x).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from pertoken.agent.scrape.http import ACCEPT, Limits, ScrapeError, fetch
from pertoken.errors import BadInput

Labels = Mapping[str, str]
_LIMITS = (413, 422, 503, 504)
"""Statuses of a query that loads too many samples or takes too long, of Prometheus, Thanos, Mimir, VictoriaMetrics and
proxies before them. 422 is also that of a query that cannot be executed: then its single steps fail too."""
MAX_POINTS = 11_000
"""Points of a series that Prometheus returns at most for one query."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series over a range: its labels, its name among them as `__name__`, and a value for each step."""

    labels: Labels
    values: Sequence[float | None]
    """None where Prometheus has no sample of the five minutes before the step."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Instants at which series are read: `count` of them from `start`, `step_s` apart."""

    start: int
    count: int
    step_s: int

    @property
    def end(self) -> int:
        """The last instant."""
        return self.start + (self.count - 1) * self.step_s

    def halves(self) -> tuple["Steps", "Steps"]:
        """Return the first and the second half. Raises ValueError for a single step."""
        half = self.count // 2
        if not half:
            raise ValueError("a single step has no halves")
        later = Steps(self.start + half * self.step_s, self.count - half, self.step_s)
        return Steps(self.start, half, self.step_s), later


class PrometheusApi:
    """One Prometheus server (or one that speaks its API: Thanos, Mimir, VictoriaMetrics)."""

    def __init__(self, url: str, limits: Limits, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._limits = limits
        self._headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", **(headers or {})}

    def ranges(self, query: str, steps: Steps) -> list[Series]:
        """Return all series of a query; one that is too large for the server, or here, is asked for in two halves.

        Raises BadInput where the server cannot be read, or answers with something else.
        """
        if steps.count > MAX_POINTS:
            return self._by_halves(query, steps)
        try:
            return list(self._read(query, steps))
        except ScrapeError as error:
            if (error.kind == "too_large" or error.status in _LIMITS) and steps.count > 1:
                return self._by_halves(query, steps)
            raise BadInput(f"{error.message}; {_remedy(error)}") from None

    def _by_halves(self, query: str, steps: Steps) -> list[Series]:
        """Return the series of a range that is asked for in two."""
        before, after = steps.halves()
        return _joined(before.count, self.ranges(query, before), after.count, self.ranges(query, after))

    def _read(self, query: str, steps: Steps) -> Iterator[Series]:
        asked = urlencode({"query": query, "start": steps.start, "end": steps.end, "step": steps.step_s})
        body = fetch("GET", f"{self.url}/api/v1/query_range?{asked}", self._limits, self._headers).body
        try:
            document = json.loads(body)
            results = document["data"]["result"] if document["status"] == "success" else None
            if results is None or document["data"]["resultType"] != "matrix":
                raise ValueError("no matrix")
            for result in results:
                values: list[float | None] = [None] * steps.count
                for ts, value in result["values"]:
                    at, rest = divmod(round(ts) - steps.start, steps.step_s)
                    if not rest and 0 <= at < steps.count:
                        values[at] = float(value)
                yield Series(dict(result["metric"]), values)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ScrapeError("malformed", f"{self.url}: does not answer as the query API of Prometheus does") from None


def _joined(before: int, first: Sequence[Series], after: int, second: Sequence[Series]) -> list[Series]:
    """Return the series of two ranges of these lengths in steps, one after the other, as series of the whole."""
    whole: dict[tuple[tuple[str, str], ...], tuple[Labels, list[float | None]]] = {}
    for at, part in ((0, first), (before, second)):
        for item in part:
            _, values = whole.setdefault(tuple(sorted(item.labels.items())), (item.labels, [None] * (before + after)))
            values[at : at + len(item.values)] = item.values
    return [Series(labels, values) for labels, values in whole.values()]


def _remedy(error: ScrapeError) -> str:
    if error.kind == "access":
        return (
            "name its token by --token-file or --token-env, its tenant by --header 'X-Scope-OrgID: NAME', and its "
            "certificate's authority by --ca-file"
        )
    if error.kind == "too_large":
        return "one step of all its series is larger: raise --reply-limit-mb, or narrow them by --match"
    if error.kind == "timeout":
        return "raise --timeout, or narrow what is read by --match"
    if error.status == 400 or error.status == 422:
        return "it refused the query, also for a single step: check --match"
    if error.status == 429:
        return "it limits how often it is asked: try again later"
    return "check that the URL is that of a Prometheus server (http://prometheus:9090)"
