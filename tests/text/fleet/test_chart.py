"""Bar chart for the free lines of a screen."""

from pertoken.text.fleet import chart


def test_bars_rise_from_zero_to_the_highest_value_and_gaps_stay_blank() -> None:
    assert chart("tok/s", (0.0, None, 4.0, 8.0), 4, 3) == ("tok/s: 0 to 8", "   █", "▁ ██")


def test_values_are_stretched_over_the_width() -> None:
    assert chart("t", (8.0, None), 6, 3)[1] == "███   "


def test_too_little_height_or_nothing_observed_has_no_chart() -> None:
    assert chart("t", (1.0,), 5, 2) == ()
    assert chart("t", (None,), 5, 9) == ()
