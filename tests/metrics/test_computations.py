"""Computations of series: the columns and counters that each reads."""

from pertoken.metrics.series import Gauge, Quotient, Rate, TimeShare, columns_of, counters_of


def test_a_gauge_while_busy_reads_the_busy_time_too() -> None:
    assert columns_of(Gauge(("running_1e2",))) == ("running_1e2_sum", "running_1e2_n", "duration_ms")
    assert {"busy_ms", "observed_ms"} < {*columns_of(Gauge(("running_1e2",), while_busy=True))}


def test_a_rate_reads_its_counter_and_the_time() -> None:
    assert columns_of(Rate("prompt_tokens")) == ("prompt_tokens", "duration_ms")


def test_counters_of_a_quotient_are_those_of_both_sides() -> None:
    assert counters_of(Quotient(("a",), ("a", "b"))) == ("a", "a", "b")
    assert counters_of(TimeShare("asleep_ms")) == ("asleep_ms",)
