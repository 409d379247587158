"""Changes that save nothing but hold an objective again."""

from dataclasses import replace

import pytest

from pertoken.advisor.checks import full_batch_factor, held_again
from pertoken.plugins.engine.batch_limit import batch_limit
from pertoken.proof.recommendation import LatencyLine, State
from pertoken.savings.estimate import Estimate
from pertoken.state.diff import diff
from pertoken.state.service import Slo
from pertoken.testing import deployment, fleet, service
from pertoken.testing.builders import Load
from tests.advisor.gathered import advised, gathered
from tests.deployments import MARKET
from tests.savings.fleets import AWS_H100, NOW_TS, ONE, chat, context, low_batch

MISSED = LatencyLine("TPOT p95", (59, 60, 61), (40, 48, 58), 60, 50, "forecast")


def test_a_missed_objective_that_a_change_meets_is_named_with_its_figures() -> None:
    expected = "it saves nothing but meets the TPOT p95 objective: 60 ms measured, about 48 ms is expected"
    assert held_again([MISSED], None) == f"{expected}, and the objective is 50 ms"
    assert held_again([MISSED], 0.9) is None, "54 ms are too many"
    assert held_again([replace(MISSED, after=None)], 0.1) is None, "more would arrive than is served"


def test_another_objective_that_would_be_missed_outweighs_it_and_one_that_holds_is_no_reason() -> None:
    waits = LatencyLine("TTFT p95", (200, 300, 400), (500, 900, 1500), 250, 500, "forecast")
    assert held_again([MISSED, waits], None) is None
    assert held_again([replace(MISSED, measured_ms=45)], None) is None


def test_a_batch_cut_to_its_limit_takes_its_requests_over_its_tokens_per_second() -> None:
    known = context(ONE, low_batch(running=40))
    ratio = Estimate(throughput_ratio=(0.8, 0.9, 1.0))
    lower, higher = (diff(ONE, ONE.edit(chat(ONE).but(max_num_seqs=limit))) for limit in (30, 60))
    assert full_batch_factor(lower, ratio, known) == pytest.approx(0.75 / 0.9)
    assert full_batch_factor(higher, ratio, known) is None
    assert full_batch_factor(lower, Estimate(), known) is None


@pytest.mark.parametrize(("objective_ms", "state"), [(30, State.OPEN), (20, State.REFUSED)])
def test_a_smaller_batch_is_shown_without_money_where_it_holds_the_objective_again(
    objective_ms: float, state: State
) -> None:
    load = Load(3, 500, 300, 0.3, 0.022, 0.35, device_util=1, peak=1.1)
    present = fleet(service("chat", deployment("Llama-3.1-8B"), slo=Slo(tpot_p95_ms=objective_ms)))
    known = replace(
        context(present), deployments={1: load.evidence}, services={"chat": load.evidence}, market=MARKET, now_ts=NOW_TS
    )
    assert set(known.nano_usd_per_hour.values()) == {AWS_H100}
    (row,) = advised(gathered(present, known), batch_limit)
    assert row.state is state
    if row.best is not None:
        assert row.best.title == "batch limit 256 → 44"
        assert (row.best.net, row.best.capacity) == (None, None)
        assert row.best.unpriced is not None and "meets the TPOT p95 objective: 35 ms measured" in row.best.unpriced
    else:
        assert [refusal.code for refusal in row.refusals] == ["no-saving"]
