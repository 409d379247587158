"""What each assumption of an estimate is worth."""

from dataclasses import replace

import pytest

from pertoken.savings.assumptions.sensitivity import Sensitivity, sensitivities
from pertoken.savings.context import EnergyPrice
from pertoken.savings.estimate import estimate
from pertoken.state.demand import to
from pertoken.units import NANO_USD
from tests.savings.fleets import FOUR, ONE, context, evidence, low_batch

CHAT = FOUR.services[0]
FASTER = FOUR.edit(CHAT.but(weight_dtype="fp8"))
FP8 = FOUR.edit(CHAT.but(weight_dtype="fp8").resized())


def named(found: tuple[Sensitivity, ...], start: str) -> Sensitivity:
    (match,) = [each for each in found if each.assumption.startswith(start)]
    return match


def test_assumptions_are_sorted_by_how_much_they_move_the_result() -> None:
    known = context(FOUR, listed={each.device_id: "list price" for each in FOUR.devices})
    found = sensitivities(FOUR, FASTER, known)
    assert len(found) > 1
    assert [each.swing for each in found] == sorted((each.swing for each in found), reverse=True)
    assert all(each.swing > (0, 0) for each in found)


def test_a_list_price_that_is_not_paid_scales_the_dollars() -> None:
    known = context(FOUR, listed={each.device_id: "list price" for each in FOUR.devices})
    base = estimate(FOUR, FP8, known).bankable
    found = named(sensitivities(FOUR, FP8, known), "the list price is paid")
    assert base is not None
    assert found.low.bankable == pytest.approx(0.7 * base[1], rel=1e-6)
    assert found.high.bankable == base[1]
    assert found.swing[0] == base[1] - found.low.bankable
    assert (found.low.value, found.high.value) == ("70% of it", "100% of it")


def test_prices_that_somebody_set_are_no_assumption() -> None:
    found = sensitivities(FOUR, FP8, context(FOUR))
    assert not any("list price" in each.assumption for each in found)


def test_more_load_makes_time_that_is_saved_worth_more() -> None:
    found = named(sensitivities(FOUR, FASTER, context(FOUR)), "the load stays")
    assert (found.low.value, found.high.value) == ("0.8 times the load", "1.25 times the load")
    assert 0 < found.low.capacity < found.high.capacity


def test_what_was_not_seen_is_an_assumption_and_what_was_is_none() -> None:
    lengths = ("generated_len", "prompt_len", "prompt_tok_s")
    seen = {name: each.mean for name, each in low_batch(running=30).items() if name not in lengths}
    unseen = sensitivities(FOUR, FASTER, context(FOUR, evidence(**seen)))
    assert named(unseen, "211 tokens generated per request").swing > (0, 0)
    assert not any("tokens" in each.assumption for each in sensitivities(FOUR, FASTER, context(FOUR)))


def test_a_rules_expectation_is_tried_at_both_ends() -> None:
    faster = CHAT.but(engine_version="0.99").expecting(1.1, 1.4, 1.8, "a changelog")
    found = named(sensitivities(FOUR, FOUR.edit(faster), context(FOUR)), "the rule's expectation: a changelog")
    assert found.low.capacity < found.high.capacity


def test_a_proposed_demand_is_tried_at_half_and_more() -> None:
    service = ONE.services[0]
    after = ONE.edit(service.serving(response_cache_share=to(0.2, "a person", confirmed=True)))
    found = named(sensitivities(ONE, after, context(ONE)), "response cache share of chat as proposed")
    base = estimate(ONE, after, context(ONE)).capacity
    assert base is not None
    assert found.low.capacity == pytest.approx(0.5 * base[1], rel=0.01)
    assert found.high.capacity == pytest.approx(1.5 * base[1], rel=0.01)


def test_energy_is_an_assumption_of_owned_hardware_alone() -> None:
    def owned(purchase: str) -> tuple[Sensitivity, ...]:
        fleet = replace(
            ONE, hosts=tuple(replace(e, placement=replace(e.placement, purchase=purchase)) for e in ONE.hosts)
        )
        capped = fleet.edit(fleet.services[0].but(power_cap_w=400))
        price = EnergyPrice(NANO_USD // 5, 1.3)
        return sensitivities(fleet, capped, context(fleet, low_batch(power_w=1300, energy_w=1300), energy=price))

    assert named(owned("owned"), "the price of energy").swing > (0, 0)
    assert not any("energy" in each.assumption for each in owned("on_demand"))


def test_a_change_without_a_price_has_no_sensitivity() -> None:
    after = FOUR.edit(CHAT.but(engine_version="9.9"))
    assert sensitivities(FOUR, after, context(FOUR)) == ()


def test_an_end_at_which_nothing_would_be_saved_states_why() -> None:
    near = replace(CHAT, slo=replace(CHAT.slo, tpot_p95_ms=30))
    fleet = replace(FOUR, services=(near,))
    busy = low_batch(generated_tok_s=1500, busy_generated_tok_s=1600, running=60, busy=0.94, requests_s=3.75)
    found = sensitivities(fleet, fleet.edit(near.but(weight_dtype="fp8").resized()), context(fleet, busy))
    ends = [end for each in found for end in (each.low, each.high)]
    assert all((end.bankable, end.capacity) == (0, 0) for end in ends if end.refused is not None)
