from typing import Any

import pytest

from pertoken.plugins.engine.right_size_parallelism import right_size_parallelism
from pertoken.rule import FEWEST, Placement, Service
from pertoken.state.service import Slo
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, service

SEEN = {"busy": 0.7, "kv_use": 0.05, "tpot_s": 0.02}
L40S = Placement("aws", "us-east-1", accelerator="L40S", purchase="on_demand")


def ran(replicas: int = 1, slo: Slo | None = None, seen: dict[str, float] | None = None, **knobs: Any) -> Result:
    of: dict[str, Any] = {"served": "Llama-3.1-8B", "tp": 4} | knobs
    made = service("chat", *[deployment(**of)] * replicas, slo=slo or Slo())
    return run(right_size_parallelism, regime(fleet(made, link=None), {"chat": evidence(**{**SEEN, **(seen or {})})}))


def changes(result: Result) -> list[dict[str, Any]]:
    return [{name: new for name, (_, new) in proposal.diff.knobs(1).items()} for proposal in result.proposals]


def test_fewer_ranks_are_resized_or_become_copies_on_the_same_devices() -> None:
    result = ran(replicas=2)
    assert changes(result) == [{"tp": 2}, {"tp": 2, "dp": 2}, {"tp": 1}, {"tp": 1, "dp": 4}]
    states = [proposal.state for proposal in result.proposals]
    assert [state.replicas for state in states if isinstance(state, Service)] == [FEWEST, None, FEWEST, None]
    assert {(proposal.risk, proposal.effort) for proposal in result.proposals} == {("latency", "medium")}


def test_engines_without_copies_get_fewer_ranks_only() -> None:
    assert changes(ran(engine="tgi")) == [{"tp": 2}, {"tp": 1}]


def test_it_never_goes_below_the_ranks_that_hold_the_weights() -> None:
    assert changes(ran(served="Llama-3.3-70B")) == [{"tp": 2}, {"tp": 2, "dp": 2}]
    assert ran(served="Llama-3.3-70B", tp=2).codes == ("fewest-ranks",)


def test_ranks_that_talk_over_pcie_become_stages() -> None:
    layouts = ran(served="Llama-3.3-70B", tp=4, placement=L40S)
    assert changes(layouts) == [{"tp": 2, "pp": 2}]
    assert ran(served="Llama-3.3-70B", tp=4, placement=L40S, engine="tgi").codes == ("fewest-ranks",)


def test_experts_that_every_rank_cuts_are_split_over_the_ranks() -> None:
    layouts = ran(served="Qwen3-235B-A22B", tp=8, ep=1)
    assert changes(layouts) == [{"ep": 8}]
    assert ran(served="Qwen3-235B-A22B", tp=8, ep=8).codes == ("fewest-ranks",)
    assert ran(served="Qwen3-235B-A22B", tp=8, ep=None).codes == ("fewest-ranks",)


@pytest.mark.parametrize(
    ("knobs", "seen", "code"),
    [
        ({"tp": 1}, {}, "one-device"),
        ({}, {"busy": 0.01}, "hardly-busy"),
        ({}, {"kv_use": 0.8}, "kv-cache-full"),
        ({"placement": Placement()}, {}, "device-unknown"),
        ({"weight_dtype": None}, {}, "weights-unknown"),
        ({"engine": "ollama"}, {}, "engine-decides"),
    ],
)
def test_it_refuses_what_it_cannot_lay_out_or_what_needs_its_devices(
    knobs: dict[str, Any], seen: dict[str, float], code: str
) -> None:
    assert ran(seen=seen, **knobs).codes == (code,)


def test_a_missed_objective_for_the_token_time_keeps_the_ranks() -> None:
    assert ran(slo=Slo(tpot_p95_ms=15.0)).codes == ("slo-missed",)
    assert ran(slo=Slo(tpot_p95_ms=40.0)).proposals


def test_replicas_that_differ_are_left() -> None:
    mixed = service("chat", deployment(tp=4), deployment(tp=2))
    result = run(right_size_parallelism, regime(fleet(mixed), {"chat": evidence(**SEEN)}))
    assert result.codes == ("replicas-differ",)


def test_links_that_drivers_report_count_before_those_that_are_listed() -> None:
    made = service("chat", deployment("Llama-3.3-70B", tp=4, placement=L40S))
    by_nvlink = regime(fleet(made, link="nvlink"), {"chat": evidence(**SEEN)})
    assert run(right_size_parallelism, by_nvlink).codes == ("fewest-ranks",)
    by_pcie = regime(fleet(made, link="pcie_host"), {"chat": evidence(**SEEN)})
    assert changes(run(right_size_parallelism, by_pcie)) == [{"tp": 2, "pp": 2}]
    unknown = regime(fleet(made, link=None), {"chat": evidence(**SEEN)})
    assert changes(run(right_size_parallelism, unknown)) == [{"tp": 2, "pp": 2}]
