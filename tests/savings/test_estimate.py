"""Savings of proposals, in whole hosts."""

from dataclasses import replace

import pytest

from pertoken.provenance import Provenance
from pertoken.savings.context import NOTHING
from pertoken.savings.speed import MAX_HIGH_OVER_LOW
from pertoken.state.deployment import Commitment, InvalidEdit, Placement
from pertoken.state.service import Service
from tests.deployments import model
from tests.savings.fleets import (
    AWS,
    FOUR,
    ONE,
    chat,
    fleet_of,
    host,
    llama,
    low_batch,
    priced,
    usd_month,
)


def test_a_faster_model_on_a_half_idle_host_banks_nothing() -> None:
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8"))
    assert estimate.net == NOTHING and estimate.released == ()
    assert estimate.capacity is not None and 0 < estimate.capacity[0] < estimate.capacity[1] < estimate.capacity[2]
    assert estimate.capacity[2] < 0.6 * usd_month(2 * 6.88)


def test_a_rank_fewer_on_a_host_that_stays_is_capacity() -> None:
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8", tp=1), seen=low_batch(running=1, generated_tok_s=10))
    assert estimate.net == NOTHING
    assert estimate.capacity is not None and estimate.capacity[0] >= usd_month(6.88)
    assert any("1 of 2 devices of gpu-1 become free" in reason for reason in estimate.against)


def test_without_a_price_there_are_no_dollars_and_the_way_to_set_one() -> None:
    estimate = priced(ONE, chat(ONE).but(weight_dtype="fp8"), price=None)
    assert estimate.net is None and estimate.unpriced is not None
    assert "no price is set for H100 #0" in estimate.unpriced and "pertoken prices set" in estimate.unpriced


@pytest.mark.parametrize("knobs", [{"weight_dtype": "fp8"}, {"kv_dtype": "fp8"}])
def test_an_estimate_whose_interval_is_too_wide_banks_nothing(knobs: dict[str, str]) -> None:
    a100 = replace(AWS, accelerator="A100 80GB SXM4")
    fleet = fleet_of([Service("chat", (llama(1, (10, 11), placement=a100),))], [host(1, placement=a100)])
    estimate = priced(fleet, chat(fleet).but(**knobs))
    ratio = estimate.throughput_ratio
    assert ratio is not None and ratio[2] > MAX_HIGH_OVER_LOW * ratio[0]
    assert not (estimate.net or NOTHING)[1] and not (estimate.capacity or NOTHING)[1]
    assert ratio[1] < 1 or "the forecast is doubtful" in (estimate.to_confirm or "")


def test_the_present_is_no_proposal() -> None:
    with pytest.raises(InvalidEdit, match="equals the present"):
        priced(ONE, chat(ONE).but(tp=2))


def test_consolidating_onto_free_devices_releases_the_host_that_is_left() -> None:
    hosts = [host(1, 4), host(2, 2)]
    services = [
        Service("chat", (llama(1, (10, 11)),)),
        Service("code", (llama(2, (20, 21), "code"),)),
    ]
    fleet = fleet_of(services, hosts)
    moving = fleet.deployment(2)
    estimate = priced(fleet, fleet.replace(moving, moving.on_devices((12, 13))).release(2))
    assert estimate.released == ("gpu-2",) and estimate.net is not None and estimate.net[1] == usd_month(2 * 6.88)
    onto = priced(fleet, fleet.replace(moving, moving.on_devices((10, 11))).release(2))
    assert onto.infeasible is not None and "would reserve 180% of one device's memory" in onto.infeasible


def test_disaggregation_is_measured_first() -> None:
    now = chat(FOUR).deployments[0]
    split = priced(FOUR, FOUR.replace(now, now.but(role="prefill"), now.but(role="decode")))
    assert split.unpriced is not None and "try them for a week" in split.unpriced


def test_another_model_enters_a_total_only_once_a_person_evaluated_it() -> None:
    smaller = chat(FOUR).but(model=model("Llama-3.1-8B"), tp=1).resized()
    estimate = priced(FOUR, smaller)
    assert (estimate.net, estimate.capacity) == (None, None)
    assert estimate.to_confirm is not None
    assert '"model=meta-llama/Llama-3.1-8B" to `quality_passed`' in estimate.to_confirm
    assert estimate.break_even is not None and "of the bill if its outputs are as good: $10,000" in estimate.break_even
    passed = replace(chat(FOUR), quality_passed=("model=Llama-3.1-8B",))
    fleet = replace(FOUR, services=(passed,))
    counted = priced(fleet, passed.but(model=model("Llama-3.1-8B"), tp=1).resized())
    assert counted.uncounted is None and counted.net is not None and counted.net[1] > 0
    assert estimate.if_confirmed == counted.saving


def test_another_model_that_saves_nothing_is_no_break_even() -> None:
    larger = chat(ONE).but(model=model("Qwen3-235B-A22B"), tp=8)
    estimate = priced(ONE, larger)
    assert estimate.break_even is None
    assert estimate.if_confirmed is None
    assert estimate.infeasible is not None or (estimate.saving is not None and estimate.saving.worthless)


LIST_PRICE = "list price of aws p5.48xlarge on-demand in us-east-1, 2025-09-01 (a feed); stale: listed up to 400 days"


def test_dollars_from_an_unconfirmed_list_price_name_it_with_its_marks() -> None:
    listed = dict.fromkeys((10, 11, 20, 21), LIST_PRICE)
    for proposal in (
        chat(FOUR).but(weight_dtype="fp8").resized(),
        chat(FOUR).on(Placement(purchase="spot"), all_but=1),
    ):
        set_by_a_person, estimate = (priced(FOUR, proposal, listed=known) for known in ({}, listed))
        assert estimate.net == set_by_a_person.net and estimate.net is not None
        assert f"nobody set what is paid: dollars are by the {LIST_PRICE}" in estimate.assumptions
        assert estimate.provenance is not None and estimate.provenance >= Provenance.LISTED
        assert not any("nobody set" in assumption for assumption in set_by_a_person.assumptions)
    other = dict.fromkeys((99,), LIST_PRICE)
    assert (
        priced(FOUR, chat(FOUR).resized(), listed=other).assumptions == priced(FOUR, chat(FOUR).resized()).assumptions
    )


def test_a_released_or_committed_host_names_its_list_price_too() -> None:
    p5 = replace(AWS, instance_type="p5.48xlarge")
    fleet = fleet_of([], [host(1, placement=p5)])
    listed = {10: LIST_PRICE}
    cheap = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 10**9, years=1)
    for estimate in (priced(fleet, fleet.release(1), listed=listed), priced(fleet, fleet.commit(cheap), listed=listed)):
        assert any(LIST_PRICE in assumption for assumption in estimate.assumptions)
