"""Rows of groups by time: which members a bucket needs."""

import numpy as np

from pertoken.window.columns import Columns
from pertoken.window.series import KEY_S, GroupedRows, Needed

NAMES = ("owner_id", "ts", "duration_ms", "observed_ms", "busy_provenance")


def table(*rows: tuple[int, int, int]) -> Columns:
    """Return rows of (owner, minute, observed ms)."""
    values = np.array([(owner, 60 * minute, 60_000, observed_ms, 3) for owner, minute, observed_ms in rows], np.int64)
    return Columns({name: n for n, name in enumerate(NAMES)}, values.reshape(len(rows), len(NAMES)))


def test_a_minute_in_which_one_replica_was_not_observed_is_left_out_of_the_sum() -> None:
    first = [(1, n, 60_000) for n in range(10)]
    second = [(2, n, 0 if n == 3 else 60_000) for n in range(10) if n != 5]
    late = [(3, n, 60_000) for n in range(8, 10)]
    grouped = GroupedRows(table(*first, *second, *late), [(1, 2, 3)], Needed.RUNNING)
    assert (grouped.keys // 60).tolist() == [0, 1, 2, 4, 6, 7, 8, 9]
    assert grouped.buckets(()).sizes.tolist() == [2, 2, 2, 2, 2, 2, 3, 3]
    assert grouped.observed_ms.tolist() == [8 * 60_000]


def test_a_bucket_that_needs_all_members_is_left_out_before_the_last_came() -> None:
    grouped = GroupedRows(table((1, 0, 1), (1, 1, 1), (2, 1, 1)), [(1, 2)], Needed.ALL)
    assert grouped.keys.tolist() == [60]


def test_an_owner_of_two_groups_is_in_both_and_one_without_rows_in_none() -> None:
    grouped = GroupedRows(table((1, 0, 1), (2, 0, 1)), [(1,), (1, 2), (3,)], Needed.RUNNING)
    assert grouped.keys.tolist() == [0, KEY_S]
    assert grouped.buckets(()).sizes.tolist() == [1, 2]
    assert grouped.busy_provenance.tolist() == [3, 3, 0]
    assert grouped.by_hour.tolist() == [False, False, False]


def test_a_table_without_rows_has_groups_without_buckets() -> None:
    grouped = GroupedRows(table(), [(1,), (2,)], Needed.RUNNING)
    assert (len(grouped.keys), grouped.observed_ms.tolist()) == (0, [0, 0])
