"""Effect of each assumption on an estimate."""

from dataclasses import replace

import pytest

from pertoken.savings.context import EnergyPrice
from pertoken.savings.estimate import estimate
from pertoken.savings.sensitivity import DroppableSteps, Sensitivity, sensitivities
from pertoken.state.deployment import Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo, to
from pertoken.units import NANO_USD
from tests.savings.fleets import FOUR, ONE, context, evidence, fleet_of, host, llama, low_batch, usd_month

CHAT = FOUR.services[0]
FASTER = FOUR.edit(CHAT.but(weight_dtype="fp8"))
FP8 = FOUR.edit(CHAT.but(weight_dtype="fp8").resized())


def named(sensitivities: tuple[Sensitivity, ...], start: str) -> Sensitivity:
    (match,) = [sensitivity for sensitivity in sensitivities if sensitivity.assumption.startswith(start)]
    return match


def test_assumptions_are_sorted_by_how_much_they_move_the_result() -> None:
    known = context(FOUR, listed={device.device_id: "list price" for device in FOUR.devices})
    assumptions = sensitivities(FOUR, FASTER, known)
    assert len(assumptions) > 1
    assert [sensitivity.swing for sensitivity in assumptions] == sorted(
        (sensitivity.swing for sensitivity in assumptions), reverse=True
    )
    assert all(sensitivity.swing > (0, 0) for sensitivity in assumptions)


def test_a_list_price_that_is_not_paid_scales_the_dollars() -> None:
    known = context(FOUR, listed={device.device_id: "list price" for device in FOUR.devices})
    base = estimate(FOUR, FP8, known).net
    sensitivity = named(sensitivities(FOUR, FP8, known), "the list price is paid")
    assert base is not None
    assert sensitivity.low.bankable == pytest.approx(0.7 * base[1], rel=1e-6)
    assert sensitivity.high.bankable == base[1]
    assert sensitivity.swing[0] == base[1] - sensitivity.low.bankable
    assert (sensitivity.low.value, sensitivity.high.value) == ("70% of it", "100% of it")


def test_configured_prices_are_no_assumption() -> None:
    assumptions = sensitivities(FOUR, FP8, context(FOUR))
    assert not any("list price" in sensitivity.assumption for sensitivity in assumptions)


def test_more_load_makes_time_that_is_saved_worth_more() -> None:
    sensitivity = named(sensitivities(FOUR, FASTER, context(FOUR)), "the load stays")
    assert (sensitivity.low.value, sensitivity.high.value) == ("0.8 times the load", "1.25 times the load")
    assert 0 < sensitivity.low.capacity < sensitivity.high.capacity


def test_unmeasured_lengths_are_assumptions_and_measured_ones_are_not() -> None:
    lengths = ("generated_len", "prompt_len", "prompt_tok_s")
    seen = {name: series.mean for name, series in low_batch(running=20).items() if name not in lengths}
    unseen = sensitivities(FOUR, FASTER, context(FOUR, evidence(**seen)))
    assert named(unseen, "211 tokens generated per request").swing > (0, 0)
    assert not any("tokens" in sensitivity.assumption for sensitivity in sensitivities(FOUR, FASTER, context(FOUR)))


def test_a_rules_expectation_is_tried_at_both_ends() -> None:
    faster = CHAT.but(engine_version="0.99").expecting(1.1, 1.4, 1.8, "a changelog")
    sensitivity = named(sensitivities(FOUR, FOUR.edit(faster), context(FOUR)), "the rule's expectation: a changelog")
    assert sensitivity.low.capacity < sensitivity.high.capacity


def test_a_proposed_demand_is_tried_at_half_and_more() -> None:
    service = ONE.services[0]
    after = ONE.edit(service.serving(response_cache_share=to(0.2, "a person", confirmed=True)))
    sensitivity = named(sensitivities(ONE, after, context(ONE)), "response cache share of chat as proposed")
    base = estimate(ONE, after, context(ONE)).capacity
    assert base is not None
    assert sensitivity.low.capacity == pytest.approx(0.5 * base[1], rel=0.01)
    assert sensitivity.high.capacity == pytest.approx(1.5 * base[1], rel=0.01)


def test_energy_is_an_assumption_of_owned_hardware_alone() -> None:
    def owned(purchase: str) -> tuple[Sensitivity, ...]:
        fleet = replace(
            ONE, hosts=tuple(replace(e, placement=replace(e.placement, purchase=purchase)) for e in ONE.hosts)
        )
        capped = fleet.edit(fleet.services[0].but(power_cap_w=400))
        price = EnergyPrice(NANO_USD // 5, 1.3)
        return sensitivities(fleet, capped, context(fleet, low_batch(power_w=1300, energy_w=1300), energy=price))

    assert named(owned("owned"), "the price of energy").swing > (0, 0)
    assert not any("energy" in sensitivity.assumption for sensitivity in owned("on_demand"))


def test_a_change_without_a_price_has_no_sensitivity() -> None:
    after = FOUR.edit(CHAT.but(engine_version="9.9"))
    assert sensitivities(FOUR, after, context(FOUR)) == ()


def test_an_end_at_which_nothing_would_be_saved_states_why() -> None:
    near = replace(CHAT, slo=replace(CHAT.slo, tpot_p95_ms=30))
    fleet = replace(FOUR, services=(near,))
    busy = low_batch(generated_tok_s=1500, busy_generated_tok_s=1600, running=60, busy=0.94, requests_s=3.75)
    assumptions = sensitivities(fleet, fleet.edit(near.but(weight_dtype="fp8").resized()), context(fleet, busy))
    ends = [end for sensitivity in assumptions for end in (sensitivity.low, sensitivity.high)]
    assert all((end.bankable, end.capacity) == (0, 0) for end in ends if end.refused is not None)


def test_a_step_that_is_refused_at_one_end_drops_out_of_that_end_alone() -> None:
    tight = [llama(n, (10 * n, 10 * n + 1), gpu_memory_utilization=None) for n in range(1, 5)]
    loose = [llama(n, (10 * n, 10 * n + 1), "code") for n in range(5, 9)]
    chat = Service("chat", tuple(tight), CHAT.demand, min_replicas=4, slo=Slo(tpot_p95_ms=200.0))
    code = Service("code", tuple(loose), CHAT.demand)
    fleet = fleet_of([chat, code], [host(number) for number in range(1, 9)])
    changes = (chat.but(weight_dtype="fp8", tp=1, max_model_len=1024).resized(), code.resized())

    def extended(chosen: frozenset[int], step: int) -> Fleet:
        after = fleet
        for change in sorted(chosen | {step}):
            after = after.edit(changes[change])
        return after

    both, known = extended(frozenset({0}), 1), context(fleet)
    memory = named(
        sensitivities(fleet, both, known, DroppableSteps(((0,), (1,)), extended)), "gpu_memory_utilization is 0.9"
    )
    assert memory.low.refused is None and memory.low.bankable == 3 * usd_month(2 * 6.88)
    assert len(memory.low.without) == 1 and memory.low.without[0].startswith("it would not start")
    assert memory.high.bankable == 5 * usd_month(2 * 6.88) and memory.high.without == ()
    alone = named(sensitivities(fleet, both, known), "gpu_memory_utilization is 0.9")
    assert alone.low.bankable == 0 and (alone.low.refused or "").startswith("it would not start")


def test_the_price_of_devices_elsewhere_is_an_assumption_of_a_move() -> None:
    moved = FOUR.edit(CHAT.on(Placement(purchase="spot"), all_but=1))
    elsewhere = named(sensitivities(FOUR, moved, context(FOUR)), "devices elsewhere")
    saving = estimate(FOUR, moved, context(FOUR)).saving
    assert saving is not None and elsewhere.ends is None
    assert elsewhere.high.bankable < saving.net[1] < elsewhere.low.bankable
