import pytest

from pertoken.errors import BadInput
from pertoken.reports.figures import Period, period_of

NOW = 1_795_392_000 + 1830


def test_a_period_starts_with_an_hour_and_ends_now_or_as_named() -> None:
    assert period_of(None, None, NOW, dated=False) == Period((NOW - 30 * 86_400) // 3600 * 3600, NOW, dated=False)
    named = period_of("2026-11-21T10:20Z", "2026-11-22T00:00Z", NOW, dated=False)
    assert named.text == "2026-11-21 10:00Z to 2026-11-22 00:00Z"
    assert named.dated and named.hours == 14 and len(named.days()) == 1


def test_a_period_that_is_empty_or_lies_ahead_is_refused() -> None:
    with pytest.raises(BadInput, match="--to"):
        period_of(None, "2027-01-01", NOW, dated=False)
    with pytest.raises(BadInput, match="not before the end"):
        period_of("1h", "2h", NOW, dated=False)
    with pytest.raises(BadInput, match="--from: 'soon' is not a time"):
        period_of("soon", None, NOW, dated=False)


def test_the_period_before_is_as_long() -> None:
    week = period_of("7d", None, NOW, dated=True)
    assert week.preceding().seconds == week.seconds and week.preceding().end == week.start


def test_days_that_a_period_covers_in_part_are_named_unless_it_covers_none_wholly() -> None:
    day = 86_400
    assert Period(day // 2, 3 * day + 1, dated=True).part_days() == {0, 3 * day}
    assert Period(day, 3 * day, dated=True).part_days() == frozenset()
    assert Period(day // 2, day, dated=True).part_days() == frozenset()
