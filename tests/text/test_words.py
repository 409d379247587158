import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from pertoken.text.words import (
    ago,
    at_least,
    at_most,
    literal,
    literal_lines,
    marked_verdict,
    number,
    observed,
    percent,
    progress_line,
    ratio_range,
    seconds,
    slo_verdict,
    slo_verdict_reason,
    sparkline,
    usd_range,
    usd_triple,
    watts,
)
from pertoken.units import NANO_USD


def test_only_a_complete_observation_is_100_percent() -> None:
    written = [observed(share) for share in (None, 0.0, 0.001, 0.125, 0.999, 1.0)]
    assert written == ["–", "0%", "<1%", "12%", "99%", "100%"]


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    for written in (percent(None), number(None), watts(None), seconds(None), usd_range(None), ratio_range(None)):
        assert written == "–"
    assert (percent(0.0), number(0.0), watts(0.0), seconds(0.0)) == ("0%", "0", "0 W", "0 ms")
    assert slo_verdict("unknown") == "not judged" and slo_verdict_reason("unknown").startswith(
        "not judged: no objective"
    )


def test_a_share_too_small_to_round_is_not_nothing() -> None:
    assert percent(0.001) == "<1%"


def test_a_bound_of_a_share_is_marked_even_if_it_rounds_to_zero() -> None:
    assert (at_most(0.123), at_most(0.001), at_most(1.0), at_most(None)) == ("≤12%", "≤1%", "≤100%", "–")
    assert (at_least(0.123), at_least(0.001), at_least(None)) == ("≥12%", ">0%", "–")


def test_ages_and_latencies_read_naturally() -> None:
    assert (ago(40), ago(190), ago(None), ago(-3)) == ("40s ago", "3m ago", "never", "0s ago")
    assert (seconds(0.0182), seconds(1.84), seconds(62.0)) == ("18.2 ms", "1.84 s", "62 s")


def test_control_and_direction_characters_are_written_out() -> None:
    assert literal("a\x1b[31m\u202e\n\ud800é界") == "a\\x1b[31m\\u202e\\n\\ud800é界"
    assert literal_lines("one\n\ttwo\x07") == ("one", "    two\\x07")


@given(st.text())
def test_no_character_of_a_name_controls_the_terminal(text: str) -> None:
    written = literal(text)
    written.encode("utf-8")
    assert not {unicodedata.category(char) for char in written} & {"Cc", "Cf", "Zl", "Zp"}


def test_a_sparkline_starts_at_zero_and_keeps_its_gaps() -> None:
    assert sparkline((0.0, None, 7.0, 3.5), 10) == "▁ █▅"
    assert sparkline((None, None), 10) == "  "
    assert sparkline((0.0, 0.0), 10) == "▁▁"
    assert sparkline((), 10) == ""


def test_a_long_sparkline_has_means_of_the_observed_values() -> None:
    assert sparkline((1.0, None, None, None, 4.0, 4.0), 3) == "▃ █"


def test_a_range_of_one_value_is_that_value() -> None:
    assert usd_range((5 * 10**9, 5 * 10**9, 5 * 10**9)) == "$5.00"
    assert usd_range((-(10**9), 0, 2 * 10**9)) == "-$1.00 to $2.00"
    assert ratio_range((1.31, 1.5, 1.92)) == "1.3–1.9×"


def test_dollars_are_low_likely_high_in_few_cells_or_none_found() -> None:
    assert usd_triple((1200 * NANO_USD, 1640 * NANO_USD, 1818 * NANO_USD)) == "$1,200–1,640–1,818"
    assert usd_triple((-120 * NANO_USD, 900 * NANO_USD, 1500 * NANO_USD)) == "-$120–900–1,500"
    assert usd_triple((5 * NANO_USD,) * 3) == "$5.00"
    assert usd_triple((0, 0, 0)) == usd_triple(None) == "none found"


def test_a_verdict_reads_without_colour() -> None:
    assert [marked_verdict(verdict) for verdict in ("pass", "near_miss", "fail", "unknown")] == [
        "✓ kept",
        "≈ near miss",
        "✗ broken",
        "? not judged",
    ]


def test_progress_is_a_bar_where_a_share_is_known() -> None:
    assert progress_line("reading telemetry", 0.0) == "reading telemetry"
    assert progress_line("reading telemetry", 0.4) == "reading telemetry ████░░░░░░ 40%"
    assert progress_line("done", 1.0) == "done ██████████ 100%"
