"""Roll-up rows as columns of integers, eight bytes per value."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pertoken.errors import ImpossibleValues
from pertoken.metrics import SERIES
from pertoken.metrics.series import Gauge
from pertoken.store.query.buckets import NULL as NULL
from pertoken.store.query.buckets import SEPARATOR
from pertoken.units import MTOK

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows by owner and time. The first two columns are the id of the owner and the start of the bucket.

    An unknown value is `NULL` among integers and NaN among floats.
    """

    index: Mapping[str, int]
    """Index of each column in `values`, by name."""
    values: Ints
    """(rows, columns)."""
    unknown: frozenset[str] = frozenset()
    """Columns of which no value is known. They share one place in `values`."""

    def __len__(self) -> int:
        return len(self.values)

    def ints(self, name: str) -> Ints:
        """Return a column as stored."""
        column: Ints = self.values[:, self.index[name]]
        return column

    def floats(self, name: str) -> Floats:
        """Return a column as floats, with NaN for unknown values."""
        column = self.ints(name)
        values = column.astype(np.float64)
        values[column == NULL] = np.nan
        return values

    def where(self, mask: Mask | Ints | slice) -> Columns:
        """Return the rows of a mask, or those of indices in their order. A mask of all rows copies nothing."""
        if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.all():
            return self
        return Columns(self.index, self.values[mask])


def columns(names: Sequence[str], chunks: Iterable[Sequence[str]], unknown: Collection[str] = ()) -> Columns:
    """Return the rows of chunks of `store.query.buckets`, ordered by the first two columns.

    `unknown` are columns of which no value is known. Raises ImpossibleValues for a value that is no whole number.
    """
    parts = [[whole_numbers(text) for text in texts] for texts in chunks]
    # By column, so that no more than one column is copied twice: memory that is touched first takes the most time.
    values = np.empty((len(names) + bool(unknown), sum(len(part[0]) for part in parts)), np.int64)
    for n in range(len(names) if parts else 0):
        np.concatenate([part[n] for part in parts], out=values[n])
    values[len(names) :] = NULL
    if len(names) > 1 and not _in_order(values[0], values[1]):
        order = np.lexsort((values[1], values[0]))
        for column in values[: len(names)]:
            column[:] = column[order]
    index = {name: n for n, name in enumerate(names)} | dict.fromkeys(unknown, len(names))
    return Columns(index, values.T, frozenset(unknown))


def _in_order(first: Ints, second: Ints) -> bool:
    same = first[1:] == first[:-1]
    return bool(np.all((first[1:] > first[:-1]) | (same & (second[1:] >= second[:-1]))))


def whole_numbers(text: str) -> Ints:
    """Return the whole numbers in a text. Raises ImpossibleValues for a value that is no whole number."""
    try:
        values: Ints = np.fromstring(text, np.int64, sep=SEPARATOR)
    except ValueError as error:
        raise ImpossibleValues(
            f"a roll-up holds a value that is no whole number ({error}): run `pertoken db check`"
        ) from None
    return values


def by_owner(rows: Columns) -> dict[int, Columns]:
    """Return the rows by owner. They share the memory of `rows`."""
    return {owner: Columns(rows.index, rows.values[span], rows.unknown) for owner, span in spans(rows.values[:, 0])}


def together(parts: Sequence[Columns]) -> Columns:
    """Return the rows of several owners, ordered by time."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([columns.values for columns in parts])
    return Columns(parts[0].index, values[np.argsort(values[:, 1], kind="stable")])


def stacked(members: Sequence[Columns]) -> Columns:
    """Return the rows of members (one at least), with their numbers as owners."""
    values = np.concatenate([member.values for member in members])
    values[:, 0] = np.repeat(np.arange(len(members)), [len(member) for member in members])
    return Columns(members[0].index, values, members[0].unknown)


def in_turn(parts: Sequence[Columns]) -> Columns:
    """Return the rows of owners that ran one after another as rows of one owner. Rows of the same bucket are added.

    A sum with an unknown term is unknown. The provenance of a sum is the worst of its terms.
    """
    rows = together(parts)
    ts = rows.values[:, 1]
    begins = starts(ts)
    if len(begins) == len(ts):
        return rows
    values = np.add.reduceat(np.where(rows.values == NULL, 0, rows.values), begins)
    values[np.maximum.reduceat(rows.values == NULL, begins)] = NULL
    values[:, :2] = rows.values[begins, :2]
    for name, column in rows.index.items():
        if name.endswith("provenance"):
            values[:, column] = np.maximum.reduceat(rows.values[:, column], begins)
    return Columns(rows.index, values)


def starts(values: Ints) -> Ints:
    """Return the indices at which a run of equal values begins."""
    begins: Ints = np.flatnonzero(np.concatenate((values[:1] == values[:1], values[1:] != values[:-1])))
    return begins


def spans(owners: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each owner with its rows, from the owner of each row."""
    edges = [*starts(owners).tolist(), len(owners)]
    for start, end in pairwise(edges):
        yield int(owners[start]), slice(start, end)


def newest(sums: Any | None, name: str) -> float | None:
    """Return the gauge of a series over all time of a row of sums, idle time included: what screens label "now"."""
    computation = SERIES[name].computation
    assert isinstance(computation, Gauge)
    (stored,) = computation.stored
    return mean(sums, stored, computation.per_unit)


def mean(row: Any | None, name: str, scale: float) -> float | None:
    """Return the mean of a gauge in a row of sums, or in a mapping of them, in its own unit."""
    if row is None:
        return None
    if isinstance(row, Mapping):
        return ratio(row.get(f"{name}_sum"), row.get(f"{name}_n"), scale)
    return ratio(getattr(row, f"{name}_sum"), getattr(row, f"{name}_n"), scale)


def ratio(numerator: int | None, denominator: int | None, scale: float) -> float | None:
    """Return a quotient by a scale; None for unknown parts or a zero denominator."""
    return numerator / denominator / scale if numerator is not None and denominator else None


def rate(sums: Mapping[str, Any], name: str) -> float | None:
    """Return a count per second of the summed time."""
    counted, ms = sums.get(name), sums.get("duration_ms")
    return counted * 1000 / ms if counted is not None and ms else None


def per_mtok(nano_usd: int | None, tokens: int | None) -> int | None:
    """Return nano-USD per million tokens; None without tokens."""
    return round(nano_usd * MTOK / tokens) if nano_usd is not None and tokens else None


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum of the known values; None if all are unknown."""
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None


def whole(value: float | None) -> int | None:
    """Return the value rounded to an integer."""
    return None if value is None else round(value)


STALE_TICKS = 2
"""Ticks without a row after which something is stale: one tick may be late, the next one proves that it is not."""

ROUNDING_MS = 1000
"""Starts are known to the second, and rows end when their tick was read: so much less than expected is no gap."""


def counted_ms(observed_ms: int, expected_ms: int) -> int:
    """Return the observed time of one device or deployment within the expected one, without errors of rounding."""
    return expected_ms if expected_ms - observed_ms < ROUNDING_MS else observed_ms


def observed_share(observed_ms: int, expected_ms: int) -> float | None:
    """Observed of expected time, 0 to 1; None where nothing was to be observed.

    What is observed beyond the expected (the first row of something covers the tick before it was known) adds nothing.
    """
    return min(1.0, observed_ms / expected_ms) if expected_ms > 0 else None


T = TypeVar("T")

Progress = Callable[[str, float], None]
"""Called with the name of a phase and the share of it that is done, 0 to 1; not at all for long, or many times."""
TICK_S = 0.2
"""Seconds between two calls of one loop: people see a bar move, and it costs nothing."""


def no_progress(phase: str, share: float) -> None:
    """Show nothing."""


def ticking(items: Iterable[T], n: int, phase: str, progress: Progress) -> Iterator[T]:
    """Yield the items, about `n` of them, and report progress every `TICK_S`."""
    progress(phase, 0.0)
    last = time.monotonic()
    for done, t in enumerate(items):
        yield t
        if (now := time.monotonic()) - last >= TICK_S:
            last = now
            progress(phase, min(1.0, (done + 1) / max(1, n)))
