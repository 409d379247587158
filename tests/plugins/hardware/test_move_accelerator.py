from collections import defaultdict
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pertoken.advisor.probed import cpu_accelerator
from pertoken.catalog.market import MeasuredRates
from pertoken.plugins.hardware.move_accelerator import move_accelerator
from pertoken.rule import FEWEST, Fleet, Placement, Service, Skip
from tests.deployments import MARKET, model
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import AWS, low_batch


def moves(fleet: Fleet | None = None) -> list[Service]:
    """Return the services that the rule proposes."""
    return [state for state in proposals(move_accelerator, fleet) if isinstance(state, Service)]


def test_every_other_accelerator_with_offers_that_holds_the_weights_is_a_candidate() -> None:
    yielded = moves(chat(2))
    ranks: defaultdict[str | None, list[int | None]] = defaultdict(list)
    for service in yielded:
        ranks[service.deployments[0].accelerator].append(service.deployments[1].tp)
    fewest = [ranks[name][0] for name in ("H200 SXM", "B200 SXM", "L40S", "A100 80GB SXM4")]
    assert fewest == [2, 1, 4, 2]
    assert "H100 SXM5" not in ranks
    assert all(name is not None and MARKET.offers(name) for name in ranks)
    assert all(service.replicas == FEWEST for service in yielded)


def test_more_ranks_than_the_fewest_are_tried_while_one_replica_lists_below_the_present_ones() -> None:
    tried = in_present_format(chat(2))
    assert [ranks for name, ranks in tried if name == "A100 80GB SXM4"] == [2, 4, 8]
    assert [ranks for name, ranks in tried if name == "B200 SXM"] == [1], "two list above four H100"
    one = in_present_format(chat(1))
    assert [ranks for name, ranks in one if name == "A100 80GB SXM4"] == [2, 4]


def in_present_format(fleet: Fleet) -> list[tuple[str | None, int | None]]:
    """Return accelerators and ranks of the moves that keep the format of the weights."""
    deployments = [service.deployments[0] for service in moves(fleet)]
    return [(moved.accelerator, moved.tp) for moved in deployments if moved.weight_dtype == "bf16"]


def test_weights_in_fewer_bits_move_to_no_more_ranks_than_those_of_the_present_format() -> None:
    tried = [service.deployments[0] for service in moves(chat(2))]
    assert {(moved.weight_dtype, moved.tp) for moved in tried if moved.accelerator == "L40S"} == {
        ("bf16", 4),
        ("bf16", 8),
        ("fp8", 2),
        ("fp8", 4),
        ("int4", 1),
        ("int4", 2),
        ("int4", 4),
    }
    assert {moved.weight_dtype for moved in tried if moved.accelerator == "A100 80GB SXM4"} == {"bf16", "int8", "int4"}


def kv_formats(fleet: Fleet) -> set[tuple[str | None, str | None, int | None, str | None]]:
    """Return accelerator, weights, ranks and cache of the moves that store the cache in FP8."""
    deployments = [service.deployments[0] for service in moves(fleet)]
    return {
        (moved.accelerator, moved.weight_dtype, moved.tp, moved.kv_dtype)
        for moved in deployments
        if moved.kv_dtype == "fp8"
    }


def test_fp8_weights_on_fewer_devices_than_the_present_format_needs_are_tried_with_an_fp8_cache_too() -> None:
    tried = kv_formats(chat(2))
    assert ("H200 SXM", "fp8", 1, "fp8") in tried and ("L40S", "fp8", 2, "fp8") in tried
    assert ("L40S", "fp8", 4, "fp8") not in tried, "the present format fits on four"
    assert {dtype for _, dtype, *_ in tried} == {"fp8"}
    assert {("H200 SXM", "fp8", 1, "bf16")} <= {
        (moved.accelerator, moved.weight_dtype, moved.tp, moved.kv_dtype)
        for moved in (service.deployments[0] for service in moves(chat(2)))
    }
    assert kv_formats(chat(kv_dtype=None)), "it follows the weights, which are in 16 bits"


@pytest.mark.parametrize("fields", [{"kv_dtype": "int8"}, {"kv_dtype": "other"}, {"engine": "lmdeploy"}])
def test_the_cache_keeps_its_format_where_it_is_small_already_or_the_engine_has_no_fp8(fields: dict[str, Any]) -> None:
    assert moves(chat(**fields)) and not kv_formats(chat(**fields))


def test_architectures_without_bfloat16_are_left_out() -> None:
    moved = {service.deployments[0].accelerator for service in moves()}
    assert moved and not {"T4", "V100 SXM2 16GB"} & moved


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"placement": replace(AWS, purchase="owned")}, "committed"),
        ({"placement": Placement()}, "device-unknown"),
        ({"weight_dtype": None}, "weights-unknown"),
    ],
)
def test_it_refuses_committed_or_unknown_deployments(fields: dict[str, Any], code: str) -> None:
    assert refusal(move_accelerator, chat(**fields))[0] == code


def test_an_accelerator_that_the_provider_does_not_rent_is_refused_before_it_is_forecast() -> None:
    yielded = proposals(move_accelerator)
    (refused,) = [refused for refused in yielded if isinstance(refused, Skip) and refused.code == "not-offered-here"]
    assert "MI300X (tp 1)" in refused.reason and "at aws" in refused.reason
    assert not {"MI300X", "GH200 96GB"} & {service.deployments[0].accelerator for service in moves()}


def test_an_instance_must_hold_all_ranks_of_a_replica() -> None:
    ranks = in_present_format(chat())
    assert [tp for name, tp in ranks if name == "L40S"] == [4], "g6e.12xlarge holds four"
    assert {tp for name, tp in ranks if name == "L4"} <= {8}


def test_only_instances_of_the_service_s_own_provider_count() -> None:
    assert AWS.provider == "aws"
    assert "A10G" in {service.deployments[0].accelerator for service in moves(chat(placement=AWS))}
    elsewhere = chat(placement=replace(AWS, provider="lambda", region=None, instance_type=None))
    assert "A10G" not in {service.deployments[0].accelerator for service in moves(elsewhere)}


def test_it_refuses_a_service_that_generated_nothing() -> None:
    assert refusal(move_accelerator, chat(), low_batch(generated_tok_s=0, prompt_tok_s=0))[0] == "no-load"


def test_it_refuses_where_the_market_offers_nothing_else() -> None:
    only = replace(MARKET, all_offers=MARKET.offers("H100 SXM5"))
    assert refusal(move_accelerator, market=only)[0] == "nothing-else-fits"


def test_cpus_that_nobody_probed_are_refused_with_the_rate_from_which_they_would_be_cheaper() -> None:
    """A c7g.24xlarge would be large enough; an r8g.8xlarge is cheaper: $1.88512 an hour beside two H100 at $6.88."""
    chat_70b = chat(1, placement=replace(AWS, instance_type="p5.48xlarge"))
    yielded = proposals(move_accelerator, chat_70b, low_batch(generated_tok_s=1000))
    (refused,) = [refused for refused in yielded if isinstance(refused, Skip) and refused.code == "cpus-not-probed"]
    assert "r8g.8xlarge rents for 13.7% of what it costs" in refused.reason, "256 GiB hold 141 GB, 128 GiB do not"
    assert "from 137 generated tokens/s" in refused.reason and "`pertoken probe`" in refused.reason
    busy = proposals(move_accelerator, chat_70b, low_batch(running=100))
    assert "cpus-not-probed" not in {refused.code for refused in busy if isinstance(refused, Skip)}


CPUS = "Neoverse-V2 (c8g.8xlarge)"
GRAVITON = cpu_accelerator(
    CPUS,
    {("llama.cpp", "int4"): MeasuredRates(1e11, 1e12), ("vllm", "bf16"): MeasuredRates(1e11, 1e12)},
    64 * 2**30,
    date(2026, 11, 28),
)
C8G = next(offer for offer in MARKET.offers("CPU") if offer.instance_type == "c8g.8xlarge")
PROBED = MARKET.with_measured([GRAVITON]).having([replace(C8G, accelerator=CPUS)])


def test_probed_cpus_are_candidates_under_each_engine_and_format_that_was_probed_and_fits() -> None:
    yielded = proposals(move_accelerator, market=PROBED)
    assert "cpus-not-probed" not in {refused.code for refused in yielded if isinstance(refused, Skip)}
    moved = [service.deployments[0] for service in yielded if isinstance(service, Service)]
    on_cpus = [one for one in moved if one.accelerator == CPUS]
    assert [(one.engine, one.weight_dtype, one.tp) for one in on_cpus] == [("llama.cpp", "int4", 1)], (
        "70B in 4 bits are 42 GB of 69; in 16 bits they do not fit"
    )
    small = proposals(move_accelerator, chat(model=model("Llama-3.1-8B")), market=PROBED)
    formats = [service.deployments[0] for service in small if isinstance(service, Service)]
    assert [(one.engine, one.weight_dtype) for one in formats if one.accelerator == CPUS] == [
        ("llama.cpp", "int4"),
        ("vllm", "bf16"),
    ]
    in_4_bits = proposals(move_accelerator, chat(weight_dtype="int4"), market=PROBED)
    assert not {
        service.deployments[0].weight_dtype
        for service in in_4_bits
        if isinstance(service, Service) and service.deployments[0].accelerator == CPUS
    } - {"int4"}, "no format of more bits"
