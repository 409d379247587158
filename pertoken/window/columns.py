"""Roll-up rows as columns of integers: a fleet's month is read in seconds, and takes eight bytes a value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pertoken.errors import CorruptStore
from pertoken.store.query.buckets import NULL as NULL
from pertoken.store.query.buckets import SEPARATOR

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Rows by owner and time. The first two columns are the owner's id and the start of the bucket.

    A value that is not known is `NULL` among integers, NaN among floats.
    """

    at: Mapping[str, int]
    """Position of each column."""
    values: Ints
    """(rows, columns)."""

    def __len__(self) -> int:
        return len(self.values)

    def ints(self, name: str) -> Ints:
        """Return a column as stored."""
        column: Ints = self.values[:, self.at[name]]
        return column

    def floats(self, name: str) -> Floats:
        """Return a column with NaN where it is not known."""
        column = self.ints(name)
        return np.where(column == NULL, np.nan, column.astype(np.float64))

    def where(self, mask: Mask | Ints | slice) -> "Columns":
        """Return some of the rows: those of a mask, or in the order of indices. If all are selected nothing is
        copied."""
        if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.all():
            return self
        return Columns(self.at, self.values[mask])

    def with_unknown(self, names: Sequence[str]) -> "Columns":
        """Return the rows with further columns of which no value is known."""
        unknown = np.full((len(self), len(names)), NULL)
        at = dict(self.at) | {name: len(self.at) + n for n, name in enumerate(names)}
        return Columns(at, np.concatenate((self.values, unknown), axis=1))

    def with_column(self, name: str, values: Ints) -> "Columns":
        """Return the rows with other values in one column."""
        changed = self.values.copy()
        changed[:, self.at[name]] = values
        return Columns(self.at, changed)


def columns(names: Sequence[str], chunks: Iterable[Sequence[str]]) -> Columns:
    """Make columns of chunks of `store.query.buckets`, ordered by the first two columns.

    Raises CorruptStore for a value that is no whole number.
    """
    parts = [np.array([whole_numbers(text) for text in texts]) for texts in chunks]
    joined = (
        parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1) if parts else np.empty((len(names), 0), np.int64)
    )
    values = joined.T
    if len(names) > 1 and not _in_order(values[:, 0], values[:, 1]):
        values = values[np.lexsort((values[:, 1], values[:, 0]))]
    return Columns({name: n for n, name in enumerate(names)}, values)


def _in_order(first: Ints, second: Ints) -> bool:
    same = first[1:] == first[:-1]
    return bool(np.all((first[1:] > first[:-1]) | (same & (second[1:] >= second[:-1]))))


def whole_numbers(text: str) -> Ints:
    """Return the numbers of a text. Raises CorruptStore for a value that is no whole number."""
    try:
        values: Ints = np.fromstring(text, np.int64, sep=SEPARATOR)
    except ValueError as error:
        raise CorruptStore(
            f"a roll-up holds a value that is no whole number ({error}): run `pertoken db check`"
        ) from None
    return values


def by_owner(rows: Columns) -> dict[int, Columns]:
    """Return the rows of each owner; they share the memory of `rows`."""
    return {owner: rows.where(span) for owner, span in _spans(rows.values[:, 0])}


def together(parts: Sequence[Columns]) -> Columns:
    """Return the rows of several owners by time."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([columns.values for columns in parts])
    return Columns(parts[0].at, values[np.argsort(values[:, 1], kind="stable")])


def in_turn(parts: Sequence[Columns]) -> Columns:
    """Return the rows of owners that ran one after another as rows of one owner: rows of one bucket are added.

    A sum with an unknown part is unknown; the worst provenance counts.
    """
    rows = together(parts)
    ts = rows.values[:, 1]
    begins = starts(ts)
    if len(begins) == len(ts):
        return rows
    values = np.add.reduceat(np.where(rows.values == NULL, 0, rows.values), begins)
    values[np.maximum.reduceat(rows.values == NULL, begins)] = NULL
    values[:, :2] = rows.values[begins, :2]
    for name, at in rows.at.items():
        if name.endswith("provenance"):
            values[:, at] = np.maximum.reduceat(rows.values[:, at], begins)
    return Columns(rows.at, values)


def starts(values: Ints) -> Ints:
    """Return where a run of equal values begins."""
    begins: Ints = np.flatnonzero(np.concatenate((values[:1] == values[:1], values[1:] != values[:-1])))
    return begins


def _spans(owners: Ints) -> Iterator[tuple[int, slice]]:
    edges = [*starts(owners).tolist(), len(owners)]
    for start, end in pairwise(edges):
        yield int(owners[start]), slice(start, end)
