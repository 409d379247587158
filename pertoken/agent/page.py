"""Prometheus text pages: only the wanted series of a page, or the reason why the page cannot be trusted.

Reads `text/plain` 0.0.4 and 1.0.0 and OpenMetrics 1.0 (whose `# EOF` it demands when told so). Every line is
checked, since a page cut or mixed up anywhere is not a page to bill by; labels and values are read only where
wanted. Sample names are taken exactly as exposed, so `*_created` gauges never count as their family.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf

Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""


MOST = 10**18
"""No counter or gauge is larger; a column of the store holds nine times as much."""


class PageError(Exception):
    """The page breaks its format, or holds a value that a counter cannot have."""


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted series of one page, by sample name and labels."""

    samples: dict[str, dict[Labels, float]]

    def only(self, label: str, value: str) -> "Page":
        """The series with this label."""
        pair = (label, value)
        found = {name: {k: v for k, v in series.items() if pair in k} for name, series in self.samples.items()}
        return Page({name: series for name, series in found.items() if series})

    def gauge(self, name: str) -> dict[Labels, float]:
        """Values of one gauge; NaN and infinities are left out, as an engine says *nothing to report* so, and what
        no gauge of ours can be."""
        return {labels: value for labels, value in self.samples.get(name, {}).items() if 0 <= value <= MOST}

    def counter(self, name: str, unit: float = 1) -> dict[Labels, int]:
        """Values of one counter in units of `unit` of the page's, rounded to whole counts.

        Raises PageError for a negative, non-finite or impossibly large one: leaving that series out would make the
        sum over the others a wrong number.
        """
        counts = {labels: _count(name, value / unit) for labels, value in self.samples.get(name, {}).items()}
        _count(name, sum(counts.values()))
        return counts

    def histogram(self, name: str) -> dict[Labels, tuple[tuple[float, ...], tuple[int, ...]]]:
        """Upper bounds (without +Inf) and non-cumulative counts (with it, one more) of one histogram, by labels.

        Raises PageError for a set of buckets without +Inf or whose cumulative counts fall.
        """
        bucket = f"{name}_bucket"
        cumulative: dict[Labels, dict[float, int]] = {}
        for labels, value in self.samples.get(bucket, {}).items():
            count = _count(bucket, value)
            bound, others = _bound(labels)
            if bound is None:
                raise PageError(f"{bucket}: a bucket without a numeric le: {dict(labels)}")
            series = cumulative.setdefault(others, {})
            if series.setdefault(bound, count) != count:
                raise PageError(f"{bucket}: two counts for le={bound!r}")
        return {labels: _split(bucket, counts) for labels, counts in cumulative.items()}


Sample = tuple[str, Labels, float]
_MANY = 4
"""Times the lines of a page that are remembered before those of the past are forgotten."""


class Parser:
    """Reads pages of one server, one after the other; of each it takes the samples whose names are in `wanted`.

    Most lines of a page are those of the page before, and nearly all others are a known series with another number:
    they are not taken apart again.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._known: dict[str, Sample | None] = {}
        """Lines of pages before; None for one that is well-formed and not wanted."""
        self._series: dict[str, tuple[str, Labels] | None] = {}
        """What stands before the number in lines of pages before; None where it is not wanted."""

    def parse(self, body: bytes, *, eof_required: bool = False) -> Page:
        """One page.

        Raises PageError, with the line, for anything that is not a whole, well-formed page; also for a wanted series
        given twice with different values.
        """
        try:
            *lines, rest = body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise PageError(f"byte {error.start} is not UTF-8") from None
        samples: dict[str, dict[Labels, float]] = {}
        known, series, ended = self._known, self._series, False
        for number, line in enumerate(lines, 1):
            if ended and line:
                raise PageError(f"line {number}: text after # EOF")
            if line in known:
                sample = known[line]
            elif line == "# EOF":
                ended = True
                continue
            else:
                head, _, value = line.rpartition(" ")
                plain = _PLAIN_NUMBER(value) is not None
                if plain and head in series:
                    named = series[head]
                    sample = (*named, float(value)) if named else None
                else:
                    sample = _sample(line, number, self._wanted)
                    if plain and _head(head) is not None:
                        series[head] = sample[:2] if sample else None
                known[line] = sample
            if sample is None:
                continue
            name, labels, amount = sample
            told = samples.setdefault(name, {}).setdefault(labels, amount)
            if told != amount and not (told != told and amount != amount):
                raise PageError(f"line {number}: {name} is given twice with these labels, as {told:g} and {amount:g}")
        if ended and rest:
            raise PageError(f"line {len(lines) + 1}: text after # EOF")
        if rest.strip() and not rest.startswith("#"):
            raise PageError(f"line {len(lines) + 1}: the page ends within a line")
        if (eof_required or rest) and not ended and rest != "# EOF":
            raise PageError(f"line {len(lines) + 1}: the page ends before its end")
        if len(known) > _MANY * len(lines):
            self._known = {line: known[line] for line in lines if line in known}
        if len(series) > _MANY * len(lines):
            self._series = {}
        return Page(samples)


def parse(body: bytes, wanted: Collection[str], *, eof_required: bool = False) -> Page:
    """The samples of a single page, as `Parser` reads it."""
    return Parser(wanted).parse(body, eof_required=eof_required)


def _sample(line: str, number: int, wanted: Collection[str]) -> Sample | None:
    """The sample of a line; None for a comment and for one that is not wanted. Raises PageError."""
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
_STRING = r'"((?:[^"\\]|\\.)*)"'
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*|{_STRING})[ \t]*=[ \t]*{_STRING}[ \t]*(?:,|$)")
_QUOTED_NAME = re.compile(rf"[ \t]*{_STRING}[ \t]*(?:,|$)")
_ESCAPE = re.compile(r"\\(.)")


REMEMBERED = 8192
"""Series kept in mind from page to page: nearly every line is a known series with another number."""


@lru_cache(REMEMBERED)
def _head(head: str) -> tuple[str, str] | None:
    """Name and braces of a line up to its number; None if it takes the whole grammar to tell."""
    match = _PLAIN_HEAD(head)
    return (match[1], match[2] or "") if match else None


@lru_cache(REMEMBERED)
def _labels(braces: str) -> Labels | None:
    """Sorted label pairs; None if they are not well-formed."""
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


def _count(name: str, value: float) -> int:
    if not 0 <= value <= MOST:
        raise PageError(f"{name} is {value:g}, which a counter cannot be")
    return round(value)


@lru_cache(REMEMBERED)
def _bound(labels: Labels) -> tuple[float | None, Labels]:
    """Upper bound of a bucket, None if it is no number, and its other labels."""
    others = tuple(pair for pair in labels if pair[0] != "le")
    try:
        bound = float(dict(labels)["le"])
    except (KeyError, ValueError):
        return None, others
    return (bound if bound == bound else None), others


def _split(name: str, cumulative: dict[float, int]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    bounds = sorted(cumulative)
    if bounds[-1] != inf:
        raise PageError(f"{name}: no +Inf bucket")
    counts = [0, *(cumulative[bound] for bound in bounds)]
    if any(low > high for low, high in pairwise(counts)):
        raise PageError(f"{name}: cumulative counts fall from one bucket to the next")
    return tuple(bounds[:-1]), tuple(high - low for low, high in pairwise(counts))
