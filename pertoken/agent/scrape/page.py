"""Prometheus text pages: only the wanted series of a page, or the reason why the page cannot be trusted.

Reads `text/plain` 0.0.4 and 1.0.0 and OpenMetrics 1.0, whose `# EOF` it requires on request. Every line is checked: a
truncated page is rejected, because counters of a partial page would be billed. Labels and values are read only of
wanted series.

Sample names are taken exactly as exposed, so `*_created` gauges never count as their family.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from math import inf, nan
from operator import ne, sub
from typing import Any, TypeVar

T = TypeVar("T")
Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""


MAX_VALUE = 10**18
"""No counter or gauge is larger; a column of the store holds nine times as much."""


class PageError(Exception):
    """The page breaks its format, or holds a value that a counter cannot have."""


class Layout:
    """Series of a page: the same object for as long as the pages of a server have the same ones."""

    def __init__(self) -> None:
        self._results: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the result of `compute`, which depends on the series alone and so is computed once."""
        if key not in self._results:
            self._results[key] = compute()
        result: T = self._results[key]
        return result


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted series of one page, by sample name and labels."""

    samples: dict[str, dict[Labels, float]]
    layout: Layout = field(default_factory=Layout, compare=False)

    def only(self, label: str, value: str) -> "Page":
        """Return the series with this label."""
        pair = (label, value)
        samples = {name: {k: v for k, v in series.items() if pair in k} for name, series in self.samples.items()}
        return Page({name: series for name, series in samples.items() if series}, self.layout.once(pair, Layout))

    def gauge(self, name: str) -> dict[Labels, float]:
        """Return values of one gauge, without NaN and infinities, which engines write for *nothing to report*.

        Values that no gauge of ours can have are left out too.
        """
        return {labels: value for labels, value in self.samples.get(name, {}).items() if 0 <= value <= MAX_VALUE}

    def counter(self, name: str, unit: float = 1) -> dict[Labels, int]:
        """Return values of one counter in units of `unit` of the page's, rounded to whole counts.

        Raises PageError for a negative, non-finite or impossibly large one: leaving that series out would make the
        sum over the others a wrong number.
        """
        series = self.samples.get(name, {})
        counts = _counts(name, [value / unit for value in series.values()])
        if len(counts) > 1:
            _counts(name, [sum(counts)])
        return dict(zip(series, counts, strict=True))

    def histogram(self, name: str) -> dict[Labels, tuple[tuple[float, ...], tuple[int, ...]]]:
        """Return upper bounds (without +Inf) and non-cumulative counts (with it, one more) of one histogram, by labels.

        Raises PageError for a set of buckets without +Inf or whose cumulative counts fall.
        """
        bucket = f"{name}_bucket"
        series = self.samples.get(bucket, {})
        by_labels = {}
        for labels, ladder in self.layout.once(bucket, lambda: _ladders(bucket, series)).items():
            cumulative = _counts(bucket, [series[step] for step in ladder.steps])
            for step, repeated in ladder.repeated:
                if _counts(bucket, [series[repeated]]) != [cumulative[step]]:
                    raise PageError(f"{bucket}: two counts for le={(*ladder.bounds, inf)[step]!r}")
            counts = tuple(map(sub, cumulative, (0, *cumulative)))
            if min(counts) < 0:
                raise PageError(f"{bucket}: cumulative counts fall from one bucket to the next")
            by_labels[labels] = (ladder.bounds, counts)
        return by_labels


Sample = tuple[str, Labels, float]
_Series = tuple[str, Labels]


class Parser:
    """Reads successive pages of one server, and takes the samples whose names are in `wanted`.

    A page usually has the lines of the previous page with other numbers: then only those are read.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._lines: list[str] = []
        """Lines of the previous page; none if the next page must be read from its start."""
        self._heads: list[tuple[str, _Series | None]] = []
        """Text before the number of each line ("" if the line must stay as it is), and its series, if wanted."""
        self._page = Page({})
        self._ended = False

    def parse(self, body: bytes, *, eof_required: bool = False, buckets: bool = True) -> Page:
        """Return one page; without `buckets` it has no series of histograms.

        Raises PageError, with the line, for anything that is not a whole, well-formed page; also for a wanted series
        given twice with different values.
        """
        try:
            lines = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise PageError(f"byte {error.start} is not UTF-8") from None
        page = self._with_new_numbers(lines) if self._ended or not eof_required else None
        page = page or self._from_start(lines, eof_required)
        if buckets:
            return page
        samples = {name: series for name, series in page.samples.items() if not name.endswith("_bucket")}
        return Page(samples, page.layout)

    def _with_new_numbers(self, lines: list[str]) -> Page | None:
        """Return the page if its lines are those of the previous page with other numbers."""
        if len(lines) != len(self._lines):
            return None
        numbers: list[str] = []
        changed: list[tuple[_Series, str]] = []
        for line, (head, series) in compress(zip(lines, self._heads, strict=True), map(ne, lines, self._lines)):
            if not head or not line.startswith(head):
                return None
            number = line[len(head) :]
            numbers.append(number)
            if series is not None:
                changed.append((series, number))
        if _PLAIN_NUMBERS("\n".join([*numbers, ""])) is None:
            return None
        previous = self._page.samples
        samples = dict(previous)
        for (name, labels), number in changed:
            if samples[name] is previous[name]:
                samples[name] = previous[name].copy()
            samples[name][labels] = float(number)
        self._lines, self._page = lines, Page(samples, self._page.layout)
        return self._page

    def _from_start(self, lines: list[str], eof_required: bool) -> Page:
        """Return the page by reading each of its lines. Raises PageError."""
        self._lines = []
        *complete_lines, rest = lines
        samples: dict[str, dict[Labels, float]] = {}
        heads: list[tuple[str, _Series | None]] = []
        ended = repeated = False
        for number, line in enumerate(complete_lines, 1):
            if ended and line:
                raise PageError(f"line {number}: text after # EOF")
            ended = ended or line == "# EOF"
            sample = _sample(line, number, self._wanted)
            head, blank, value = line.rpartition(" ")
            plain = _head(head) is not None and _PLAIN_NUMBER(value) is not None
            heads.append((head + blank if plain else "", sample and sample[:2]))
            if sample is None:
                continue
            name, labels, amount = sample
            series = samples.setdefault(name, {})
            repeated = repeated or labels in series
            first = series.setdefault(labels, amount)
            if first != amount and not (first != first and amount != amount):
                raise PageError(f"line {number}: {name} is given twice with these labels, as {first:g} and {amount:g}")
        if ended and rest:
            raise PageError(f"line {len(lines)}: text after # EOF")
        if rest.strip() and not rest.startswith("#"):
            raise PageError(f"line {len(lines)}: the page ends within a line")
        if (eof_required or rest) and not ended and rest != "# EOF":
            raise PageError(f"line {len(lines)}: the page ends before its end")
        self._page = Page(samples)
        if not repeated:
            self._lines, self._heads, self._ended = lines, [*heads, ("", None)], ended or rest == "# EOF"
        return self._page


def parse(body: bytes, wanted: Collection[str], *, eof_required: bool = False) -> Page:
    """Return the samples of a single page, as `Parser` reads it."""
    return Parser(wanted).parse(body, eof_required=eof_required)


def _sample(line: str, number: int, wanted: Collection[str]) -> Sample | None:
    """Return the sample of a line; None for a comment and for one that is not wanted. Raises PageError."""
    if line.startswith("#") or not line.strip():
        return None
    plain, _, value = line.rpartition(" ")
    head = _head(plain)
    if head is None or _PLAIN_NUMBER(value) is None:
        match = _SAMPLE.fullmatch(line)
        if match is None or (match["name"] is None and match["braces"] is None):
            raise PageError(f"line {number}: not a sample: {line[:80]!r}")
        head, value = (match["name"], match["braces"] or ""), match["value"]
    name, braces = head
    if name is None:
        name, braces = _quoted_name(braces, number)
    if name not in wanted:
        return None
    labels = _labels(braces) if braces else ()
    if labels is None:
        raise PageError(f"line {number}: bad labels {braces[:80]!r}")
    return name, labels, float(value)


_BRACES = r'\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}'
_NUMBER = r"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|[iI]nf(?:inity)?|[nN]a[nN])"
_SAMPLE = re.compile(
    rf"[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*+)?[ \t]*(?P<braces>{_BRACES})?"
    rf"(?:(?<=\}})|(?<=[ \t]))[ \t]*(?P<value>{_NUMBER})"
    rf"(?:[ \t]+-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)?"  # a timestamp
    rf"(?:[ \t]+\#[ \t]*{_BRACES}[ \t]+{_NUMBER}(?:[ \t]+{_NUMBER})?)?[ \t]*"  # an exemplar
)
_PLAIN_HEAD = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*+)({_BRACES})?").fullmatch
_PLAIN_NUMBER = re.compile(_NUMBER).fullmatch
_PLAIN_NUMBERS = re.compile(rf"(?:{_NUMBER}\n)*+").fullmatch
"""Each on a line: hundreds at once cost a fifth of what they cost one by one."""
_STRING = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|{_STRING})[ \t]*=[ \t]*{_STRING}[ \t]*(?:,|$)")
_QUOTED_NAME = re.compile(rf"[ \t]*{_STRING}[ \t]*(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")
CACHED_SERIES = 8192
"""Heads and labels that are cached for pages read from their start."""


@lru_cache(CACHED_SERIES)
def _head(head: str) -> tuple[str, str] | None:
    """Return name and braces of a line up to its number; None if only the whole grammar can decide."""
    match = _PLAIN_HEAD(head)
    return (match[1], match[2] or "") if match else None


@lru_cache(CACHED_SERIES)
def _labels(braces: str) -> Labels | None:
    """Return sorted label pairs; None if they are not well-formed."""
    inside = braces[1:-1].rstrip(" \t")
    pairs: dict[str, str] = {}
    position = 0
    while position < len(inside):
        match = _LABEL.match(inside, position)
        name = match and (match[1] if match[2] is None else _unescaped(match[2]))
        if match is None or name is None or name in pairs:
            return None
        pairs[name] = _unescaped(match[3])
        position = match.end()
    return tuple(sorted(pairs.items()))


def _quoted_name(braces: str, number: int) -> tuple[str, str]:
    match = _QUOTED_NAME.match(braces[1:-1])
    if match is None:
        raise PageError(f"line {number}: a sample without a name")
    return _unescaped(match[1]), "{" + braces[1 + match.end() :]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text) if "\\" in text else text


def _counts(name: str, values: Collection[float]) -> list[int]:
    for value in values:
        if not 0 <= value <= MAX_VALUE:
            raise PageError(f"{name} is {value:g}, which a counter cannot be")
    return list(map(round, values))


@dataclass(frozen=True, slots=True)
class _Ladder:
    """One set of rising buckets."""

    bounds: tuple[float, ...]
    """Upper bounds without +Inf."""
    steps: tuple[Labels, ...]
    """Series of each bucket."""
    repeated: tuple[tuple[int, Labels], ...]
    """Series that repeat a bucket, with its position."""


def _ladders(name: str, series: Iterable[Labels]) -> dict[Labels, _Ladder]:
    """Return the sets of buckets among these series by their other labels. Raises PageError."""
    sets: dict[Labels, dict[float, list[Labels]]] = {}
    for labels in series:
        set_labels = tuple(pair for pair in labels if pair[0] != "le")
        try:
            bound = float(dict(labels)["le"])
        except (KeyError, ValueError):
            bound = nan
        if bound != bound:
            raise PageError(f"{name}: a bucket without a numeric le: {dict(labels)}")
        sets.setdefault(set_labels, {}).setdefault(bound, []).append(labels)
    if any(inf not in buckets for buckets in sets.values()):
        raise PageError(f"{name}: no +Inf bucket")
    ladders = {}
    for set_labels, buckets in sets.items():
        bounds = sorted(buckets)
        steps = tuple(buckets[bound][0] for bound in bounds)
        repeated = tuple((step, labels) for step, bound in enumerate(bounds) for labels in buckets[bound][1:])
        ladders[set_labels] = _Ladder(tuple(bounds[:-1]), steps, repeated)
    return ladders
