from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.catalog.market import load_market
from pertoken.costs.savings import Estimate, estimate
from pertoken.costs.slo import Slo
from pertoken.deployment import Deployment, Fleet
from pertoken.evidence import Evidence
from pertoken.provenance import Provenance
from pertoken.units import HOURS_PER_MONTH
from tests.fleets import AWS_H100, LLAMA_70B, MARKET, evidence, fleet_of, low_batch, model, usd

AWS = load_market(provider="aws", region="us-east-1")
DEVICE_MONTH = AWS_H100 * HOURS_PER_MONTH


def at_aws_price(device_id: int) -> int | None:
    return AWS_H100


def saved(
    now: Deployment,
    to: Deployment,
    seen: Evidence | None = None,
    *,
    price: Callable[[int], int | None] = at_aws_price,
    slo_tpot_ms: float | None = None,
    slo_ttft_ms: float | None = None,
    today: date | None = None,
) -> Estimate:
    fleet = fleet_of(now)
    return estimate(
        fleet,
        fleet.replace(now, to),
        seen={now.deployment_id: seen or low_batch()},
        price_nano_usd_per_hour=price,
        market=AWS,
        slo=Slo(slo_ttft_ms, slo_tpot_ms),
        today=today,
    )


def of_fleet(fleet: Fleet, candidate: Fleet, prices: Mapping[int, int] | None = None) -> Estimate:
    return estimate(
        fleet,
        candidate,
        seen={each.deployment_id: low_batch() for each in fleet.deployments},
        price_nano_usd_per_hour=prices.get if prices is not None else at_aws_price,
        market=AWS,
    )


def test_a_faster_model_on_a_half_idle_fleet_banks_nothing() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"))
    assert found.bankable == (0, 0, 0)
    assert found.throughput_ratio is not None and found.throughput_ratio[1] > 1.2
    busy = 2 * DEVICE_MONTH * 0.6
    by_hand = [round(busy * max(0.0, 1 - 1 / ratio)) for ratio in found.throughput_ratio]
    assert found.capacity is not None and list(found.capacity) == by_hand
    assert found.provenance is Provenance.FORECAST


def test_one_rank_fewer_banks_exactly_the_device_that_is_given_back() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1))
    assert found.bankable == (DEVICE_MONTH, DEVICE_MONTH, DEVICE_MONTH)
    assert found.capacity is None
    assert "devices can be given back one by one" in found.assumptions


def test_of_devices_that_cost_different_amounts_the_cheapest_is_taken_to_be_given_back() -> None:
    prices = {1: usd(5), 2: usd(3)}
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1), price=prices.get)
    assert found.bankable is not None and found.bankable[1] == usd(3) * HOURS_PER_MONTH


def test_an_idle_device_banks_its_price() -> None:
    fleet = fleet_of(LLAMA_70B, idle=2)
    found = of_fleet(fleet, fleet.release(fleet.devices[2]).release(fleet.devices[3]))
    assert found.bankable == (2 * DEVICE_MONTH,) * 3
    assert found.throughput_ratio is None and found.slo == "unknown"


def test_a_device_that_is_held_is_not_released() -> None:
    fleet = fleet_of(LLAMA_70B)
    found = of_fleet(fleet, fleet.release(fleet.devices[0]))
    assert found.infeasible is not None and "held by Llama-3.3-70B" in found.infeasible
    assert found.bankable is None


def test_without_a_price_there_are_no_dollars_and_the_way_to_set_one() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1), price=lambda _: None)
    assert (found.bankable, found.capacity) == (None, None)
    assert found.unpriced == "no price is set for NVIDIA H100 80GB HBM3: set it with `pertoken prices set`"
    assert found.throughput_ratio is not None


def test_two_changes_of_one_fleet_add_up_and_never_exceed_what_is_paid() -> None:
    fleet = fleet_of(LLAMA_70B, idle=2)
    candidate = fleet.replace(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1))
    found = of_fleet(fleet, candidate.release(fleet.devices[2]).release(fleet.devices[3]))
    assert found.bankable == (3 * DEVICE_MONTH,) * 3
    assert found.bankable[2] < 4 * DEVICE_MONTH


def test_a_layout_that_does_not_fit_is_infeasible_with_its_reason() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(tp=1))
    assert found.infeasible is not None and found.infeasible.startswith("it would not start: weights need")
    assert (found.bankable, found.capacity) == (None, None)


def test_a_layout_that_cannot_hold_the_p95_demand_is_infeasible() -> None:
    heavy = low_batch(generated_tok_s=1300, busy_generated_tok_s=2000, running=60, busy=1)
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1), heavy)
    assert found.infeasible is not None and "p95 is 1300" in found.infeasible


def test_more_than_a_quarter_slower_needs_an_slo_that_allows_it() -> None:
    a100 = LLAMA_70B.but(accelerator="A100 80GB SXM4")
    found = saved(LLAMA_70B, a100)
    assert found.infeasible is not None and "slo.tpot_ms" in found.infeasible
    allowed = saved(LLAMA_70B, a100, slo_tpot_ms=250)
    assert allowed.infeasible is None and allowed.slo == "pass"
    assert allowed.bankable is not None and allowed.bankable[1] > 0


@pytest.mark.parametrize(("slo_tpot_ms", "verdict"), [(200, "pass"), (35, "near_miss"), (10, "fail")])
def test_the_slo_verdict_follows_the_forecast_at_the_p95_demand(slo_tpot_ms: float, verdict: str) -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1), slo_tpot_ms=slo_tpot_ms)
    assert found.slo == verdict
    assert (found.infeasible is not None) == (verdict == "fail")
    assert any("SLO of" in said for said in found.against) == (verdict == "near_miss")


def test_the_worse_of_two_slos_is_the_verdict() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1), slo_tpot_ms=200, slo_ttft_ms=1)
    assert found.slo == "fail" and found.infeasible is not None and "TTFT" in found.infeasible


def test_a_dearer_accelerator_banks_nothing_and_says_what_it_would_cost() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(accelerator="H200 SXM"), today=date(2026, 11, 21))
    assert found.bankable == (0, 0, 0)
    rise = 2 * AWS_H100 * HOURS_PER_MONTH * (63.296 / 55.04 - 1)
    assert found.against == (f"the bill would rise by ${rise / 1e9:,.0f} a month while demand stays as it is",)
    assert found.capacity is not None and 0 <= found.capacity[0] <= found.capacity[1] <= found.capacity[2]
    assert found.provenance is Provenance.LISTED
    note = next(said for said in found.assumptions if "H200 SXM" in said)
    assert "aws p5en.48xlarge in us-east-1 $7.91/device-hour (2025-09-01) against $6.88" in note
    assert "stale: listed up to 446 days ago" in note


def test_spot_is_compared_with_on_demand_of_the_same_provider_and_region() -> None:
    found = saved(replace(LLAMA_70B, replicas=2), replace(LLAMA_70B, replicas=2).but(purchase="spot"))
    ratio = 21.1543 / 8 / 6.88
    assert found.bankable is not None
    assert found.bankable[1] == pytest.approx(2 * DEVICE_MONTH * (1 - ratio), rel=1e-4)
    assert any("notice" in said for said in found.against)


def test_without_comparable_offers_a_move_is_not_proposed() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(accelerator="GH200 96GB"), slo_tpot_ms=1000)
    assert found.infeasible is not None and "no provider lists GH200 96GB" in found.infeasible


def test_one_provider_is_no_market_unless_it_is_one_s_own() -> None:
    fleet = fleet_of(LLAMA_70B)
    candidate = fleet.replace(LLAMA_70B, LLAMA_70B.but(accelerator="GH200 96GB"))

    def priced(provider: str | None) -> Estimate:
        return estimate(
            fleet,
            candidate,
            seen={7: low_batch()},
            price_nano_usd_per_hour=at_aws_price,
            market=load_market(provider),
            slo=Slo(tpot_ms=1000),
        )

    assert "only lambda lists" in (priced(None).infeasible or "")
    assert priced("lambda").infeasible is None


@pytest.mark.parametrize("purchase", ["owned", "reserved"])
def test_committed_devices_bank_nothing_before_the_commitment_ends(purchase: str) -> None:
    now = LLAMA_70B.but(purchase=purchase)
    found = saved(now, now.but(weight_dtype="fp8", tp=1))
    assert found.bankable == (0, 0, 0)
    assert any(purchase in said for said in found.against)


def test_routing_is_never_bankable_and_states_its_break_even() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(model=model("Llama-3.1-8B"), tp=1))
    assert (found.bankable, found.capacity) == (None, None)
    assert found.unpriced is not None and "not measured" in found.unpriced
    assert any("pays once it takes 50% of the load" in said for said in found.assumptions)


def test_routing_that_needs_as_many_devices_as_it_could_free_is_infeasible() -> None:
    now = replace(LLAMA_70B.but(tp=1, weight_dtype="fp8"), device_ids=(1,))
    found = saved(now, now.but(model=model("Llama-3.1-8B")))
    assert found.infeasible is not None and "no routable share" in found.infeasible


def test_devices_that_serve_two_models_are_not_priced_for_one_of_them() -> None:
    other = replace(LLAMA_70B, deployment_id=8, served_model="twin")
    alone = fleet_of(LLAMA_70B)
    fleet = replace(alone, deployments=(LLAMA_70B, other))
    found = of_fleet(fleet, fleet.replace(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8", tp=1)))
    assert found.bankable is None and "also serve twin" in (found.unpriced or "")


@pytest.mark.parametrize("series", ["generated_tok_s", "busy_generated_tok_s", "running", "busy"])
def test_what_was_not_measured_is_named_and_not_guessed(series: str) -> None:
    known = {name: value.mean for name, value in low_batch().items() if name != series}
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), evidence(**known))
    assert found.unpriced is not None and found.unpriced.startswith(f"{series} was not measured")
    assert (found.bankable, found.capacity) == (None, None)


def test_lengths_an_engine_does_not_report_are_assumed_and_said() -> None:
    known = {name: value.mean for name, value in low_batch().items() if not name.endswith("_len")}
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), evidence(**known))
    assert found.provenance is Provenance.ASSUMED
    assert any("211 tokens generated per request" in said for said in found.assumptions)
    assert any("844 tokens per prompt" in said for said in found.assumptions)


def test_an_unknown_shape_is_not_priced() -> None:
    now = replace(LLAMA_70B, model=replace(LLAMA_70B.model, n_layers=None))
    found = saved(now, now.but(weight_dtype="fp8"))
    assert found.unpriced is not None and "shape" in found.unpriced


def test_a_host_far_from_the_model_says_so() -> None:
    found = saved(LLAMA_70B, LLAMA_70B.but(weight_dtype="fp8"), low_batch(busy_generated_tok_s=5, tpot_s=0.4))
    assert any("over 3 times" in said for said in found.against)


def test_the_present_is_no_candidate() -> None:
    fleet = fleet_of(LLAMA_70B)
    with pytest.raises(ValueError, match="the fleet as it is"):
        of_fleet(fleet, fleet)


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "weight_dtype": st.sampled_from(["fp8", "int8", "int4"]),
        "tp": st.sampled_from([1, 4, 8]),
        "accelerator": st.sampled_from(sorted({each.accelerator for each in MARKET.all_offers})),
        "purchase": st.sampled_from(["spot", "on_demand"]),
        "max_num_seqs": st.sampled_from([1, 8, 512]),
    },
).filter(lambda changes: bool(changes))


@settings(deadline=None)
@given(CHANGES, st.floats(0.01, 1), st.floats(1, 200), st.floats(0.1, 50), st.integers(0, 2))
def test_no_change_saves_more_than_is_paid_nor_both_ways_at_once(
    changes: dict[str, object], busy: float, running: float, price_usd: float, idle: int
) -> None:
    fleet = fleet_of(LLAMA_70B, idle=idle)
    to = LLAMA_70B.but(**changes)
    candidate = fleet.replace(LLAMA_70B, to) if to != LLAMA_70B else fleet
    for device in fleet.devices[2:]:
        candidate = candidate.release(device)
    if candidate == fleet:
        return
    found = estimate(
        fleet,
        candidate,
        seen={7: low_batch(busy=busy, running=running)},
        price_nano_usd_per_hour=lambda _: usd(price_usd),
        market=MARKET,
        slo=Slo(tpot_ms=1e6),
    )
    paid = len(fleet.devices) * usd(price_usd) * HOURS_PER_MONTH
    for money in (found.bankable, found.capacity):
        assert money is None or 0 <= money[0] <= money[1] <= money[2] <= paid
    if found.bankable is not None and found.capacity is not None:
        assert found.bankable[2] + found.capacity[2] <= paid
