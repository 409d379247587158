import json
from typing import Any

import pytest

from pertoken.advisor.proposals import candidate, encoded
from pertoken.evidence import Evidence
from pertoken.plugins.fleet.consolidate import consolidate
from pertoken.rule import Deployment, Fleet, Placement, propose
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, series, service

QUIET: dict[str, Any] = {
    "busy": series(0.1, p95=0.15),
    "generated_tok_s": 20.0,
    "kv_use": 0.05,
    "tensor_active": 0.01,
}


def ran(*deployments: Deployment, seen: dict[int, Evidence] | None = None, **fields: Any) -> Result:
    """Run it over services named a, b, ... of one deployment each; fields are of the last one."""
    names = "abcdefgh"[: len(deployments)]
    of = {name: fields if name == names[-1] else {} for name in names}
    known = {name: (seen or {}).get(place, evidence(**QUIET)) for place, name in enumerate(names)}
    made = [service(name, deployment, **of[name]) for name, deployment in zip(names, deployments, strict=True)]
    return run(consolidate, regime(fleet(*made), known))


def hours(*served: range) -> Evidence:
    rates = tuple(40.0 if any(hour % 24 in busy_hours for busy_hours in served) else 0.0 for hour in range(168))
    return evidence(**{**QUIET, "generated_tok_s": series(20.0, p95=40.0, hours=rates)})


def test_two_services_of_one_model_become_one_engine_on_either_host() -> None:
    first, second = ran(deployment(), deployment()).proposals
    assert [len(proposal.diff.removed) for proposal in (first, second)] == [2, 2]
    assert [proposal.diff.released[0].name for proposal in (first, second)] == ["gpu-2", "gpu-1"]
    assert [proposal.diff.added[0].device_ids for proposal in (first, second)] == [(10,), (20,)]
    assert (first.risk, first.effort) == ("latency", "high") and "move-accelerator" in first.excludes


def test_all_quiet_services_of_one_model_become_one_engine() -> None:
    quieter = {place: evidence(**{**QUIET, "busy": series(0.1, p95=0.12)}) for place in range(4)}
    first, last, *pair = ran(*[deployment()] * 4, seen=quieter).proposals
    assert [len(proposal.diff.removed) for proposal in pair] == [2, 2], "in case that one for all is too slow"
    for proposal in (first, last):
        assert [len(proposal.diff.removed), len(proposal.diff.added), len(proposal.diff.released)] == [4, 1, 3]
        assert sorted(name for name, _ in proposal.diff.added[0].serves) == ["a", "b", "c", "d"]
    assert [proposal.diff.added[0].device_ids for proposal in (first, last)] == [(10,), (40,)]


def test_a_group_ends_where_the_busy_shares_of_its_services_would_interfere() -> None:
    busy = {place: evidence(**{**QUIET, "busy": series(0.2, p95=0.25)}) for place in range(4)}
    groups = {
        tuple(sorted(name for name, _ in made.diff.added[0].serves))
        for made in ran(*[deployment()] * 4, seen=busy).proposals
    }
    assert groups == {("a", "b"), ("c", "d")}


def test_four_engines_with_adapters_of_one_base_become_one() -> None:
    quieter = {place: evidence(**{**QUIET, "busy": series(0.1, p95=0.12)}) for place in range(4)}
    tunes = [deployment(lora_adapters=(name,)) for name in ("law", "medicine", "tax", "sport")]
    first, *_ = ran(*tunes, seen=quieter).proposals
    assert first.diff.added[0].lora_adapters == ("law", "medicine", "tax", "sport") and len(first.diff.released) == 3


def test_fine_tunes_of_one_base_become_adapters_of_one_engine() -> None:
    first, _ = ran(deployment(lora_adapters=("law",)), deployment(lora_adapters=("medicine",))).proposals
    (made,) = first.diff.added
    assert made.lora_adapters == ("law", "medicine")
    assert made.expected is not None and made.expected.likely < 1


def test_two_models_share_a_device_with_a_share_of_its_memory_each() -> None:
    large, small = deployment("Llama-3.1-8B"), deployment("Qwen3-1.7B")
    first, *_ = [proposal for proposal in ran(large, small).proposals if not any(_divided(proposal.state))]
    after = first.state
    assert isinstance(after, Fleet)
    one, other = (after.deployment(number) for number in (1, 2))
    assert one.device_ids == other.device_ids and one.gpu_memory_utilization and other.gpu_memory_utilization
    assert 0.85 < one.gpu_memory_utilization + other.gpu_memory_utilization <= 0.9
    assert one.gpu_memory_utilization > other.gpu_memory_utilization
    assert len(first.diff.released) == 1


def _divided(state: Any) -> list[object]:
    return [part for device in state.devices for part in device.partitions]


def test_small_models_get_slices_of_one_device_that_fit_them() -> None:
    found_proposals = ran(deployment("Llama-3.1-8B"), deployment("Qwen3-1.7B")).proposals
    sliced = next(proposal for proposal in found_proposals if _divided(proposal.state))
    after = sliced.state
    assert isinstance(after, Fleet)
    (device,) = (device for device in after.devices if device.partitions)
    assert sorted(part.profile for part in device.partitions) == ["1g.10gb", "3g.40gb"]
    held = [after.deployment(number).device_ids for number in (1, 2)]
    assert sorted(held) == sorted((part.partition_id,) for part in device.partitions)
    assert len(sliced.diff.released) == 1 and sliced.risk == "availability"


def test_models_that_serve_in_different_hours_sleep_by_turns() -> None:
    big = [deployment(name, tp=2, max_model_len=4096) for name in ("Llama-3.3-70B", "Qwen2.5-72B")]
    by_turns = {0: hours(range(8, 18)), 1: hours(range(0, 6))}
    first, _ = ran(*big, seen=by_turns).proposals
    assert first.diff.knobs(1) == {"sleep": (None, True)} == first.diff.knobs(2)
    assert ran(*big).codes == ("nothing-alike",)


def test_a_small_site_is_served_from_the_central_one() -> None:
    edge = Placement("aws", "eu-west-1", accelerator="L4", purchase="on_demand")
    found_proposals = ran(deployment(), deployment(placement=edge)).proposals
    assert {proposal.diff.released[0].name for proposal in found_proposals} == {"gpu-1", "gpu-2"}


@pytest.mark.parametrize(
    ("fields", "seen", "codes"),
    [
        ({"isolation": "tenant"}, {}, ("isolated", "nothing-alike")),
        ({"min_replicas": 2}, {}, ("several-replicas", "nothing-alike")),
        ({}, {"busy": 0.9}, ("busy", "nothing-alike")),
        ({}, {"tensor_active": 0.4}, ("busy", "nothing-alike")),
        ({}, {"kv_use": 0.6}, ("kv-cache-full", "nothing-alike")),
        ({}, {"busy": 0.5}, ("nothing-alike",)),
    ],
)
def test_isolation_replicas_load_and_cache_keep_services_apart(
    fields: dict[str, Any], seen: dict[str, float], codes: tuple[str, ...]
) -> None:
    result = ran(deployment(), deployment(), seen={1: evidence(**{**QUIET, **seen})}, **fields)
    assert result.codes == codes and not result.proposals
    refusal = result.refusals[0]
    assert refusal.about is not None


def test_an_unmeasured_series_of_a_service_is_its_own_refusal_alone() -> None:
    unknown = evidence(kv_use=0.1)
    result = ran(deployment(), deployment(), deployment(), seen={1: unknown})
    assert result.codes == ("not-measured",) and len(result.proposals) == 2


def test_engines_on_different_accelerators_or_without_one_are_left() -> None:
    other = deployment("Qwen3-1.7B", placement=Placement("aws", "us-east-1", accelerator="L4", purchase="on_demand"))
    assert ran(deployment(), other).codes == ("nothing-alike",)
    assert ran(deployment(), deployment(placement=Placement())).codes == ("no-accelerator", "nothing-alike")


def test_each_service_is_in_one_pair_or_group_and_these_are_limited() -> None:
    half = evidence(**{**QUIET, "busy": series(0.2, p95=0.25)})
    assert len(ran(*[deployment()] * 6, seen=dict.fromkeys(range(6), half)).proposals) == 2 * 3
    names = "abcdef"
    quiet_fleet = regime(fleet(*(service(name, deployment()) for name in names)), dict.fromkeys(names, half))
    few = run(consolidate, quiet_fleet, pairs=1)
    assert len(few.proposals) == 2 and few.codes == ("enough-pairs",)
    assert few.refusals[0].reason == "4 more quiet services are left until these 1 pairs are decided"


def test_a_large_fleet_is_refused_in_a_bounded_number_of_rows() -> None:
    names = [f"s{number}" for number in range(600)]
    busy = evidence(**{**QUIET, "busy": 0.9})
    busy_fleet = regime(fleet(*(service(name, deployment()) for name in names)), dict.fromkeys(names, busy))
    result = run(consolidate, busy_fleet)
    assert len(result.refusals) == 501 and result.refusals[-1].reason.startswith("100 more services")


def test_each_proposal_arrives_in_the_advice_run_unchanged() -> None:
    names, models = "ab", ("Llama-3.1-8B", "Qwen3-1.7B")
    served = [service(name, deployment(model)) for name, model in zip(names, models, strict=True)]
    quiet_fleet = regime(fleet(*served), dict.fromkeys(names, evidence(**QUIET)))
    proposals = run(consolidate, quiet_fleet).proposals
    assert len(proposals) == 4
    for proposal in proposals:
        sent = json.loads(json.dumps(encoded(propose(proposal.state, risk=proposal.risk), quiet_fleet.fleet)))
        arrived = candidate(quiet_fleet.fleet, sent, None, quiet_fleet.market)
        assert arrived is not None and arrived.after == proposal.state
