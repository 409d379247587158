"""Several deployments that become one engine."""

from dataclasses import replace
from typing import Any

import pytest

from pertoken.evidence import Evidence
from pertoken.savings.estimate import Estimate, estimate
from pertoken.state.deployment import Deployment, Placement
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service, Slo
from pertoken.units import HOURS_PER_MONTH
from tests.savings.fleets import AWS, context, fleet_of, host, llama, low_batch, usd_month


def twins(chat: dict[str, Any] | None = None, **code: Any) -> Fleet:
    """Two services of one model, each on a host of its own; fields of the one and of the other."""
    return fleet_of(
        [
            Service("chat", (llama(1, (10, 11)),), **(chat or {})),
            Service("code", (llama(2, (20, 21), "code"),), **code),
        ],
        [host(1), host(2)],
    )


def joined(fleet: Fleet, into: Deployment | None = None, seen: Evidence | None = None, **known: Any) -> Estimate:
    chat, code = (fleet.deployment(literal) for literal in (1, 2))
    merged = fleet.merge((chat, code), into or chat)
    return estimate(fleet, merged.release(2), context(fleet, seen, **known))


def test_one_engine_for_two_services_banks_the_host_of_the_other() -> None:
    estimate = joined(twins())
    assert estimate.released == ("gpu-2",) and estimate.net is not None
    assert estimate.net[1] == usd_month(2 * 6.88)
    assert estimate.capacity == (0, 0, 0)
    assert "the p95 demands of all parts are taken to come at once" in estimate.assumptions


def test_a_merge_keeps_the_objectives_of_every_service_it_serves() -> None:
    tight = joined(twins(slo=Slo(tpot_p95_ms=10.0)))
    assert tight.net is None and (tight.infeasible or "").startswith("code: TPOT p95 would be about")
    assert joined(twins(slo=Slo(tpot_p95_ms=200.0))).slo == "pass"


def test_a_merge_that_one_engine_cannot_hold_is_refused() -> None:
    full = low_batch(generated_tok_s=4000, busy_generated_tok_s=4200, running=140, prompt_tok_s=16000, requests_s=10)
    estimate = joined(twins(), seen=full)
    assert estimate.net is None and "would not hold the demand of all" in (estimate.infeasible or "")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"isolation": "tenant"}, 'code shares no engine and no device: isolation = "tenant"'),
        ({"min_replicas": 2}, "code would have 1 replica, fewer than are set for it"),
    ],
)
def test_settings_of_a_service_forbid_its_merge(fields: dict[str, Any], reason: str) -> None:
    assert joined(twins(**fields)).infeasible == reason


def test_parts_with_different_models_or_on_other_devices_are_unpriced() -> None:
    fleet = twins()
    chat = fleet.deployment(1)
    assert "propose one, then the other" in (joined(fleet, chat.but(weight_dtype="fp8")).unpriced or "")
    elsewhere = chat.on_devices((10,))
    assert "on the devices of one of its parts" in (joined(fleet, elsewhere).unpriced or "")
    mixed = fleet.edit(replace(fleet.deployment(2), model=replace(chat.model, name="other")))
    assert "different models" in (joined(mixed).unpriced or "")


def test_adapters_in_one_engine_are_priced_only_with_a_stated_expectation() -> None:
    fleet = twins()
    both = fleet.deployment(1).but(lora_adapters=("law", "medicine"))
    assert "what adapters cost in one engine is not forecast" in (joined(fleet, both).unpriced or "")
    expected = joined(fleet, both.expecting(0.7, 0.9, 1.0, "a report"))
    assert expected.released == ("gpu-2",)
    assert expected.provenance is not None and expected.provenance.label == "assumed"
    assert "0.9 times the tokens: a report" in expected.assumptions


def test_an_unmeasured_part_leaves_a_merge_unpriced() -> None:
    fleet = twins()
    known = context(fleet)
    missing = replace(known, deployments={1: known.deployments[1]})
    merged = fleet.merge(fleet.deployments, fleet.deployment(1)).release(2)
    assert "was not measured" in (estimate(fleet, merged, missing).unpriced or "")


def moved(to: Placement, **known: Any) -> Estimate:
    """Return the estimate of a merge of both services into one engine that moves in the same step."""
    fleet = twins()
    chat, code = (fleet.deployment(key) for key in (1, 2))
    merged = fleet.merge((chat, code), chat)
    made = next(one for one in merged.deployments if len(one.serves) == 2)
    engine = replace(made, device_ids=(), placement=to)
    services = tuple(replace(service, deployments=(engine,)) for service in merged.services)
    return estimate(fleet, replace(merged, services=services), context(fleet, **known))


def test_a_merged_engine_that_moves_in_the_same_step_banks_both_hosts_less_one_instance() -> None:
    known = moved(replace(AWS, instance_type="p5.48xlarge", purchase="spot"))
    assert known.net is not None and len(known.placed) == 1
    assert known.released == ("gpu-1", "gpu-2")
    assert known.placed[0].offer.purchase == "spot"
    bought = round(known.placed[0].nano_usd_per_hour[1] * HOURS_PER_MONTH)
    assert known.net[1] == usd_month(4 * 6.88) - bought
    assert any("reclaim" in line or "interrupt" in line for line in known.against)


def test_a_merged_engine_moves_to_no_other_kind_of_device() -> None:
    assert moved(Placement("aws", "us-east-1", accelerator="L40S")).unpriced is not None
