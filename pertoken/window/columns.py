"""Roll-up rows as columns of integers, eight bytes per value."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pertoken.errors import ImpossibleValues
from pertoken.store.query.buckets import NULL as NULL
from pertoken.store.query.buckets import SEPARATOR

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
    """Columns without any known value. They share one place in `values`."""

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

    `unknown` are columns without any known value. Raises ImpossibleValues for a value that is no whole number.
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
    return {
        owner: Columns(rows.index, rows.values[owner_slice], rows.unknown)
        for owner, owner_slice in slices(rows.values[:, 0])
    }


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


def rows_in_turn(parts: Sequence[Columns]) -> Columns:
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


def slices(owners: Ints) -> Iterator[tuple[int, slice]]:
    """Yield each owner with the slice of its rows, from the owner of each row."""
    edges = [*starts(owners).tolist(), len(owners)]
    for start, end in pairwise(edges):
        yield int(owners[start]), slice(start, end)
