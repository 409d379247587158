"""Rows of several groups of owners by group and time: a series is computed for all groups at once.

A group is one deployment, or several that are added up bucket by bucket. A bucket is a minute, or an hour where a
window is too long for minutes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from pertoken.window.columns import Columns, Floats, Ints, Mask, spans, starts

KEY_S = 3600 * 2**21
"""Distance of the keys of two groups: whole hours, and more seconds than any instant has."""
MAX_MINUTE_MS = 600_000
"""What a row of a minute covers at most where its ticks are far apart; a longer one is of an hour."""


class Needed(Enum):
    """Members of which a bucket needs a row. One that lacks a row would show less than there was."""

    RUNNING = "each that ran then: a member runs from its first to its last observed row"
    ALL = "each of the group"
    ANY = "one"


@dataclass(frozen=True, slots=True, eq=False)
class Buckets:
    """Some columns of rows by bucket; a bucket is the rows of one key, one row for a group of one member."""

    row_keys: Ints
    columns: Mapping[str, Floats]
    starts: Ints
    """Index of the first row of each bucket."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @property
    def keys(self) -> Ints:
        """Key of each bucket, rising."""
        return self.row_keys[self.starts]

    @property
    def sizes(self) -> Ints:
        """Rows of each bucket."""
        sizes: Ints = np.diff(self.starts, append=len(self.row_keys))
        return sizes

    def sum(self, values: Floats) -> Floats:
        """Add a value of each row by bucket."""
        return np.add.reduceat(values, self.starts) if len(self) else np.empty(0)

    def where(self, mask: Mask) -> "Buckets":
        """Return the rows of a mask, and the buckets that have any."""
        if mask.all():
            return self
        keys = self.row_keys[mask]
        return Buckets(keys, {name: values[mask] for name, values in self.columns.items()}, starts(keys))

    def having(self, mask: Mask) -> "Buckets":
        """Return the buckets of a mask, with all of their rows."""
        return self if mask.all() else self.where(np.repeat(mask, self.sizes))

    def with_all(self, mask: Mask) -> "Buckets":
        """Return the buckets in which a condition holds for every row."""
        return self.having(self.sum(mask.astype(np.float64)) == self.sizes)

    def with_any(self, mask: Mask) -> "Buckets":
        """Return the buckets in which a condition holds for some row."""
        return self.having(self.sum(mask.astype(np.float64)) > 0)


class GroupedRows:
    """Rows of the owners of each group, in the order of group and time."""

    def __init__(self, rows: Columns, groups: Sequence[Sequence[int]], needed: Needed) -> None:
        """Take rows in the order of owner and time, and the owners of each group, by which groups are numbered."""
        self._rows = rows
        self.groups = len(groups)
        span_of = dict(spans(rows.values[:, 0]))
        members = [(n, span_of[owner]) for n, owners in enumerate(groups) for owner in owners if owner in span_of]
        lengths = [span.stop - span.start for _, span in members]
        index = np.concatenate([np.arange(span.start, span.stop) for _, span in members] or [np.empty(0, np.int64)])
        member = np.repeat(np.arange(len(members)), lengths)
        group = np.repeat(np.array([n for n, _ in members], np.int64), lengths)
        keys = group * KEY_S + rows.ints("ts")[index]
        if needed is Needed.RUNNING:
            observed = rows.ints("observed_ms")[index] > 0
            index, member, keys = index[observed], member[observed], keys[observed]
        first = starts(member)
        begins, ends = np.sort(keys[first]), np.sort(keys[np.append(first[1:], len(keys))[: len(first)] - 1])
        if not (keys[1:] >= keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            index, keys = index[order], keys[order]
        every = Buckets(keys, {"index": index}, starts(keys))
        if needed is Needed.RUNNING:
            running = np.searchsorted(begins, every.keys, "right") - np.searchsorted(ends, every.keys, "left")
            every = every.having(every.sizes == running)
        elif needed is Needed.ALL:
            every = every.having(every.sizes == np.array([*map(len, groups)], np.int64)[every.keys // KEY_S])
        self._every = every
        self._index: Ints = every.columns["index"].astype(np.int64)

    def buckets(self, names: Sequence[str]) -> Buckets:
        """Return all buckets with some of their columns."""
        columns = {name: self._rows.floats(name)[self._index] for name in names}
        return Buckets(self._every.row_keys, columns, self._every.starts)

    @property
    def keys(self) -> Ints:
        """Key of each bucket, rising."""
        return self._every.keys

    def totals(self, keys: Ints, values: Floats) -> Floats:
        """Add up values by the group of their keys."""
        totals: Floats = np.bincount(keys // KEY_S, values, self.groups).astype(np.float64)
        return totals

    @cached_property
    def observed_ms(self) -> Floats:
        """Time in which all members of each group were observed."""
        observed_ms = self._rows.floats("observed_ms")[self._index]
        least = np.minimum.reduceat(observed_ms, self._every.starts) if len(self._every) else observed_ms
        return self.totals(self.keys, least)

    @cached_property
    def by_hour(self) -> Mask:
        """Whether some buckets of each group are of an hour, and not of a minute."""
        return self._highest("duration_ms") > MAX_MINUTE_MS

    @cached_property
    def busy_provenance(self) -> Ints:
        """Worst provenance of the busy times of each group: `BOUND` where one is an upper bound."""
        return self._highest("busy_provenance")

    def _highest(self, name: str) -> Ints:
        """Return the highest value of a column by group, 0 at least."""
        highest = np.zeros(self.groups, np.int64)
        np.maximum.at(highest, self._every.row_keys // KEY_S, self._rows.ints(name)[self._index])
        return highest
