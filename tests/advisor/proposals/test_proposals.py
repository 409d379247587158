"""Rows of the proposals and refusals of a rule: what equals the present, what is equal, and what keeps its identity."""

from collections.abc import Iterator
from typing import Any

from pertoken.evidence import Evidence
from pertoken.proof.recommendation import Refusal, State, identity
from pertoken.rule import Deployment, Placement, Service, propose, skip
from tests.advisor.gathered import advised, own
from tests.advisor.hostile import GATHERED, PRICED


def test_a_proposal_that_equals_the_present_is_counted_and_not_shown() -> None:
    def same(service: Service) -> Iterator[Any]:
        yield service
        yield service.but(tp=service.deployments[0].tp)

    (row,) = advised(PRICED, own(same))
    assert (row.state, row.ignored) == (State.REFUSED, 2)
    assert row.refusals == (Refusal("equals-present", "already so: tp 2"),)


def test_a_refusal_of_the_present_gives_each_value_that_a_rule_set_again() -> None:
    def same(service: Service) -> Iterator[Any]:
        now = service.deployments[0]
        yield service.but(weight_dtype=now.weight_dtype).scaled_to(len(service.deployments))
        yield service.but(tp=now.tp, weight_dtype=now.weight_dtype)

    def unnamed(service: Service) -> Iterator[Any]:
        yield service

    (row,) = advised(PRICED, own(same))
    assert row.refusals == (Refusal("equals-present", "already so: 3 replicas, weights bf16, tp 2"),)
    (row,) = advised(PRICED, own(unnamed))
    assert row.refusals == (Refusal("equals-present", "proposals that equal the present state: 1"),)


def test_refusals_stand_beside_proposals_with_their_codes() -> None:
    def both(service: Service) -> Iterator[Any]:
        yield skip("too-small", "eight bits are not enough")
        yield propose(service.on(Placement(purchase="spot")), risk="quality", effort="high", requires=("use-spot",))
        yield skip("too-small", "four bits are not enough")

    (row,) = advised(PRICED, own(both))
    assert row.state is State.OPEN
    assert [(refusal.code, refusal.reason) for refusal in row.refusals] == [
        ("too-small", "eight bits are not enough; four bits are not enough")
    ]
    best = row.best
    assert best is not None and (best.risk, best.effort, best.requires) == ("quality", "high", ("use-spot",))


def test_too_many_proposals_are_a_broken_rule() -> None:
    def many(now: Deployment) -> Iterator[Any]:
        for number in range(1, 10**6):
            yield now.but(max_num_seqs=number)

    rows = advised(GATHERED, own(many))
    assert {row.state for row in rows} == {State.FAILED}
    assert all("more than 1000 proposals" in (row.reason or "") for row in rows)


def test_equal_proposals_are_one_variant_and_the_best_comes_first() -> None:
    def two(service: Service) -> Iterator[Any]:
        yield service.on(Placement(purchase="spot"), all_but=2)
        yield service.on(Placement(purchase="spot"), all_but=1)
        yield service.on(Placement(purchase="spot"), all_but=1).expecting(1, 1, 1, "nothing")

    (row,) = advised(PRICED, own(two))
    assert [variant.title for variant in row.variants] == [
        "on_demand → spot on 2 of 3 replicas: 2 × p5.48xlarge spot at aws us-east-1",
        "on_demand → spot on 1 of 3 replicas: 1 × p5.48xlarge spot at aws us-east-1",
    ]
    assert len({variant.key for variant in row.variants}) == 2


def test_a_row_keeps_its_identity_whatever_state_it_is_in() -> None:
    def asks(seen: Evidence, service: Service) -> Iterator[Any]:
        if seen.e2e_s.p50 > 1:
            yield skip("slow", "requests take long")
        yield service.on(Placement(purchase="spot"))

    def raises(service: Service) -> Iterator[Any]:
        raise ValueError("broken")

    def refuses(service: Service) -> Iterator[Any]:
        yield skip("no", "never")

    def opens(service: Service) -> Iterator[Any]:
        yield service.on(Placement(purchase="spot"))

    rows = [advised(PRICED, own(body))[0] for body in (asks, raises, refuses, opens)]
    assert [row.state for row in rows] == [State.BLOCKED, State.FAILED, State.REFUSED, State.OPEN]
    assert len({row.recommendation_id for row in rows}) == 1
    assert {(row.target_kind, row.target_key, row.life) for row in rows} == {("service", "chat", 1)}
    target = rows[0]
    assert target.recommendation_id != identity("other-rule", target.target_kind, target.target_key)
