"""Settings of a person refuse proposals of any rule."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor.checks import refusal_by_settings
from pertoken.proof.recommendation import State
from pertoken.rule import Commitment, Fleet, Placement, Service, asleep, times, to
from pertoken.state.diff import diff
from pertoken.state.fleet import Partition
from pertoken.testing import regimes, run
from tests.advisor.gathered import advised, gathered, own
from tests.deployments import model
from tests.savings.fleets import fleet_of, host, llama, replicas
from tests.testing.test_conformity import BUILT_IN

SMALL = model("Llama-3.1-8B")
YEAR = Commitment("aws", "us-east-1", "p5.48xlarge", 1, 1_000_000_000, 1_900_000_000)
SPOT = Placement(purchase="spot")
Edit = Callable[[Fleet, Service], Any]


def with_settings(fleet: Fleet, **settings: Any) -> Fleet:
    return replace(fleet, services=(replace(fleet.services[0], **settings), *fleet.services[1:]))


def refused(edit: Edit, fleet: Fleet | None = None, fleet_wide: tuple[str, ...] = (), **settings: Any) -> Any:
    """Return code and reason with which the settings of the first service refuse an edit; None if they permit it."""
    before = with_settings(fleet or replicas(2), **settings)
    after = before.edit(edit(before, before.services[0]))
    reason = refusal_by_settings(diff(before, after), before, after, fleet_wide)
    return None if reason is None else (reason.code, reason.reason)


def split(fleet: Fleet, chat: Service) -> Fleet:
    now = chat.deployments[0]
    return fleet.replace(now, now.serving_share(0.3), now.but(model=SMALL, tp=1).serving_share(0.4))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda fleet, chat: chat.but(tp=1), ("tp",)),
        (lambda fleet, chat: chat.on(SPOT, all_but=1), ("purchase", "placement")),
        (lambda fleet, chat: chat.serving(requests_per_s=times(0.9)), ("demand", "requests_per_s")),
        (lambda fleet, chat: chat.scaled_to(1), ("replicas",)),
        (lambda fleet, chat: chat.deployments[0].restarted(), ("restart",)),
        (split, ("model", "shares")),
    ],
)
def test_a_change_that_a_person_forbids_for_a_service_is_refused(edit: Edit, words: tuple[str, ...]) -> None:
    assert refused(edit) is None
    assert refused(edit, forbidden=("engine",)) is None
    for word in words:
        code, reason = refused(edit, forbidden=(word,))
        assert code == "forbidden" and reason.startswith(f"{word} of chat must not change")


def test_a_change_of_the_whole_fleet_is_forbidden_for_all() -> None:
    commit: Edit = lambda fleet, chat: fleet.commit(YEAR)  # noqa: E731
    assert refused(commit) is None
    assert refused(commit, fleet_wide=("commitments",)) == (
        "forbidden",
        "commitments must not change: `advisor.forbid` names it",
    )
    idle = fleet_of(replicas(1).services, (*replicas(1).hosts, host(9)))
    assert refused(lambda fleet, chat: fleet.release(9), idle, fleet_wide=("release",))[0] == "forbidden"


@pytest.mark.parametrize(
    ("edit", "evaluated"),
    [
        (lambda fleet, chat: chat.but(weight_dtype="fp8"), "weight_dtype=fp8"),
        (lambda fleet, chat: chat.but(model=SMALL), "model=meta-llama/Llama-3.1-8B"),
        (split, "model=meta-llama/Llama-3.1-8B"),
        (lambda fleet, chat: chat.serving(response_cache_share=to(0.2)), "response_cache_share=0.2"),
    ],
)
def test_a_change_that_can_alter_outputs_passes_the_gate_only_once_evaluated(edit: Edit, evaluated: str) -> None:
    code, reason = refused(edit, quality_gate=True)
    assert code == "quality-gate" and f'add "{evaluated}" to `quality_passed` of [services."chat"]' in reason
    assert refused(edit, quality_gate=True, quality_passed=(evaluated,)) is None
    assert refused(edit, quality_gate=True, quality_passed=(evaluated.partition("=")[0],)) is None
    assert refused(edit) is None, "without a gate its rule states the risk"
    assert refused(lambda fleet, chat: chat.but(max_num_seqs=8), quality_gate=True) is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda fleet, chat: chat.serving(response_cache_share=to(0.2)),
        lambda fleet, chat: chat.serving(cached_share=to(0.2)),
        lambda fleet, chat: chat.but(enable_prefix_caching=True),
        lambda fleet, chat: chat.but(lora_adapters=("a", "b")),
        lambda fleet, chat: chat.but(kv_offload_bytes=2**30),
        lambda fleet, chat: chat.scheduled(asleep([1, 2])),
    ],
)
def test_clients_of_an_isolated_service_share_no_cache_and_no_engine(edit: Edit) -> None:
    assert refused(edit) is None
    assert refused(edit, isolation="tenant")[0] == "isolated"


def test_no_other_service_comes_onto_a_device_of_an_isolated_one() -> None:
    chat, code = Service("chat", (llama(1, (10,)),)), Service("code", (llama(2, (20,), "code"),))
    two = fleet_of([chat, code], [host(1), host(2)])

    def together(fleet: Fleet, chat: Service) -> Fleet:
        other = fleet.service("code").deployments[0]
        return fleet.replace(other, other.on_devices((10,)))

    assert refused(together, two) is None
    assert refused(together, two, isolation="tenant") == (
        "isolated",
        'clients of chat may share no engine and no device with code: it has isolation = "tenant"',
    )
    assert refused(lambda fleet, chat: chat.deployments[0].on_devices((11,)), two, isolation="tenant") is None


def test_an_engine_of_an_isolated_service_serves_no_other_and_its_device_has_no_partition_of_another() -> None:
    chat, code = Service("chat", (llama(1, (10,)),)), Service("code", (llama(2, (20,), "code"),))
    two = fleet_of([chat, code], [host(1), host(2)])
    half = llama(3, (100,), "code")
    sliced = replace(two.device(10), partitions=(Partition(100, "1g", 0.5), Partition(101, "1g", 0.5)))
    devices = tuple(sliced if device.device_id == 10 else device for device in two.devices)
    parts = Fleet((Service("chat", (llama(1, (101,)),)), code), two.hosts, devices)

    def routed(fleet: Fleet, chat: Service) -> Fleet:
        now = chat.deployments[0]
        return fleet.replace(now, replace(now, serves=(("chat", 1.0), ("code", 1.0))))

    def beside(fleet: Fleet, chat: Service) -> Fleet:
        return fleet.replace(fleet.service("code").deployments[0], replace(half, deployment_id=2))

    for edit, fleet in ((routed, two), (beside, parts)):
        assert refused(edit, fleet) is None
        assert refused(edit, fleet, isolation="tenant")[0] == "isolated"


@pytest.mark.parametrize(
    "edit",
    [
        lambda fleet, chat: chat.on(Placement(accelerator="H200 SXM", purchase="on_demand")),
        lambda fleet, chat: chat.on(Placement(region="us-east-2")),
        lambda fleet, chat: chat.on(Placement(instance_type="p5.4xlarge")),
        lambda fleet, chat: chat.on(SPOT, all_but=1),
        lambda fleet, chat: chat.on(Placement("openai", purchase="per_token")),
        lambda fleet, chat: fleet.replace(
            chat.deployments[0],
            chat.deployments[0].serving_share(0.5),
            chat.deployments[0].but(model=SMALL).on(Placement("lambda", "us-west-1")).serving_share(0.5),
        ),
    ],
)
def test_an_isolated_service_stays_on_its_own_instances(edit: Edit) -> None:
    assert refused(edit) is None
    assert refused(edit, isolation="tenant") == (
        "isolated",
        'chat stays on its own instances: it has isolation = "tenant"',
    )


SHARING_OR_MOVING = {
    *("change-provider", "consolidate", "move-accelerator", "offload-kv", "prefix-cache", "response-cache"),
    *("scale-to-zero", "serverless-api", "smaller-instance", "split-hybrid", "use-spot"),
}
"""Built-in rules with a proposal that isolation refuses, read line by line."""


def test_isolation_binds_each_built_in_rule_that_shares_or_moves_in_each_regime() -> None:
    permitted: dict[str, set[str]] = defaultdict(set)
    binds = set()
    for regime in regimes().values():
        isolated = replace(regime.fleet, services=tuple(replace(s, isolation="tenant") for s in regime.fleet.services))
        for rule in BUILT_IN:
            for proposed in run(rule, regime).proposals:
                if refusal_by_settings(proposed.diff, isolated, regime.fleet.edit(proposed.state), ()) is not None:
                    binds.add(rule.rule_id)
                    continue
                permitted[rule.rule_id] |= {change.field for change in proposed.diff.changes}
                permitted[rule.rule_id] |= {"added"} if proposed.diff.added else set()
    assert binds == SHARING_OR_MOVING
    assert set(permitted) & SHARING_OR_MOVING == {"scale-to-zero"}, "hours off share nothing"
    changed = {field.partition(".")[0] for fields in permitted.values() for field in fields}
    assert not changed & {"placement", "device_ids"}
    assert {name for name, fields in permitted.items() if "added" in fields} == {"route-requests"}, "on its own devices"


def test_fewer_replicas_than_a_service_keeps_are_refused() -> None:
    fewer: Edit = lambda fleet, chat: chat.scaled_to(1)  # noqa: E731
    assert refused(fewer, min_replicas=1) is None
    assert refused(fewer, min_replicas=1, spare_replicas=1)[0] == "below-minimum"
    assert refused(lambda fleet, chat: chat.resized(), min_replicas=2) is None, "pricing keeps to the minimum"


def test_a_refused_change_is_named_in_its_row_and_forecast_by_nothing() -> None:
    def proposes(service: Service) -> Iterator[Service]:
        yield service.but(weight_dtype="fp8")
        yield service.but(weight_dtype="int4")

    gathered_fleet = with_settings(replicas(1), quality_gate=True, quality_passed=("weight_dtype=fp8",))
    (row,) = advised(gathered(gathered_fleet), own(proposes))
    (change,) = row.refusals
    assert row.state is State.OPEN and [variant.title for variant in row.variants] == ["weights bf16 → fp8"]
    assert change.code == "quality-gate" and change.reason.startswith(
        "weights bf16 → int4: weight_dtype int4 can alter"
    )
