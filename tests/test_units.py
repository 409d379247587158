import pytest

from pertoken.units import NANO_USD, counted, format_bytes, format_count, format_duration, format_usd, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("1.5m", 90), ("24h", 86_400), ("30d", 2_592_000), ("250ms", 0.25)]
)
def test_durations_are_read_in_their_usual_forms(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["7", "1", "0", "1.5", "٣d", "1e3s", "9" * 400 + "d", "101w2d", "40000d"])
def test_a_duration_without_a_unit_or_beyond_a_hundred_years_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration|longer than 100 years"):
        parse_duration_s(text)


def test_a_wrong_duration_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match="write it with a unit, like 10s"):
        parse_duration_s("-3s")


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (0, "$0"),
        (1234.4, "$1,234"),
        (12.345, "$12.35"),
        (0.5, "$0.500"),
        (0.0123, "$0.0123"),
        (0.000_004_56, "$0.00000456"),
        (-3.2, "-$3.20"),
    ],
)
def test_dollars_keep_three_digits_when_small_and_none_when_large(usd: float, text: str) -> None:
    assert format_usd(round(usd * NANO_USD)) == text


def test_unknown_is_a_dash_and_never_zero() -> None:
    assert (format_usd(None), format_count(None), format_bytes(None)) == ("–", "–", "–")


def test_counts_bytes_and_durations_are_short() -> None:
    assert [format_count(value) for value in (950, 12_345, 4_560_000, 0.5)] == ["950", "12.3k", "4.56M", "0.50"]
    assert format_bytes(85_520_809_984) == "79.6 GiB"
    assert [format_duration(seconds) for seconds in (45, 60, 90, 720, 7200, 172_800)] == [
        "45s",
        "1m",
        "90s",
        "12m",
        "2h",
        "2d",
    ]


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [counted(n, "replica") for n in (0, 1, 2)] == ["0 replicas", "1 replica", "2 replicas"]
