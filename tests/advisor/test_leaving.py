"""Services of one host that lower the bill only if all of them leave it."""

from dataclasses import asdict

import pytest

from pertoken.advisor.leaving import Departure, best_by_service
from pertoken.advisor.plan.compose import compose
from pertoken.advisor.present import Present
from pertoken.advisor.run import advice_of, leave_hosts
from pertoken.plugins.hardware.move_accelerator import move_accelerator
from pertoken.plugins.market.smaller_instance import smaller_instance
from pertoken.proof.recommendation import LEAVE_HOST, State
from pertoken.rule import Fleet
from pertoken.state.deployment import Placement
from pertoken.state.service import Service
from pertoken.units import HOURS_PER_MONTH
from tests.advisor.gathered import advised, gathered, rule_source
from tests.advisor.plan.fleets import small
from tests.deployments import MARKET, model
from tests.savings.fleets import AWS_H100, context, fleet_of, host, llama, low_batch

P5 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5", 8, "on_demand")
QWEN = model("Qwen3-8B")
DEVICE = AWS_H100 * HOURS_PER_MONTH


def state(*shapes: tuple[int, int], fleet: Fleet | None = None) -> Present:
    """Return services on instances of eight devices, of which most are unused."""
    fleet = fleet or small(*(shapes or ((1, 0), (1, 1))), devices=8, placement=P5)
    seen = low_batch(tpot_s=0.009, ttft_s=0.05, busy_generated_tok_s=200)
    return gathered(fleet, context(fleet, seen, market=MARKET))


def test_services_whose_move_saves_nothing_alone_leave_their_host_together() -> None:
    rows = advised(state(), smaller_instance)
    alone = [row for row in rows if row.rule_id == "smaller-instance"]
    assert [row.state for row in alone] == [State.REFUSED] * 2
    (together,) = [row for row in rows if row.rule_id == LEAVE_HOST]
    assert (together.state, together.target_kind, together.target) == (State.OPEN, "host", "gpu-1")
    (variant,) = together.variants
    assert variant.net is not None and variant.net[1] == (8 - 2) * DEVICE
    assert variant.released == ("gpu-1",)
    assert variant.title == (
        "release gpu-1; chat-1: p5.48xlarge → p5.4xlarge; chat-2: p5.48xlarge → p5.4xlarge: "
        "2 × p5.4xlarge at aws us-east-1"
    )


def test_an_instance_used_in_part_gets_the_smaller_one_of_the_same_gpu_first_and_then_another_gpu() -> None:
    moves, smaller = advised(state((2, 0)), move_accelerator), advised(state((2, 0)), smaller_instance)
    rows = advised(state((2, 0)), move_accelerator, smaller_instance)
    assert [row.rule_id for row in rows[:2]] == ["smaller-instance", "move-accelerator"]
    (moved,), (shrunk,) = moves, smaller
    assert moved.best is not None and moved.best.net is not None and moved.best.tier is not None
    assert shrunk.best is not None and shrunk.best.net is not None and shrunk.best.tier is None
    assert shrunk.best.net[0] < moved.best.net[0] < 2 * shrunk.best.net[0]


def test_a_plan_holds_the_move_of_all_services_and_saves_what_its_row_saves() -> None:
    gathered_state = state()
    rows = advised(gathered_state, smaller_instance)
    plan = compose(gathered_state, rows)
    assert [step.rule_id for step in plan.steps] == [LEAVE_HOST]
    (row,) = [row for row in rows if row.rule_id == LEAVE_HOST]
    assert row.best is not None and plan.bankable == row.best.net


def test_a_host_with_a_service_that_cannot_leave_is_kept() -> None:
    assert leave_hosts([Departure("chat-1", "smaller-instance", 1, "{}")], state()) == []


def test_a_service_alone_on_its_host_has_no_such_advice() -> None:
    rows = advised(state((2, 0)), smaller_instance)
    assert {row.rule_id for row in rows} == {"smaller-instance"}


def test_hosts_of_the_same_services_are_left_by_one_change() -> None:
    hosts = [host(1, 8, P5), host(2, 8, P5)]
    services = [
        Service(
            f"chat-{number}",
            tuple(
                llama(10 * number + one.host_id, (one.device_ids[number],), f"chat-{number}", model=QWEN, placement=P5)
                for one in hosts
            ),
        )
        for number in (1, 2)
    ]
    rows = advised(state(fleet=fleet_of(services, hosts)), smaller_instance)
    (together,) = [row for row in rows if row.rule_id == LEAVE_HOST]
    assert together.best is not None and together.best.net is not None
    assert (together.target, together.best.released) == ("gpu-1", ("gpu-1", "gpu-2"))
    assert together.best.net[1] == (16 - 4) * DEVICE


@pytest.mark.parametrize("shards", [2, 3])
def test_services_of_different_shards_leave_together(shards: int) -> None:
    sources = [rule_source(smaller_instance)]
    whole, split = (advice_of(sources, state(), shards=count)[0] for count in (1, shards))
    assert LEAVE_HOST in {row.rule_id for row in whole}
    assert [asdict(row) for row in split] == [asdict(row) for row in whole]


def test_the_departure_that_saves_most_counts() -> None:
    cheap, dear = Departure("chat", "b", 5, "{}"), Departure("chat", "a", 3, "{}")
    assert best_by_service([dear, cheap]) == {"chat": cheap}
