"""Pace of readings: none while nothing has changed, and none beyond its share of a core."""

from pertoken.tui.store_source import MAX_AGE_S, MAX_SHARE, Pace


class Clocks:
    """Clock and CPU time that a test advances."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0
        self.read = 0

    def pace(self) -> Pace:
        return Pace(lambda: self.now_s, lambda: self.cpu_s)

    def reading(self, cost_s: float = 0.0) -> int:
        self.cpu_s += cost_s
        self.read += 1
        return self.read


def test_without_a_commit_a_value_is_read_again_only_after_a_minute() -> None:
    clocks = Clocks()
    pace = clocks.pace()
    for now_s, expected in ((0.0, 1), (2.0, 1), (MAX_AGE_S - 1, 1), (MAX_AGE_S, 2), (MAX_AGE_S + 2, 2)):
        clocks.now_s = now_s
        assert pace.get("fleet", 3600, "same", clocks.reading) == expected


def test_after_a_commit_or_for_another_key_a_cheap_value_is_read_at_once() -> None:
    clocks = Clocks()
    pace = clocks.pace()
    assert pace.get("fleet", 3600, 1, clocks.reading) == 1
    assert pace.get("fleet", 3600, 2, clocks.reading) == 2
    assert pace.get("fleet", 900, 2, clocks.reading) == 3
    assert pace.get("fleet", 900, None, clocks.reading) == 4, "a server does not count commits"


def test_a_reading_that_took_long_is_used_until_it_has_taken_its_share_of_a_core() -> None:
    clocks = Clocks()
    pace, cost_s = clocks.pace(), 0.3
    assert pace.get("fleet", 3600, 0, lambda: clocks.reading(cost_s)) == 1
    for commit, now_s in enumerate((2.0, 10.0, cost_s / MAX_SHARE - 0.1), 1):
        clocks.now_s = now_s
        assert pace.get("fleet", 3600, commit, clocks.reading) == 1
    clocks.now_s = cost_s / MAX_SHARE
    assert pace.get("fleet", 3600, 9, clocks.reading) == 2


def test_outdated_and_forgotten_values_are_read_at_once() -> None:
    clocks = Clocks()
    pace = clocks.pace()
    pace.get("fleet", 3600, 0, lambda: clocks.reading(60.0))
    assert pace.get("fleet", 3600, 0, clocks.reading, lambda _: True) == 2
    pace.forget()
    assert pace.get("fleet", 3600, 0, clocks.reading) == 3
