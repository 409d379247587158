"""What proposals save, in whole hosts."""

from dataclasses import replace

import pytest

from pertoken.savings.context import NOTHING, EnergyPrice
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.demand import times, to
from pertoken.state.errors import InvalidEdit
from pertoken.state.fleet import Fleet
from pertoken.state.placement import Commitment, Placement
from pertoken.state.schedule import asleep, off
from pertoken.state.service import Service, Slo
from tests.savings.fleets import AWS, AWS_H100, NOW_TS, context, fleet_of, host, llama, low_batch, replicas, usd_month

ONE, FOUR = replicas(1), replicas(4)
DAY_S = 86_400


def priced(fleet: Fleet, proposal: object, **fields: object) -> Estimate:
    return estimate(fleet, fleet.edit(proposal), context(fleet, **fields))  # type: ignore[arg-type]


def chat(fleet: Fleet) -> Service:
    return fleet.service("chat")


# -- speed without fewer hosts -----------------------------------------------------------------------------------------


def test_a_faster_model_on_a_half_idle_host_banks_nothing() -> None:
    found = priced(ONE, chat(ONE).but(weight_dtype="fp8"))
    assert found.bankable == NOTHING and found.released == ()
    assert found.capacity is not None and 0 < found.capacity[0] < found.capacity[1] < found.capacity[2]
    assert found.capacity[2] < 0.6 * usd_month(2 * 6.88)


def test_a_rank_fewer_on_a_host_that_stays_is_capacity() -> None:
    found = priced(ONE, chat(ONE).but(weight_dtype="fp8", tp=1), seen=low_batch(running=1, generated_tok_s=10))
    assert found.bankable == NOTHING
    assert found.capacity is not None and found.capacity[0] >= usd_month(6.88)
    assert any("1 of 2 devices of gpu-1 become free" in said for said in found.against)


def test_without_a_price_there_are_no_dollars_and_the_way_to_set_one() -> None:
    found = priced(ONE, chat(ONE).but(weight_dtype="fp8"), price=None)
    assert found.bankable is None and found.unpriced is not None
    assert "no price is set for H100 #0" in found.unpriced and "pertoken prices set" in found.unpriced


def test_the_present_is_no_proposal() -> None:
    with pytest.raises(InvalidEdit, match="equals the present"):
        priced(ONE, chat(ONE).but(tp=2))


# -- replicas ----------------------------------------------------------------------------------------------------------


def test_a_half_idle_service_of_four_replicas_releases_whole_hosts() -> None:
    resized = priced(FOUR, chat(FOUR).resized())
    assert resized.replicas is not None and resized.replicas[0] == 4 and resized.replicas[1] < 4
    assert resized.bankable is not None and resized.bankable[1] == (4 - resized.replicas[1]) * usd_month(2 * 6.88)
    assert len(resized.released) == 4 - resized.replicas[1]
    both = priced(FOUR, chat(FOUR).but(weight_dtype="fp8").resized())
    assert both.bankable is not None and both.bankable[1] >= resized.bankable[1]


def test_fp8_that_frees_two_replicas_banks_their_hosts() -> None:
    busy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    found = priced(FOUR, chat(FOUR).but(weight_dtype="fp8").resized(), seen=busy)
    plain = priced(FOUR, chat(FOUR).resized(), seen=busy)
    assert found.replicas is not None and found.replicas[1] <= 3
    assert found.bankable is not None and found.bankable[1] > (plain.bankable or NOTHING)[1]


def test_minimum_replicas_keep_their_hosts_and_say_so() -> None:
    fleet = replicas(4, min_replicas=4)
    resized = priced(fleet, chat(fleet).resized())
    assert resized.infeasible is not None and "4 replicas are the minimum set for chat" in resized.infeasible
    faster = priced(fleet, chat(fleet).but(weight_dtype="fp8").resized())
    assert faster.bankable == NOTHING and any("4 replicas are the minimum" in said for said in faster.against)
    assert faster.capacity is not None and faster.capacity[1] > 0


def test_spare_replicas_are_kept_beyond_the_demand() -> None:
    without = priced(FOUR, chat(FOUR).resized()).replicas
    fleet = replicas(4, spare_replicas=1)
    spared = priced(fleet, chat(fleet).resized()).replicas
    assert without is not None and spared is not None and spared[1] == without[1] + 1


def test_a_number_of_replicas_that_does_not_hold_the_demand_is_refused() -> None:
    heavy = low_batch(generated_tok_s=1200, busy_generated_tok_s=1300, running=60, prompt_tok_s=4800, requests_s=3.0)
    found = priced(FOUR, chat(FOUR).scaled_to(1), seen=heavy)
    assert found.infeasible is not None and "1 replicas do not hold the p95 demand" in found.infeasible


def test_an_slo_needs_more_replicas_than_the_demand_alone() -> None:
    busy = low_batch(generated_tok_s=150, busy_generated_tok_s=250, running=8, prompt_tok_s=600, requests_s=0.375)
    loose = priced(FOUR, chat(FOUR).resized(), seen=busy)
    tight = priced(FOUR, chat(FOUR).resized(), seen=busy, slo=Slo(tpot_p95_ms=40.0, ttft_p95_ms=900.0))
    assert loose.replicas is not None
    assert tight.infeasible is not None or (tight.replicas is not None and tight.replicas[1] >= loose.replicas[1])


def test_replicas_on_one_instance_release_nothing_until_all_of_it_is_free() -> None:
    one = host(1, 8, replace(AWS, instance_type="p5.48xlarge"))
    deployments = tuple(llama(at, one.device_ids[2 * at : 2 * at + 2]) for at in range(4))
    fleet = fleet_of([Service("chat", deployments)], [one])
    found = priced(fleet, chat(fleet).resized())
    assert found.bankable == NOTHING and found.replicas is not None
    free = 2 * (4 - found.replicas[1])
    assert found.capacity is not None and found.capacity[1] == free * usd_month(6.88)
    assert any(f"{free} of 8 devices of gpu-1 (p5.48xlarge, one unit of the bill)" in said for said in found.against)


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_five_idle_hosts_bank_their_price_once() -> None:
    fleet = fleet_of([], [host(each) for each in range(1, 6)])
    each = [priced(fleet, fleet.release(number)) for number in range(1, 6)]
    assert [found.released for found in each] == [(f"gpu-{number}",) for number in range(1, 6)]
    total = sum(found.bankable[1] for found in each if found.bankable)
    assert total == usd_month(10 * 6.88) and round(total / 1e9) == 50_224
    everything = fleet
    for number in range(1, 6):
        everything = everything.release(number)
    assert estimate(fleet, everything, context(fleet)).bankable == (total, total, total)


@pytest.mark.parametrize("purchase", ["reserved", "owned"])
def test_committed_and_owned_hosts_stay_on_the_bill(purchase: str) -> None:
    fleet = fleet_of([], [host(1, placement=replace(AWS, purchase=purchase))])
    found = priced(fleet, fleet.release(1))
    assert found.bankable == NOTHING and found.against and purchase in found.against[0]


def test_a_paid_term_counts_until_its_end() -> None:
    for end, banked in ((NOW_TS + DAY_S, False), (NOW_TS - DAY_S, True)):
        fleet = fleet_of([], [host(1, paid_until=end)])
        found = priced(fleet, fleet.release(1))
        assert (found.bankable != NOTHING) is banked


def test_a_commitment_of_the_fleet_keeps_as_many_hosts_paid_for() -> None:
    placement = replace(AWS, instance_type="p5.48xlarge")
    two = fleet_of([], [host(1, placement=placement), host(2, placement=placement)])
    commitment = Commitment("aws", "us-east-1", "p5.48xlarge", 1, AWS_H100, NOW_TS + DAY_S)
    committed = replace(two, commitments=(commitment,))
    first = committed.release(1)
    found = estimate(committed, first.release(2), context(committed))
    assert found.bankable is not None and found.bankable[1] == usd_month(2 * 6.88)
    assert any("covered by a commitment" in said for said in found.against)


def test_committing_pays_the_difference_on_the_hosts_it_covers() -> None:
    placement = replace(AWS, instance_type="p5.48xlarge")
    fleet = fleet_of([], [host(1, placement=placement)])
    cheap = Commitment("aws", "us-east-1", "p5.48xlarge", 1, AWS_H100, NOW_TS + DAY_S)
    found = priced(fleet, fleet.commit(cheap))
    assert found.bankable is not None and found.bankable[1] == usd_month(6.88)
    dear = replace(cheap, nano_usd_per_instance_hour=3 * AWS_H100)
    assert priced(fleet, fleet.commit(dear)).infeasible is not None
    other = replace(cheap, instance_type="p4d.24xlarge")
    assert "no on-demand host is a p4d.24xlarge" in (priced(fleet, fleet.commit(other)).infeasible or "")


def test_consolidating_onto_free_devices_releases_the_host_that_is_left() -> None:
    hosts = [host(1, 4), host(2, 2)]
    services = [
        Service("chat", (llama(1, (10, 11)),)),
        Service("code", (llama(2, (20, 21), "code"),)),
    ]
    fleet = fleet_of(services, hosts)
    moving = fleet.deployment(2)
    found = priced(fleet, fleet.replace(moving, moving.on_devices((12, 13))).release(2))
    assert found.released == ("gpu-2",) and found.bankable is not None and found.bankable[1] == usd_month(2 * 6.88)
    onto = priced(fleet, fleet.replace(moving, moving.on_devices((10, 11))).release(2))
    assert onto.unpriced is not None and "two engines on one device are not forecast" in onto.unpriced


# -- price alone -------------------------------------------------------------------------------------------------------


def test_spot_leaves_one_replica_and_releases_the_hosts_of_the_others() -> None:
    found = priced(FOUR, chat(FOUR).on(Placement(purchase="spot"), all_but=1))
    assert found.bankable is not None and 0 < found.bankable[1] < usd_month(3 * 2 * 6.88)
    assert found.bankable[0] < found.bankable[1] <= found.bankable[2]
    assert len(found.released) == 3 and found.capacity is not None
    assert any("taken back at 30 s" in said for said in found.against)


def test_a_dearer_accelerator_banks_nothing_and_says_what_it_costs() -> None:
    found = priced(ONE, chat(ONE).on(Placement(accelerator="B200 SXM")))
    if found.infeasible is None:
        assert found.bankable == NOTHING and any("the bill would rise by" in said for said in found.against)


def test_serverless_without_a_token_price_is_refused_with_its_reason() -> None:
    found = priced(ONE, chat(ONE).on(Placement(provider="bedrock", purchase="per_token")))
    assert found.infeasible is not None and "no token price" in found.infeasible


# -- schedules, demand, energy -----------------------------------------------------------------------------------------


def with_nights(fleet: Fleet) -> Fleet:
    hours = tuple(0.0 if hour % 24 < 6 else 1.0 for hour in range(168))
    service = chat(fleet)
    return replace(fleet, services=(replace(service, demand=replace(service.demand, requests_by_hour_of_week=hours)),))


NIGHTS = [hour for hour in range(168) if hour % 24 < 6]


def test_nights_off_bank_their_hours_and_nights_asleep_are_capacity() -> None:
    fleet = with_nights(ONE)
    found = priced(fleet, chat(fleet).scheduled(off(NIGHTS)))
    assert found.bankable is not None and found.bankable[1] == pytest.approx(usd_month(2 * 6.88) / 4, rel=1e-6)
    slept = priced(fleet, chat(fleet).scheduled(asleep(NIGHTS)))
    assert slept.bankable == NOTHING and slept.capacity is not None
    assert slept.capacity[1] == pytest.approx(usd_month(2 * 6.88) / 4, rel=1e-6)


def test_an_hour_with_requests_cannot_be_off_and_an_unseen_one_is_unpriced() -> None:
    served = priced(ONE, chat(ONE).scheduled(off([30])))
    assert served.infeasible == "0.05 requests/s came on Tuesday at 06:00 UTC: it is not idle then"
    blank = replace(chat(ONE), demand=replace(chat(ONE).demand, requests_by_hour_of_week=(None,) * 168))
    fleet = replace(ONE, services=(blank,))
    assert "record a whole week first" in (priced(fleet, blank.scheduled(off([0]))).unpriced or "")


def test_a_changed_demand_yields_a_break_even_and_no_dollars() -> None:
    found = priced(ONE, chat(ONE).serving(response_cache_share=to(0.3)))
    assert found.bankable is None and found.capacity is None
    assert found.break_even is not None and "frees 30% of its busy time" in found.break_even
    assert found.unpriced is not None and "a proposal, not a measurement" in found.unpriced
    unknown = priced(ONE, chat(ONE).serving(requests_per_s=times(0.5)))
    assert unknown.break_even is not None and "frees 50% of its busy time" in unknown.break_even


def test_a_power_cap_saves_energy_dollars_of_owned_hardware_and_none_of_rented() -> None:
    rented = priced(ONE, chat(ONE).but(power_cap_w=450))
    assert rented.bankable == NOTHING and any("whoever pays for the electricity" in said for said in rented.against)
    fleet = fleet_of([Service("chat", (llama(1, (10, 11)),))], [host(1, placement=replace(AWS, purchase="owned"))])
    unset = priced(fleet, chat(fleet).but(power_cap_w=350))
    assert unset.unpriced is not None and "energy.usd_per_kwh" in unset.unpriced
    seen = low_batch(power_w=2 * 550)
    owned = priced(fleet, chat(fleet).but(power_cap_w=350), seen=seen, energy=EnergyPrice(120_000_000, 1.3))
    assert owned.bankable is not None and 0 < owned.bankable[0] < owned.bankable[1] < usd_month(0.12)


def owned() -> Fleet:
    return fleet_of([Service("chat", (llama(1, (10, 11)),))], [host(1, placement=replace(AWS, purchase="owned"))])


def test_a_faster_model_on_owned_hardware_saves_the_energy_of_its_busy_time() -> None:
    fleet, power = owned(), EnergyPrice(120_000_000, 1.3)
    seen = low_batch(power_w=2 * 400)
    faster = priced(fleet, chat(fleet).but(weight_dtype="fp8"), seen=seen, energy=power)
    assert faster.bankable is not None and faster.capacity is not None and faster.capacity[1] > 0
    assert 0 <= faster.bankable[0] < faster.bankable[1] < faster.bankable[2]
    # Less than all that the two devices draw: 800 W at $0.12 a kilowatt-hour and a PUE of 1.3.
    assert faster.bankable[2] < usd_month(0.8 * 0.12 * 1.3)
    assert any("W while busy after the change" in said for said in faster.assumptions)
    unset = priced(fleet, chat(fleet).but(weight_dtype="fp8"), seen=seen)
    rented = priced(ONE, chat(ONE).but(weight_dtype="fp8"), seen=seen, energy=power)
    assert unset.bankable == NOTHING and rented.bankable == NOTHING


def test_a_power_cap_that_misses_the_objective_is_refused() -> None:
    fleet, seen = owned(), low_batch(power_w=2 * 550)
    known = {"seen": seen, "energy": EnergyPrice(120_000_000, 1.3)}
    found = priced(fleet, chat(fleet).but(power_cap_w=350), slo=Slo(tpot_p95_ms=28.1), **known)
    assert found.infeasible is not None and "with an SLO of 28 ms" in found.infeasible
    assert priced(fleet, chat(fleet).but(power_cap_w=350), slo=Slo(tpot_p95_ms=100.0), **known).infeasible is None


# -- what cannot be priced ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "knobs",
    [{"kv_offload_bytes": 2**30}, {"ep": 2}, {"sleep": True}, {"engine_version": "0.12"}, {"sm_clock_mhz": 1200}],
)
def test_a_knob_that_nobody_can_price_is_unpriced_and_never_zero(knobs: dict[str, object]) -> None:
    found = priced(ONE, chat(ONE).but(**knobs))
    assert found.unpriced is not None and found.bankable is None and found.capacity is None


def test_a_rule_s_own_expectation_prices_busy_time_as_assumed() -> None:
    now = chat(ONE).deployments[0]
    found = priced(ONE, now.but(engine_version="0.12").expecting(1.0, 1.25, 1.5, "release notes"))
    assert found.bankable == NOTHING and found.capacity is not None
    assert found.capacity[1] == pytest.approx(0.6 * usd_month(2 * 6.88) * 0.2, rel=1e-6)
    assert found.provenance is not None and found.provenance.label == "assumed"


def test_disaggregation_and_merges_are_measured_first() -> None:
    now = chat(FOUR).deployments[0]
    split = priced(FOUR, FOUR.replace(now, now.but(role="prefill"), now.but(role="decode")))
    assert split.unpriced is not None and "measure them in a trial" in split.unpriced
    merged = priced(FOUR, FOUR.merge(chat(FOUR).deployments[:2], now))
    assert merged.unpriced is not None and "measure it in a trial" in merged.unpriced


def test_a_layout_that_does_not_start_is_infeasible() -> None:
    found = priced(ONE, chat(ONE).but(tp=1))
    assert found.infeasible is not None and found.infeasible.startswith("it would not start")
    assert found.bankable is None
