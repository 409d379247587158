import pytest

from pertoken.reports.html import bars, ceiling, divided, lines, ranked

DAY = 86_400


@pytest.mark.parametrize(("value", "top"), [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (7.2, 10.0), (230.0, 250.0)])
def test_an_axis_ends_at_a_round_value_not_below_the_largest(value: float, top: float) -> None:
    assert ceiling(value) == pytest.approx(top)


def test_bars_are_as_high_as_their_dollars_and_name_their_day() -> None:
    svg = bars([(0, {"busy": 50.0, "idle": 50.0}), (DAY, {})], [("busy", "b"), ("idle", "i")], "Dollars")
    assert svg.count("<rect") == 2 and "1970-01-01: busy $50.00" in svg
    assert 'height="92.0"' in svg, "each half of 184 units"


def test_a_bar_of_a_part_of_a_day_is_pale() -> None:
    svg = bars([(0, {"busy": 50.0}), (DAY, {"busy": 9.0})], [("busy", "b")], "Dollars", {DAY})
    assert svg.count('class="b"') == svg.count('class="b part"') == 1


def test_a_day_without_a_value_is_a_gap_in_a_line() -> None:
    svg = lines({"m": [(0, 1.0), (DAY, 2.0), (2 * DAY, None), (3 * DAY, 1.0)]}, "Dollars")
    assert svg.count("<polyline") == 1 and svg.count("<circle") == 3


def test_a_divided_bar_has_its_parts_in_proportion_and_survives_nothing() -> None:
    svg = divided([("busy", "b", 1.0), ("idle", "i", 3.0)], "Dollars")
    assert 'width="180.0"' in svg and 'width="540.0"' in svg and "25.0%" in svg
    assert "NaN" not in divided([("busy", "b", 0.0)], "Dollars")


def test_ranked_bars_have_a_whisker_and_a_cut_name() -> None:
    svg = ranked([("x" * 80, "s0", (1.0, 2.0, 5.0))], "Dollars")
    assert "…" in svg and svg.count("whisker") == 1 and "$2.00 a month, $1.00 to $5.00" in svg
