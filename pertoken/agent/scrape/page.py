"""Prometheus text pages: only the wanted series of a page, or the reason why the page cannot be trusted.

Reads `text/plain` 0.0.4 and 1.0.0 and OpenMetrics 1.0 (whose `# EOF` it demands where asked to). Every line is
checked, since a page cut or mixed up anywhere is not a page to bill by; labels and values are read only where
wanted. Between two pages that are read so, of one with as many lines only the counters and gauges known are looked for:
a series that comes in the place of another line is seen by the next whole page, and counts from 0 then.

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


MOST = 10**18
"""No counter or gauge is larger; a column of the store holds nine times as much."""


class PageError(Exception):
    """The page breaks its format, or holds a value that a counter cannot have."""


class Layout:
    """Series of a page: the same object for as long as the pages of a server have the same ones."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def once(self, what: Hashable, work: Callable[[], T]) -> T:
        """Return the answer of `work`, which follows from the series alone and so is asked for once."""
        if what not in self._known:
            self._known[what] = work()
        answer: T = self._known[what]
        return answer


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
        """Return values of one gauge; NaN and infinities are left out, as an engine writes *nothing to report* so, and
        what no gauge of ours can be."""
        return {labels: value for labels, value in self.samples.get(name, {}).items() if 0 <= value <= MOST}

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
            for at, again in ladder.again:
                if _counts(bucket, [series[again]]) != [cumulative[at]]:
                    raise PageError(f"{bucket}: two counts for le={(*ladder.bounds, inf)[at]!r}")
            counts = tuple(map(sub, cumulative, (0, *cumulative)))
            if min(counts) < 0:
                raise PageError(f"{bucket}: cumulative counts fall from one bucket to the next")
            by_labels[labels] = (ladder.bounds, counts)
        return by_labels


Sample = tuple[str, Labels, float]
_Place = tuple[str, Labels]


class Parser:
    """Reads pages of one server, one after the other; of each it takes the samples whose names are in `wanted`.

    A page has nearly always the lines of the page before, but for their numbers: then only those are read.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._lines: list[str] = []
        """Those of the page before; none if the next one has to be read from its start."""
        self._places: list[tuple[str, _Place | None]] = []
        """For each line what stands before its number ("" if it must stay as it is), and whose that is, if wanted."""
        self._heads: list[tuple[bytes, _Place]] | None = None
        """What stands before the number of each wanted series that is no bucket, from the end of the line before; None
        if the page has to be read whole."""
        self._page = Page({})
        self._ended = False

    def parse(self, body: bytes, *, eof_required: bool = False, buckets: bool = True) -> Page:
        """Return one page.

        Without `buckets` it has none, and of a page of as many lines as the last one that was read whole only the
        other wanted series are looked at, in their order.

        Raises PageError, with the line, for anything that is not a whole, well-formed page; also for a wanted series
        given twice with different values.
        """
        page = None if buckets else self._counts_again(body, eof_required)
        if page is not None:
            return page
        try:
            lines = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise PageError(f"byte {error.start} is not UTF-8") from None
        page = self._again(lines) if self._ended or not eof_required else None
        page = page or self._from_start(lines, eof_required)
        return page if buckets else Page({n: s for n, s in page.samples.items() if not _of_buckets(n)}, page.layout)

    def _counts_again(self, body: bytes, eof_required: bool) -> Page | None:
        """Return the page without its buckets, if its lines seem to be those of the page before with other numbers."""
        if self._heads is None or body.count(b"\n") + 1 != len(self._lines) or eof_required > self._ended:
            return None
        if not body.endswith(b"\n# EOF\n" if self._ended else b"\n"):
            return None
        numbers, at = [], 0
        for head, _ in self._heads:
            start = body.find(head, at)
            if start < 0:
                return None
            at = body.index(b"\n", start + len(head))
            numbers.append(body[start + len(head) : at])
        if _PLAIN_BYTES(b"\n".join([*numbers, b""])) is None:
            return None
        samples: dict[str, dict[Labels, float]] = {}
        for (_, (name, labels)), number in zip(self._heads, numbers, strict=True):
            samples.setdefault(name, {})[labels] = float(number)
        return Page(samples, self._page.layout)

    def _again(self, lines: list[str]) -> Page | None:
        """Return the page, if its lines are those of the page before with other numbers."""
        if len(lines) != len(self._lines):
            return None
        numbers: list[str] = []
        places: list[tuple[_Place, str]] = []
        for line, (head, place) in compress(zip(lines, self._places, strict=True), map(ne, lines, self._lines)):
            if not head or not line.startswith(head):
                return None
            value = line[len(head) :]
            numbers.append(value)
            if place is not None:
                places.append((place, value))
        if _PLAIN_NUMBERS("\n".join([*numbers, ""])) is None:
            return None
        before = self._page.samples
        samples = dict(before)
        for (name, labels), value in places:
            if samples[name] is before[name]:
                samples[name] = before[name].copy()
            samples[name][labels] = float(value)
        self._lines, self._page = lines, Page(samples, self._page.layout)
        return self._page

    def _from_start(self, lines: list[str], eof_required: bool) -> Page:
        """Return the page, whatever was before it. Raises PageError."""
        self._lines, self._heads = [], None
        *whole, rest = lines
        samples: dict[str, dict[Labels, float]] = {}
        places: list[tuple[str, _Place | None]] = []
        ended = repeated = False
        for number, line in enumerate(whole, 1):
            if ended and line:
                raise PageError(f"line {number}: text after # EOF")
            ended = ended or line == "# EOF"
            sample = _sample(line, number, self._wanted)
            head, blank, value = line.rpartition(" ")
            plain = _head(head) is not None and _PLAIN_NUMBER(value) is not None
            places.append((head + blank if plain else "", sample and sample[:2]))
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
            self._lines, self._places, self._ended = lines, [*places, ("", None)], ended or rest == "# EOF"
            heads = [(f"\n{head}".encode(), place) for head, place in places if place and not _of_buckets(place[0])]
            self._heads = heads if all(len(head) > 1 for head, _ in heads) else None
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
_PLAIN_BYTES = re.compile(rf"(?:{_NUMBER}\n)*+".encode()).fullmatch
_STRING = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|{_STRING})[ \t]*=[ \t]*{_STRING}[ \t]*(?:,|$)")
_QUOTED_NAME = re.compile(rf"[ \t]*{_STRING}[ \t]*(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")
REMEMBERED = 8192
"""Series remembered for pages that are read from their start."""


@lru_cache(REMEMBERED)
def _head(head: str) -> tuple[str, str] | None:
    """Return name and braces of a line up to its number; None if only the whole grammar can decide."""
    match = _PLAIN_HEAD(head)
    return (match[1], match[2] or "") if match else None


@lru_cache(REMEMBERED)
def _labels(braces: str) -> Labels | None:
    """Return sorted label pairs; None if they are not well-formed."""
    inside = braces[1:-1].rstrip(" \t")
    pairs: dict[str, str] = {}
    at = 0
    while at < len(inside):
        match = _LABEL.match(inside, at)
        name = match and (match[1] if match[2] is None else _unescaped(match[2]))
        if match is None or name is None or name in pairs:
            return None
        pairs[name] = _unescaped(match[3])
        at = match.end()
    return tuple(sorted(pairs.items()))


def _quoted_name(braces: str, number: int) -> tuple[str, str]:
    match = _QUOTED_NAME.match(braces[1:-1])
    if match is None:
        raise PageError(f"line {number}: a sample without a name")
    return _unescaped(match[1]), "{" + braces[1 + match.end() :]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else m[1], text) if "\\" in text else text


def _of_buckets(name: str) -> bool:
    return name.endswith("_bucket")


def _counts(name: str, values: Collection[float]) -> list[int]:
    for value in values:
        if not 0 <= value <= MOST:
            raise PageError(f"{name} is {value:g}, which a counter cannot be")
    return list(map(round, values))


@dataclass(frozen=True, slots=True)
class _Ladder:
    """One set of buckets, rising: their upper bounds (without +Inf), the series of each, and what repeats one."""

    bounds: tuple[float, ...]
    steps: tuple[Labels, ...]
    again: tuple[tuple[int, Labels], ...]


def _ladders(name: str, series: Iterable[Labels]) -> dict[Labels, _Ladder]:
    """Return the sets of buckets among these series by their other labels. Raises PageError."""
    sets: dict[Labels, dict[float, list[Labels]]] = {}
    for labels in series:
        others = tuple(pair for pair in labels if pair[0] != "le")
        try:
            bound = float(dict(labels)["le"])
        except (KeyError, ValueError):
            bound = nan
        if bound != bound:
            raise PageError(f"{name}: a bucket without a numeric le: {dict(labels)}")
        sets.setdefault(others, {}).setdefault(bound, []).append(labels)
    if any(inf not in buckets for buckets in sets.values()):
        raise PageError(f"{name}: no +Inf bucket")
    ladders = {}
    for others, buckets in sets.items():
        bounds = sorted(buckets)
        steps = tuple(buckets[bound][0] for bound in bounds)
        again = tuple((at, bucket) for at, bound in enumerate(bounds) for bucket in buckets[bound][1:])
        ladders[others] = _Ladder(tuple(bounds[:-1]), steps, again)
    return ladders
