from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pertoken.store.query.rollups import Segment, divided_hours, intervals, scaled, segments


def test_whole_hours_are_read_as_hours_and_the_edges_by_the_minute() -> None:
    assert segments(3000, 3600 * 3 + 120) == (
        Segment(60, 3000, 3600),
        Segment(3600, 3600, 10_800),
        Segment(60, 10_800, 10_920),
    )


def test_an_hour_in_which_a_price_changed_is_read_by_the_minute() -> None:
    assert intervals(0, 10_800, [5400]) == (
        (Segment(3600, 0, 3600), Segment(60, 3600, 5400)),
        (Segment(60, 5400, 7200), Segment(3600, 7200, 10_800)),
    )


def test_the_hour_under_way_is_read_whole_where_it_is_kept_up_to_date() -> None:
    assert segments(3000, 8000, under_way=True) == (Segment(60, 3000, 3600), Segment(3600, 3600, 10_800))
    assert segments(7300, 8000, under_way=True) == (Segment(60, 7300 // 60 * 60, 8040),)
    assert intervals(0, 5000, [3000], under_way=True) == (
        (Segment(60, 0, 3000),),
        (Segment(60, 3000, 3600), Segment(3600, 3600, 7200)),
    )


def test_an_hour_without_minutes_is_read_in_parts_that_cover_it() -> None:
    assert divided_hours(3000, 14_400, [5400, 7200]) == [0, 3600]
    assert divided_hours(0, 8000, [], under_way=True) == []
    assert intervals(3000, 10_800, [5400], without_minutes={0, 3600}) == (
        (Segment(3600, 0, 3600, (50, 60)), Segment(3600, 3600, 7200, (0, 30))),
        (Segment(3600, 3600, 7200, (30, 60)), Segment(3600, 7200, 10_800)),
    )
    part = Segment(3600, 3600, 7200, (30, 45))
    assert (part.begin, part.until) == (5400, 6300)


@given(st.integers(0, 10**16), st.sets(st.integers(1, 59), max_size=5))
def test_parts_of_an_hour_add_up_to_its_sum(value: int, cuts: set[int]) -> None:
    minutes = sorted({0, 60} | cuts)
    parts = [scaled(value, *pair) for pair in pairwise(minutes)]
    assert sum(parts) == value and min(parts) >= 0
    assert all(
        abs(part - value * (b - a) / 60) <= 1 + value / 1e12
        for part, (a, b) in zip(parts, pairwise(minutes), strict=True)
    )


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.lists(st.integers(0, 2 * 10**6), max_size=3), st.booleans())
def test_intervals_cover_the_window_once(start: int, length: int, changes: list[int], under_way: bool) -> None:
    divided = intervals(start, start + length, changes, under_way=under_way)
    seconds = [second for covering in divided for second in covering]
    assert seconds[0].start == start // 60 * 60
    assert seconds[-1].end >= start + length
    assert all(before.end == after.start for before, after in pairwise(seconds))
    assert all(second.start % second.seconds == 0 and second.end % second.seconds == 0 for second in seconds)
    cuts = {-(-ts // 60) * 60 for ts in changes}
    assert not any(
        covering[0].start < cut < min(covering[-1].end, start + length) for covering in divided for cut in cuts
    )
    assert len(divided) == 1 + len({covering[0].start for covering in divided} & cuts - {seconds[0].start})
