"""Roll-up rows as columns: made of text, and with columns of which nothing is known."""

import numpy as np
import pytest

from pertoken.errors import CorruptStore
from pertoken.window.columns import columns


def test_uncounted_columns_are_unknown_in_every_row() -> None:
    rows = columns(("epoch_id", "ts", "loads"), [("7,7", "60,120", "1,2")], ("asleep_ms", "load_s"))
    assert rows.ints("loads").tolist() == [1, 2]
    assert np.isnan(rows.floats("asleep_ms")).all() and np.isnan(rows.floats("load_s")).all()
    assert len(columns(("epoch_id", "ts"), (), ("load_s",)).floats("load_s")) == 0


def test_rows_are_ordered_by_owner_and_time() -> None:
    rows = columns(("epoch_id", "ts", "loads"), [("8,7", "60,120", "1,2"), ("7", "60", "3")])
    assert rows.values.tolist() == [[7, 60, 3], [7, 120, 2], [8, 60, 1]]


def test_a_value_that_is_no_whole_number_is_named() -> None:
    with pytest.raises(CorruptStore, match="no whole number"):
        columns(("epoch_id", "ts"), [("7", "sixty")])


def test_rows_of_which_all_are_wanted_are_not_copied() -> None:
    rows = columns(("epoch_id", "ts"), [("7,8", "60,60")])
    assert rows.where(rows.ints("ts") > 0) is rows
    assert rows.where(rows.ints("epoch_id") > 7).values.tolist() == [[8, 60]]
    assert rows.where(np.array([1, 0])).values.tolist() == [[8, 60], [7, 60]]
    assert len(rows.where(rows.ints("ts") > 60)) == 0
