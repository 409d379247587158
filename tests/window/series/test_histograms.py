import pytest

from pertoken.errors import CorruptStore
from pertoken.window.series import MAX_LOOKED_UP, counts_of, histogram, quantile


def test_quantiles_are_linear_within_their_bucket() -> None:
    assert quantile({(1.0, 2.0): [10, 10, 0]}, 0.5) == pytest.approx(1.0)
    assert quantile({(1.0, 2.0): [10, 10, 0]}, 0.75) == pytest.approx(1.5)


def test_a_quantile_lies_in_the_bucket_in_which_its_share_is_reached() -> None:
    # Half of the observations are at most 1: what is above the empty bucket after that has no part in the median.
    apart: dict[tuple[float, ...], list[int]] = {(1.0, 2.0, 3.0, 4.0): [10, 0, 10, 0, 0]}
    assert quantile(apart, 0.5) == 1.0
    assert quantile(apart, 1.0) == 3.0
    assert quantile({(1.0, 2.0): [0, 10, 0]}, 0.0) == 1.0


def test_a_quantile_beyond_the_last_bound_is_that_bound() -> None:
    assert quantile({(1.0, 2.0): [0, 0, 5]}, 0.95) == 2.0


def test_no_observation_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({(1.0,): [0, 0]}, 0.5) is None


def test_two_bucket_sets_are_merged_on_the_union_of_their_bounds() -> None:
    assert quantile({(1.0,): [10, 0], (0.5,): [10, 0]}, 0.5) == pytest.approx(0.5)


def test_counts_of_several_epochs_are_added_up_by_the_bounds_of_their_buckets() -> None:
    parts = [("0.1,0.5", [(0, 3), (2, 1)]), ("0.1,0.5", [(1, 4), (0, 2)]), ("0.2", [(1, 7)])]
    assert histogram(parts) == {(0.1, 0.5): [5, 4, 1], (0.2,): [0, 7]}
    assert histogram([]) == {}


SETS = {50: "0.1,0.5", 60: "0.2"}


def stored(*rows: tuple[int, int, int]) -> str:
    """Return the keys of rows with (metric, set, bucket) as positions, of two metrics and the sets of `SETS`."""
    return ",".join(str((bucket * 3 + of_set) * 3 + metric) for metric, of_set, bucket in rows)


@pytest.mark.parametrize("beyond", [3, MAX_LOOKED_UP])
def test_counts_of_an_epoch_are_added_up_by_metric_and_set_of_buckets(beyond: int) -> None:
    # The third metric is not asked for, and no set has the last bucket.
    keys = stored((0, 0, 2), (0, 0, 0), (1, 0, 1), (0, 1, 1), (2, 0, 0), (0, 0, beyond))
    rows = [(7, keys, "1,3,4,7,9,5"), (8, stored((0, 0, 0), (0, 0, 0)), "2,5")]
    counts = counts_of(rows, ("ttft_s", "e2e_s"), SETS)
    assert sorted((epoch, metric, bounds, counts.tolist()) for epoch, metric, bounds, counts in counts) == [
        (7, "e2e_s", "0.1,0.5", [0, 4, 0]),
        (7, "ttft_s", "0.1,0.5", [3, 0, 1]),
        (7, "ttft_s", "0.2", [0, 7]),
        (8, "ttft_s", "0.1,0.5", [7, 0, 0]),
    ]


def test_counts_of_a_set_of_buckets_that_is_not_stored_are_left_out() -> None:
    assert list(counts_of([(7, stored((0, 2, 0)), "1")], ("ttft_s", "e2e_s"), SETS)) == []
    assert list(counts_of([(7, "0", "1")], ("ttft_s",), {})) == []
    assert list(counts_of([], ("ttft_s",), SETS)) == []


def test_a_count_that_is_no_number_is_a_damaged_database() -> None:
    with pytest.raises(CorruptStore, match="no whole number"):
        list(counts_of([(7, "0", "many")], ("ttft_s",), SETS))
