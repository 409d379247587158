from typing import Any

import pytest

from pertoken.plugins.engine.batch_limit import batch_limit
from pertoken.plugins.fleet.release_idle import release_idle
from pertoken.rule import Deployment, Evidence, FleetEvidence, InvalidEdit, Skip, propose, skip
from pertoken.testing import deployment, evidence, fleet, regime, run, service
from tests.advisor.gathered import own


def test_a_result_has_proposals_with_their_differences_refusals_and_the_series_read() -> None:
    result = run(batch_limit, "saturated")
    assert [proposal.diff.knobs(1)["max_num_seqs"] for proposal in result.proposals] == [(64, 128), (64, 256)]
    assert (result.refusals, result.blocked) == ((), ())
    assert result.read[0] == "running" and "waiting" in result.read
    assert run(batch_limit, "idle").codes == ("below-limit",)


def test_a_rule_over_the_fleet_is_run_once_with_the_evidence_of_every_part() -> None:
    (proposed,) = run(release_idle, "idle").proposals
    assert proposed.target is None and [host.name for host in proposed.diff.released] == ["gpu-3"]


def test_a_series_that_is_missing_blocks_a_rule_as_in_an_advice_run() -> None:
    state = regime(fleet(service("chat", deployment())), {"chat": evidence(running=2)})
    result = run(batch_limit, state)
    assert (result.proposals, result.refusals, result.blocked) == ((), (), ("waiting",))


def test_risk_and_effort_of_a_proposal_are_kept_and_each_deployment_is_a_target() -> None:
    def twice(now: Deployment) -> Any:
        yield propose(now.but(max_num_seqs=512), risk="latency", effort="high")
        yield skip("one-is-enough", "there is one proposal already")

    result = run(own(twice), "idle")
    assert [
        proposal.target.deployment_id for proposal in result.proposals if isinstance(proposal.target, Deployment)
    ] == [1, 2]
    assert {(proposal.risk, proposal.effort) for proposal in result.proposals} == {("latency", "high")}
    assert len(result.refusals) == 2


@pytest.mark.parametrize(
    ("value", "error"), [(42, TypeError), (Skip("NO CODE", ""), ValueError), (deployment(), InvalidEdit)]
)
def test_a_value_that_no_rule_may_yield_is_an_error(value: object, error: type[Exception]) -> None:
    def wrong(seen: FleetEvidence) -> Any:
        yield value

    with pytest.raises(error):
        run(own(wrong), "idle")


def test_a_rule_that_yields_without_end_is_stopped() -> None:
    def endless(seen: Evidence, now: Deployment) -> Any:
        while True:
            yield skip("again", "and again")

    with pytest.raises(ValueError, match="more than 1,000 values"):
        run(own(endless), "idle")
