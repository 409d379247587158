"""Several models on one device: each is priced by its share of the busy time, and no device is given back twice."""

from dataclasses import replace

import pytest

from pertoken.evidence import Evidence
from pertoken.savings.context import NOTHING, Context
from pertoken.savings.estimate import estimate
from pertoken.savings.outcome import busy_cost
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from tests.savings.fleets import AWS_H100, context, fleet_of, host, llama, low_batch, usd_month


def shared(chat_busy: float, code_busy: float) -> tuple[Fleet, Context]:
    """Two 70B on the same two devices of one host, at $6.88 a device-hour."""
    both = [Service("chat", (llama(1, (10, 11)),)), Service("code", (llama(2, (10, 11), "code"),))]
    fleet = fleet_of(both, [host(1), host(2)])
    known = context(fleet)
    busy = {1: low_batch(busy=chat_busy), 2: low_batch(busy=code_busy)}
    return fleet, replace(known, deployments=busy)


def cost(fleet: Fleet, known: Context, number: int) -> float:
    one = fleet.deployment(number)
    return busy_cost(fleet, one, one.device_ids, known).nano_usd_per_hour


def test_engines_that_take_turns_cost_their_own_busy_time() -> None:
    fleet, known = shared(0.5, 0.25)
    assert cost(fleet, known, 1) == pytest.approx(2 * AWS_H100 * 0.5)
    assert cost(fleet, known, 2) == pytest.approx(2 * AWS_H100 * 0.25)


def test_engines_that_overlap_never_cost_more_than_the_device_together() -> None:
    fleet, known = shared(0.9, 0.6)
    assert cost(fleet, known, 1) == pytest.approx(2 * AWS_H100 * 0.9 / 1.5)
    assert cost(fleet, known, 1) + cost(fleet, known, 2) == pytest.approx(2 * AWS_H100)


def test_a_faster_model_on_a_shared_device_frees_its_part_and_banks_nothing() -> None:
    fleet, known = shared(0.9, 0.6)
    alone = fleet_of(fleet.services[:1], fleet.hosts)
    faster = estimate(fleet, fleet.edit(fleet.service("chat").but(weight_dtype="fp8")), known)
    lonely = estimate(alone, alone.edit(alone.service("chat").but(weight_dtype="fp8")), known)
    assert faster.net == NOTHING and faster.capacity is not None and lonely.capacity is not None
    assert faster.capacity[1] == pytest.approx(lonely.capacity[1] / 1.5, rel=1e-6)
    assert any(
        "60% of the time of H100 #0 is its share beside Llama-3.3-70B" in assumption
        for assumption in faster.assumptions
    )
    assert not any("is its share beside" in assumption for assumption in lonely.assumptions)


def test_a_rank_fewer_on_a_shared_device_frees_its_busy_time_and_not_the_device() -> None:
    fleet, known = shared(0.3, 0.3)
    priced = estimate(fleet, fleet.edit(fleet.service("chat").but(weight_dtype="fp8", tp=1)), known)
    assert priced.net == NOTHING and priced.capacity is not None
    assert priced.capacity[1] < usd_month(2 * 6.88 * 0.3) and priced.capacity[1] >= usd_month(6.88 * 0.3)


def test_a_shared_host_is_released_only_when_its_last_model_leaves() -> None:
    fleet, known = shared(0.5, 0.25)
    chat, code = (fleet.deployment(literal) for literal in (1, 2))
    one = fleet.replace(chat, chat.on_devices((20, 21)))
    assert estimate(fleet, one, known).net == NOTHING
    both = one.replace(code, code.on_devices((20, 21)))
    together = estimate(fleet, both.release(1), known)
    assert together.released == ("gpu-1",) and together.net is not None
    assert together.net[1] == usd_month(2 * 6.88)


def test_two_models_that_each_reserve_most_of_the_memory_cannot_share_a_device() -> None:
    apart = [Service("chat", (llama(1, (10, 11)),)), Service("code", (llama(2, (20, 21), "code"),))]
    fleet = fleet_of(apart, [host(1), host(2), host(3)])
    chat, code = (fleet.deployment(literal) for literal in (1, 2))
    stacked = fleet.replace(chat, chat.on_devices((30, 31)))
    stacked = stacked.replace(code, code.on_devices((30, 31))).release(1).release(2)
    priced = estimate(fleet, stacked, context(fleet))
    assert priced.net is None and "would reserve 180% of one device's memory" in (priced.infeasible or "")


def test_without_the_busy_time_of_all_there_is_no_share() -> None:
    fleet, known = shared(0.5, 0.25)
    unknown = replace(known, deployments={1: known.deployments[1], 2: Evidence({})})
    priced = estimate(fleet, fleet.edit(fleet.service("chat").but(weight_dtype="fp8")), unknown)
    assert priced.capacity is None and "of Llama-3.3-70B, which shares its devices" in (priced.unpriced or "")


def test_leaving_a_shared_device_for_another_accelerator_releases_nothing_alone() -> None:
    fleet, known = shared(0.5, 0.25)
    moved = fleet.edit(fleet.service("chat").on(Placement(purchase="spot")))
    priced = estimate(fleet, moved, known)
    assert priced.released == () and (priced.net or NOTHING)[1] <= 0
