"""Quotients of sums: unknown wherever a part is unknown."""

from types import SimpleNamespace

from pertoken.window.figures import mean, per_mtok, rate, ratio, total, whole


def test_a_quotient_is_unknown_where_a_part_is_unknown_or_nothing_was_counted() -> None:
    assert ratio(30, 2, 10) == 1.5
    assert ratio(None, 2, 1) is ratio(3, None, 1) is ratio(3, 0, 1) is None
    assert mean(SimpleNamespace(util_1e4_sum=15_000, util_1e4_n=3), "util_1e4", 10_000) == 0.5
    assert mean(None, "util_1e4", 10_000) is None


def test_a_rate_is_per_second_of_the_time_summed() -> None:
    assert rate({"tokens": 600, "duration_ms": 2000}, "tokens") == 300
    assert rate({"tokens": 0, "duration_ms": 2000}, "tokens") == 0
    assert rate({"duration_ms": 2000}, "tokens") is rate({"tokens": 1}, "tokens") is None


def test_a_price_per_million_tokens_needs_dollars_and_tokens() -> None:
    assert per_mtok(3, 2_000_000) == 2  # rounded to the nearest even nano-dollar
    assert per_mtok(0, 10) == 0
    assert per_mtok(None, 10) is per_mtok(10, None) is per_mtok(10, 0) is None


def test_a_total_is_the_sum_of_known_values() -> None:
    assert total([1.0, None, 2.5]) == 3.5
    assert total([None]) is total([]) is None
    assert (whole(2.6), whole(None)) == (3, None)
