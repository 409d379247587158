"""Forecasts of one run: side by side or one by one they are the same, and each is computed once."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pertoken.evidence import Evidence, OperatingPoint
from pertoken.forecast.latency import LatencyQuery, overruns
from pertoken.forecast.serving import ChangeUnderLoad, compare_all
from pertoken.savings import context as forecasts
from pertoken.savings.context import Context, Forecasts
from pertoken.savings.estimate import estimate, prepare, prepare_shown
from pertoken.savings.load import measured_load
from pertoken.savings.slo import FIGURES
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Slo
from tests.deployments import MARKET
from tests.forecast.builders import latency
from tests.savings.fleets import context, llama, low_batch, replicas


def proposals(before: Fleet) -> list[Fleet]:
    (service,) = before.services
    return [
        before.edit(edited)
        for edited in (
            service.but(weight_dtype="fp8"),
            service.but(weight_dtype="int4"),
            service.but(weight_dtype="fp8", tp=1),
            service.but(weight_dtype="fp8").resized(),
            service.but(max_num_seqs=8),
        )
    ]


def replicated() -> tuple[Fleet, Context]:
    before = replicas(3)
    return before, replace(context(before, low_batch()), slo=Slo(ttft_p95_ms=3000, tpot_p95_ms=60))


def test_proposals_that_are_forecast_side_by_side_cost_what_each_costs_alone() -> None:
    before, known = replicated()
    alone = [estimate(before, proposal, replace(known, forecasts=Forecasts())) for proposal in proposals(before)]
    after = proposals(before)
    prepare(before, after, known)
    together = [estimate(before, fleet, known) for fleet in after]
    for one, other in zip(alone, together, strict=True):
        assert replace(one, latency=None, judged=()) == replace(other, latency=None, judged=())
        assert (one.slo, one.against) == (other.slo, other.against)
        assert (one.latency is None) == (other.latency is None)
        if one.latency is not None and other.latency is not None:
            assert (one.latency.after, one.latency.before) == (other.latency.after, other.latency.before)


@pytest.mark.parametrize(("slo", "compared"), [(Slo(tpot_p95_ms=1), 1), (Slo(), 3)])
def test_of_a_proposal_that_its_first_deployment_refuses_no_other_is_forecast(
    slo: Slo, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(some: Sequence[ChangeUnderLoad], *more: Any) -> Any:
        asked.append(len(some))
        return compare_all(some, *more)

    monkeypatch.setattr(forecasts, "compare_all", counted)
    before, known = replicated()
    known = replace(known, slo=slo, deployments={n: low_batch(waiting=n / 100) for n in (1, 2, 3)})
    (service,) = before.services
    placement = Placement(accelerator="L40S" if compared == 1 else "H200 SXM")
    after = before.edit(service.on(placement).but(weight_dtype="fp8"))
    prepare(before, [after], known)
    assert (estimate(before, after, known).infeasible is not None) == (compared == 1)
    assert sum(asked) == compared


@pytest.mark.parametrize("limit_ms", [5.0, 10.0, 20.0, 40.0, 80.0, 300.0, 1000.0])
@pytest.mark.parametrize("figure", ["ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms"])
def test_a_likely_figure_overruns_a_limit_where_its_quantile_does(figure: str, limit_ms: float) -> None:
    asked = _asked(low_batch())
    limits = tuple(1.2 * limit_ms if name == figure else None for name in FIGURES.values())
    (overrun,) = overruns([(asked, limits)], MARKET)  # type: ignore[list-item]
    predicted = latency(asked.deployment, asked.load, asked.arrivals, asked.calibration)
    assert overrun == (getattr(predicted, figure)[1] > 1.2 * limit_ms)


def test_more_than_a_deployment_serves_overruns_without_any_limit() -> None:
    asked = _asked(low_batch())
    flood = replace(asked, arrivals=replace(asked.arrivals, requests_per_s=1e6))
    unlimited = (None, None, None, None)
    assert overruns([(asked, unlimited), (flood, unlimited)], MARKET) == [False, True]


def _asked(seen: Evidence) -> LatencyQuery:
    run, now = Forecasts(), llama(1, (1, 2))
    load, requests = measured_load(seen), run.arrivals(seen)
    assert not isinstance(requests, Exception)
    return LatencyQuery(now, load.load, requests.arrivals, run.calibration(now, load, MARKET))


def test_each_estimate_shows_how_well_its_deployment_was_predicted_so_far() -> None:
    points = [OperatingPoint(60 * n, batch, 0.02 + 0.001 * batch, 1600, 400) for n, batch in enumerate((1, 2, 4, 8))]
    before, known = replicated()
    seen = {key: deployment.with_points(points) for key, deployment in known.deployments.items()}
    (service,) = before.services
    after = before.edit(service.but(weight_dtype="fp8"))
    plain, shown = (estimate(before, after, context) for context in (known, replace(known, deployments=seen)))
    record = "on 4 minutes of this deployment, each predicted before it was seen"
    assert any(assumption.startswith(record) for assumption in shown.assumptions)
    assert not any("each predicted before" in assumption for assumption in plain.assumptions)


def counted(name: str, asked: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Note in `asked` how many forecasts each call of a function computes."""
    forecast = getattr(forecasts, name)

    def count(some: Sequence[Any], *more: Any) -> Any:
        asked.append((name, len(some)))
        return forecast(some, *more)

    monkeypatch.setattr(forecasts, name, count)


def test_nothing_is_forecast_alone_that_pricing_asks_of_every_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = replicated()
    before = replace(before, services=(replace(before.services[0], min_replicas=3),))
    known = replace(known, deployments={n: low_batch(waiting=n / 100, ttft_s=0.3) for n in (1, 2, 3)})
    (service,) = before.services
    needed = before.edit(service.but(weight_dtype="fp8").resized())  # all three stay
    moved = before.edit(service.on(Placement(provider="bedrock", purchase="per_token")))
    asked: list[tuple[str, int]] = []
    prepare(before, [needed, moved], known)
    for name in ("compare_all", "overruns", "likely_latencies", "latencies"):
        counted(name, asked, monkeypatch)
    priced = estimate(before, needed, known)
    assert asked == []
    prepare_shown([priced], known)
    assert [asked_for for asked_for in asked if asked_for[1]] == [("latencies", 6)]
    asked.clear()
    assert priced.slo == "pass"
    assert estimate(before, moved, known).break_even is not None
    assert asked == []


def test_the_busiest_replica_stands_for_all_where_their_number_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = replicated()
    seen = {key: low_batch(busy=busy) for key, busy in ((1, 0.2), (2, 0.3), (3, 0.1))}
    known = replace(known, deployments=seen)
    (service,) = before.services
    after = before.edit(service.but(weight_dtype="fp8").resized())
    asked: list[tuple[str, int]] = []
    counted("compare_all", asked, monkeypatch)
    prepare(before, [after], known)
    priced = estimate(before, after, known)
    assert priced.replicas == (3, 1)
    assert sum(count for _, count in asked) == 1
    assert priced.latency is not None and priced.latency.ends is not None
    assert priced.latency.ends[0].deployment.deployment_id == 2


def test_a_change_that_misses_its_slo_is_refused_by_its_likely_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    before, known = replicated()
    known = replace(known, slo=Slo(tpot_p95_ms=1))
    (service,) = before.services
    after = before.edit(service.on(Placement(accelerator="L40S")).but(weight_dtype="fp8"))
    asked: list[tuple[str, int]] = []
    counted("latencies", asked, monkeypatch)
    prepare(before, [after], known)
    refused = estimate(before, after, known)
    assert refused.infeasible is not None and refused.slo == "fail"
    assert re.fullmatch(r"TPOT p95 would be about \d+ ms \(28 ms now\), with an SLO of 1 ms", refused.infeasible)
    assert asked == []
