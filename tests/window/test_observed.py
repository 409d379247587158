"""Observed share of a time."""

from pertoken.window.figures import observed_share


def test_the_share_is_of_the_expected_time_and_at_most_all_of_it() -> None:
    assert observed_share(30_000, 60_000) == 0.5
    assert observed_share(0, 60_000) == 0.0
    assert observed_share(70_000, 60_000) == 1.0


def test_where_nothing_was_expected_there_is_no_share() -> None:
    assert observed_share(0, 0) is None
    assert observed_share(1000, -1) is None
