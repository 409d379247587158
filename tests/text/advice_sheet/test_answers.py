"""Answers of a recommendation: why, how sure, what gets slower, what could break, who is affected."""

from dataclasses import replace

import pytest

from pertoken.proof.recommendation import EvidenceLine, LatencyLine, Recommendation, State, Variant
from pertoken.text.advice_sheet import affected, could_break, how_sure, latency_change, slower, why

VARIANT = Variant("k", "2 → 1 replicas", risk="availability", effort="medium", touches=("service:chat", "host:7"))


def line(series: str, unit: str, mean: float | None, p95: float | None = None) -> EvidenceLine:
    return EvidenceLine(
        series, unit, mean, mean, p95, 10, "reported", missing=None if mean is not None else "needs GPM"
    )


def row(*evidence: EvidenceLine, variants: tuple[Variant, ...] = (VARIANT,)) -> Recommendation:
    reason = "Run fewer replicas where the load is small."
    return Recommendation(
        1, "scale", State.OPEN, "2 → 1 replicas", "chat", reason=reason, variants=variants, evidence=evidence
    )


def test_why_is_one_sentence_with_the_measured_figures_in_units_that_people_read() -> None:
    read = (
        line("observed_h", "h", 167.0),
        line("dram_active", "ratio", None),
        line("busy", "ratio", 0.12, 0.4),
        line("device_memory", "bytes", 4.4e10),
        line("e2e_s", "s", 0.25),
    )
    rates = why(row(line("preemptions", "1/h", 98.8, 207.0), line("device_s_per_token", "ratio", 1.25)))
    assert rates is not None and "preemptions 98.8, p95 207 an hour; device_s_per_token 1.25 times" in rates
    text = why(row(*read))
    assert text is not None and text.startswith("Run fewer replicas where the load is small: ")
    assert "12%, p95 40%" in text and "41.0 GiB" in text and "250 ms" in text and text.count(".") == 2
    assert why(row()) == "Run fewer replicas where the load is small."
    assert why(replace(row(), reason=None)) is None
    refused = replace(row(*read, variants=()), state=State.REFUSED, reason="it has 1 replica")
    assert why(refused) == "it has 1 replica"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (93.0, 932.0, "10× slower"),
        (100.0, 50.0, "2× faster"),
        (100.0, 103.0, "about as now"),
        (122_000.0, 60.0, "over 50× faster"),
        (None, 90.0, "overloaded before"),
        (90.0, None, "overloaded after"),
    ],
)
def test_a_latency_changes_by_a_ratio_with_or_without_an_objective(
    before: float | None, after: float | None, text: str
) -> None:
    ends = [None if value is None else (value, value, value) for value in (before, after)]
    for slo_ms in (None, 500.0):
        change = LatencyLine("TTFT p95", ends[0], ends[1], None, slo_ms, "forecast")
        assert latency_change(change) == text
        assert slower(replace(VARIANT, latency=(change,))) == (f"TTFT p95 {text}",)


def test_without_a_forecast_the_latency_is_not_known_with_the_reason() -> None:
    assert slower(VARIANT) == ("latency not known: none was forecast",)
    known = replace(VARIANT, latency_unknown="its lengths were not measured", throughput_ratio=(1.2, 1.4, 1.6))
    assert slower(known) == (
        "tokens/s of a replica 1.2–1.6×",
        "latency not known: its lengths were not measured",
    )


def test_harm_comes_before_objections_and_the_affected_are_clients_hosts_and_whoever_does_the_work() -> None:
    variant = replace(
        VARIANT, against=("one replica has no failover",), requires=("prefix-cache",), released=("gpu-2",)
    )
    harm, objection, needs = could_break(variant)
    assert harm.startswith("the service may be down") and objection == "one replica has no failover"
    assert needs == "it needs prefix-cache"
    assert affected(row(), variant) == "clients of chat; given back: gpu-2; hours of work"
    assert affected(row(), replace(VARIANT, touches=())) == "chat; hours of work"
    assert how_sure(replace(VARIANT, provenance="assumed")).endswith("(least certain input: an assumption)")
    assert "no figure" in how_sure(VARIANT)
