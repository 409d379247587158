from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pertoken.store.read import Segment, segments


def test_whole_hours_are_read_as_hours_and_the_edges_by_the_minute() -> None:
    assert segments(3000, 3600 * 3 + 120) == (
        Segment(60, 3000, 3600),
        Segment(3600, 3600, 10_800),
        Segment(60, 10_800, 10_920),
    )


def test_an_hour_in_which_a_price_changed_is_read_by_the_minute() -> None:
    assert segments(0, 10_800, fine=[5400]) == (
        Segment(3600, 0, 3600),
        Segment(60, 3600, 5400),
        Segment(60, 5400, 7200),
        Segment(3600, 7200, 10_800),
    )


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.lists(st.integers(0, 2 * 10**6), max_size=3))
def test_segments_cover_the_window_once(start: int, length: int, fine: list[int]) -> None:
    found = segments(start, start + length, fine)
    assert found[0].start == start // 60 * 60
    assert found[-1].end >= start + length
    assert all(before.end == after.start for before, after in pairwise(found))
    assert not any(each.start < -(-ts // 60) * 60 < each.end for each in found for ts in fine)
    assert all(each.start % each.seconds == 0 and each.end % each.seconds == 0 for each in found)
