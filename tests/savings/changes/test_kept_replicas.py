"""Changes after which every replica of a service stays."""

from dataclasses import replace

import pytest

from pertoken.savings.estimate import estimate
from pertoken.savings.slo import VERDICTS
from pertoken.state.service import Slo
from tests.savings.fleets import chat, context, low_batch, priced, replicas


def test_busy_time_becomes_free_on_every_replica() -> None:
    one, four = (priced(fleet, chat(fleet).but(weight_dtype="fp8")) for fleet in (replicas(1), replicas(4)))
    assert one.capacity is not None and four.capacity is not None
    assert one.capacity[1] > 0
    assert four.capacity[1] == pytest.approx(4 * one.capacity[1], rel=1e-6)
    assert four.replicas is None


def test_the_verdict_is_the_worst_of_all_replicas() -> None:
    before = replicas(2)
    busier = low_batch(generated_tok_s=600, busy_generated_tok_s=1000, running=30, requests_s=1.5, prompt_tok_s=2400)
    service = chat(before)
    known = replace(context(before), deployments={1: low_batch(), 2: busier})
    alone = [
        estimate(before, before.edit(deployment.but(weight_dtype="fp8")), known).latency
        for deployment in service.deployments
    ]
    likely = [
        latency.after.tpot_p95_ms[1] for latency in alone if latency and latency.after and latency.after.tpot_p95_ms
    ]
    assert len(set(likely)) == 2
    between = replace(known, slo=Slo(tpot_p95_ms=max(likely) / 1.1))
    together = estimate(before, before.edit(service.but(weight_dtype="fp8")), between)
    verdicts = [
        estimate(before, before.edit(deployment.but(weight_dtype="fp8")), between).slo
        for deployment in service.deployments
    ]
    assert together.slo == max(verdicts, key=VERDICTS.index) == "near_miss"
    assert any("TPOT p95 would be about" in line for line in together.against)
