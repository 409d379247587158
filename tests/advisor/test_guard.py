"""Whatever a rule yields, raises or changes is its own row: nothing impossible is priced, nothing else is touched."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.advisor.advise import identity
from pertoken.advisor.recommendation import Recommendation, State
from pertoken.advisor.values import rebuilt
from pertoken.evidence import Evidence
from pertoken.plugins.release_idle_device import release_idle_device
from pertoken.plugins.use_spot import use_spot
from pertoken.provenance import Provenance
from pertoken.rule import (
    Commitment,
    Deployment,
    Device,
    Fleet,
    FleetEvidence,
    Host,
    Model,
    Partition,
    Placement,
    Proposal,
    Schedule,
    Service,
    Skip,
    propose,
    skip,
    times,
)
from pertoken.state.demand import Quantity
from pertoken.state.errors import InvalidEdit
from pertoken.state.knobs import knobs
from pertoken.state.service import Slo
from tests.advisor.gathered import advised, gathered, own
from tests.savings.fleets import context, evidence, fleet_of, host, low_batch, replicas
from tests.state.fleets import fleet as lever_fleet

CHAT = replicas(3)
IDLE = host(9)
FLEET = fleet_of(CHAT.services, (*CHAT.hosts, IDLE))
SILENT = context(FLEET, evidence(running=2, busy=0.6), devices={})
"""So little was measured that a forecast abstains at once."""
HELD = {each.device_id: evidence(held=float(each.host_id != 9), observed_h=24) for each in FLEET.devices}
THERE = gathered(FLEET, replace(SILENT, devices=HELD))
SPEND = round(len(FLEET.devices) * 6.88e9 * 730)


def rows(found: tuple[Recommendation, ...], rule_id: str) -> tuple[Recommendation, ...]:
    return tuple(each for each in found if each.rule_id == rule_id)


def others(found: tuple[Recommendation, ...]) -> str:
    """The advice of all rules but the hostile one, as it would be stored."""
    return json.dumps([asdict(each) for each in found if each.rule_id != "hostile"], sort_keys=True)


NEIGHBOURS = (release_idle_device, use_spot)
ALONE = others(advised(THERE, *NEIGHBOURS))


def test_the_neighbours_of_a_hostile_rule_have_advice_that_could_change() -> None:
    found = advised(THERE, *NEIGHBOURS)
    assert {(each.rule_id, each.target_key): each.state for each in found} == {
        ("release-idle-device", "9"): State.OPEN,
        ("release-idle-device", ""): State.REFUSED,
        ("use-spot", "chat"): State.OPEN,
    }


class Anything:
    """Equal to everything, and broken in every other way."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        raise RuntimeError("no words")

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("cannot be shown")


class Bent(Deployment):
    """A deployment whose knobs are not what they seem."""

    @property
    def n_devices(self) -> int | None:
        raise MemoryError("bent")


NUMBERS = st.one_of(st.integers(), st.just(10**30), st.floats(), st.booleans())
JUNK = st.one_of(
    st.none(),
    NUMBERS,
    st.text(max_size=4),
    st.just("\ud800"),
    st.just("a\0b"),
    st.binary(max_size=2),
    st.lists(NUMBERS, max_size=2),
    st.builds(tuple, st.lists(NUMBERS, max_size=2)),
    st.builds(Anything),
    st.just(Placement),
    st.builds(lambda: [].append),
)


def _fields_of(kind: type) -> st.SearchStrategy[str]:
    return st.sampled_from([field.name for field in fields(kind)])


def _edits(fleet: Fleet) -> st.SearchStrategy[Callable[[], object]]:
    """Proposals, most of them impossible, as functions that may raise."""
    (service,), now = fleet.services, fleet.services[0].deployments[0]

    def changed(value: Any, name: str, junk: Any) -> Callable[[], object]:
        return lambda: replace(value, **{name: junk})

    deployments = st.builds(changed, st.just(now), _fields_of(Deployment), JUNK)
    services = st.builds(changed, st.just(service), _fields_of(Service), JUNK)
    fleets = st.builds(changed, st.just(fleet), _fields_of(Fleet), JUNK)
    knob = st.builds(lambda name, value: lambda: now.but(**{name: value}), st.sampled_from([*knobs(), "colour"]), JUNK)

    def in_fleet(name: str, at: int, field: str, junk: Any) -> Callable[[], object]:
        def edit() -> object:
            items = list(getattr(fleet, name))
            items[at % len(items)] = replace(items[at % len(items)], **{field: junk})
            return replace(fleet, **{name: tuple(items)})

        return edit

    hosts = st.builds(in_fleet, st.just("hosts"), st.integers(0, 9), _fields_of(Host), JUNK)
    devices = st.builds(in_fleet, st.just("devices"), st.integers(0, 9), _fields_of(Device), JUNK)
    served = st.builds(in_fleet, st.just("services"), st.just(0), _fields_of(Service), JUNK)

    def without(name: str, keep: int) -> Callable[[], object]:
        return lambda: replace(fleet, **{name: getattr(fleet, name)[:keep]})

    def doubled(name: str) -> Callable[[], object]:
        return lambda: replace(fleet, **{name: getattr(fleet, name) * 2})

    cut = st.builds(without, st.sampled_from(["services", "hosts", "devices"]), st.integers(0, 2))
    twice = st.builds(doubled, st.sampled_from(["services", "hosts", "devices", "commitments"]))
    fewer = st.integers(0, 2).map(
        lambda keep: lambda: replace(fleet, services=(replace(service, deployments=service.deployments[:keep]),))
    )
    extra = st.integers(-(2**70), 2**70).map(
        lambda number: (
            lambda: replace(
                fleet,
                services=(
                    replace(
                        service, deployments=(*service.deployments, replace(now, deployment_id=number, device_ids=()))
                    ),
                ),
            )
        )
    )
    bent = st.just(lambda: Bent(**{field.name: getattr(now, field.name) for field in fields(Deployment)}))
    plain = JUNK.map(lambda junk: lambda: junk)
    refusals = st.builds(lambda *parts: lambda: Skip(*parts), JUNK, JUNK, JUNK)
    wrapped = st.builds(lambda state, *more: lambda: Proposal(state, *more), JUNK, JUNK, JUNK, JUNK, JUNK)
    return st.one_of(
        deployments, services, fleets, knob, hosts, devices, served, cut, twice, fewer, extra, bent, plain, refusals,
        wrapped,
    )  # fmt: skip


ERRORS: list[type[BaseException]] = [SystemExit, GeneratorExit, StopIteration, RecursionError, Unprintable, ValueError]


@given(
    edits=st.lists(_edits(FLEET), max_size=3),
    error=st.one_of(st.none(), st.sampled_from(ERRORS)),
    per=st.sampled_from(["now", "service", "fleet"]),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_no_proposal_leaves_the_guard_and_no_other_rule_sees_it(
    edits: list[Callable[[], object]], error: type[BaseException] | None, per: str
) -> None:
    def body() -> Iterator[Any]:
        for edit in edits:
            yield edit()
        if error is not None:
            raise error("\udfff\0 bad words")

    def of_deployment(now: Deployment) -> Iterator[Any]:
        return body()

    def of_service(service: Service) -> Iterator[Any]:
        return body()

    def of_fleet(fleet: Fleet) -> Iterator[Any]:
        return body()

    functions: dict[str, Callable[..., Any]] = {"now": of_deployment, "service": of_service, "fleet": of_fleet}
    found = advised(THERE, own(functions[per], "hostile"), *NEIGHBOURS)
    assert others(found) == ALONE
    for each in rows(found, "hostile"):
        json.dumps(asdict(each)).encode()
        (each.reason or "").encode()
        assert "\0" not in (each.reason or "") + each.title
        for variant in each.variants:
            assert variant.title and variant.commands and variant.undo
            for money in (variant.bankable, variant.capacity):
                assert money is None or all(type(end) is int and abs(end) <= SPEND for end in money)


def _force(value: object, **changes: object) -> None:
    for name, changed in changes.items():
        object.__setattr__(value, name, changed)


def test_a_rule_that_changes_what_it_is_handed_changes_nothing_for_others() -> None:
    def vandal(seen: FleetEvidence, fleet: Fleet, market: Any) -> None:
        for accelerator in market.accelerators:
            _force(accelerator, memory_bytes=1, arch="Volta")
        _force(market, all_offers=(), accelerators=())
        for now in fleet.deployments:
            _force(now.placement, purchase="spot")
            _force(now, weight_dtype="int4", placement=None, device_ids=())
        for each in fleet.hosts:
            _force(each, device_ids=(), name="gone")
        for device in fleet.devices:
            seen.of(device)._series.clear()
        seen._measured.clear()
        _force(fleet, services=(), hosts=(), devices=())

    for order in ((own(vandal, "hostile"), *NEIGHBOURS), (*NEIGHBOURS, own(vandal, "hostile"))):
        assert others(advised(THERE, *order)) == ALONE


def test_a_value_changed_by_force_is_seen_as_the_change_it_is() -> None:
    def forged(now: Deployment) -> Iterator[Deployment]:
        _force(now, tp=-1)
        yield now.but(max_num_seqs=8)

    found = rows(advised(THERE, own(forged, "hostile")), "hostile")
    assert {each.state for each in found} == {State.FAILED}
    assert all("tp=-1 is not possible" in (each.reason or "") for each in found)


def _with(value: Any, **changes: Any) -> object:
    return replace(value, **changes)


PRICED = gathered(FLEET, context(FLEET, low_batch(), devices=HELD))
NOW, SERVICE = FLEET.services[0].deployments[0], FLEET.services[0]
NONSENSE: dict[str, tuple[Callable[[], object], str]] = {
    "memory share of 7": (lambda: replace(NOW, gpu_memory_utilization=7.0), "a number from 0.01 to 1"),
    "tp of -1": (lambda: replace(NOW, tp=-1), "a whole number from 1"),
    "tp as a list": (lambda: _with(NOW, tp=[1]), "deployment.tp must be int or None, not list"),
    "no model": (lambda: _with(NOW, model=None), "deployment.model must be a Model"),
    "a model of no weights": (lambda: NOW.but(model=Model("m", 0, 0, 1, 1, 1)), "shape of m is not possible"),
    "a purchase that is none": (lambda: Placement(purchase="reserved_1y"), "use one of on_demand, spot"),
    "an unknown knob value": (lambda: replace(NOW, weight_dtype=None), "weights must be one of"),
    "another objective": (lambda: replace(SERVICE, slo=Slo(ttft_p95_ms=1e9)), "are settings"),
    "fewer at least": (lambda: replace(SERVICE, min_replicas=0), "are settings"),
    "no replicas": (lambda: replace(SERVICE, replicas=0), "use scaled_to"),
    "half a replica": (lambda: _with(SERVICE, replicas=1.5), "must be int or str or None"),
    "a service without deployments": (
        lambda: replace(FLEET, services=(replace(SERVICE, deployments=()),)),
        "would have no deployment",
    ),
    "a held host": (
        lambda: replace(
            FLEET,
            hosts=FLEET.hosts[1:],
            devices=tuple(each for each in FLEET.devices if each.host_id != FLEET.hosts[0].host_id),
        ),
        "would run on devices that the proposal does not have",
    ),
    "a host that is no longer paid for": (
        lambda: replace(FLEET, hosts=tuple(replace(each, paid_until=1) for each in FLEET.hosts)),
        "",
    ),
    "a cheaper host": (
        lambda: replace(
            FLEET.release(9),
            hosts=tuple(replace(each, placement=Placement(purchase="spot")) for each in FLEET.release(9).hosts),
        ),
        "how a host is placed and paid for is not for a rule to change",
    ),
    "other devices": (
        lambda: replace(FLEET, devices=tuple(replace(each, accelerator="T4") for each in FLEET.devices)),
        "",
    ),
    "a device of its own": (
        lambda: replace(FLEET, devices=(*FLEET.devices, Device(77, "new", IDLE.host_id))),
        "other devices on hosts that stay",
    ),
    "shares above 1": (
        lambda: FLEET.replace(NOW, NOW.serving_share(0.9), NOW.but(tp=1).serving_share(0.9)),
        "add up to more than 1",
    ),
    "a division into nothing": (
        lambda: replace(FLEET, devices=tuple(replace(each, partitions=(Partition(0, ""),)) for each in FLEET.devices)),
        "name the profile",
    ),
    "a commitment taken back": (lambda: replace(_committed(), commitments=()), "cannot be taken back"),
    "another commitment": (lambda: FLEET.commit(Commitment("aws", None, "p5.48xlarge", 1, 1, 1)), "is over already"),
}


def _committed() -> Fleet:
    return FLEET.commit(Commitment("aws", None, "p5.48xlarge", 1, 10**9, 1_900_000_000))


@pytest.mark.parametrize("name", NONSENSE)
def test_nothing_nonsensical_is_priced(name: str) -> None:
    propose_it, message = NONSENSE[name]
    there = PRICED if name != "a commitment taken back" else replace(PRICED, fleet=_committed())

    def nonsense(fleet: Fleet) -> Iterator[Any]:
        yield propose_it()

    (row,) = advised(there, own(nonsense, "hostile"))
    assert row.state in (State.FAILED, State.REFUSED) and not row.variants
    assert message in (row.reason or "")


def test_a_demand_that_a_rule_changes_is_assumed_whatever_it_says() -> None:
    from pertoken.advisor.candidate import candidate

    forged = replace(SERVICE, demand=replace(SERVICE.demand, output_len=Quantity(1.0, Provenance.COUNTER)))
    found = candidate(FLEET, forged, SERVICE)
    assert found is not None
    changed = found.after.service("chat").demand.output_len
    assert changed is not None and changed.provenance is Provenance.ASSUMED


def test_a_proposal_that_equals_the_present_is_counted_and_not_shown() -> None:
    def same(service: Service) -> Iterator[Any]:
        yield service
        yield service.but(tp=service.deployments[0].tp)

    (row,) = advised(PRICED, own(same))
    assert (row.state, row.ignored, [each.code for each in row.refusals]) == (State.REFUSED, 2, ["equals-present"])


def test_refusals_stand_beside_proposals_with_their_codes() -> None:
    def both(service: Service) -> Iterator[Any]:
        yield skip("too-small", "eight bits are not enough")
        yield propose(service.on(Placement(purchase="spot")), risk="quality", effort="high", requires=("use-spot",))
        yield skip("too-small", "four bits are not enough")

    (row,) = advised(PRICED, own(both))
    assert row.state is State.OPEN
    assert [(each.code, each.reason) for each in row.refusals] == [
        ("too-small", "eight bits are not enough; four bits are not enough")
    ]
    best = row.best
    assert best is not None and (best.risk, best.effort, best.requires) == ("quality", "high", ("use-spot",))


def test_too_many_proposals_are_a_broken_rule() -> None:
    def many(now: Deployment) -> Iterator[Any]:
        for number in range(1, 10**6):
            yield now.but(max_num_seqs=number)

    found = advised(THERE, own(many))
    assert {each.state for each in found} == {State.FAILED}
    assert all("more than 1000 proposals" in (each.reason or "") for each in found)


def test_equal_proposals_are_one_variant_and_the_best_comes_first() -> None:
    def two(service: Service) -> Iterator[Any]:
        yield service.on(Placement(purchase="spot"), all_but=2)
        yield service.on(Placement(purchase="spot"), all_but=1)
        yield service.on(Placement(purchase="spot"), all_but=1).expecting(1, 1, 1, "nothing")

    (row,) = advised(PRICED, own(two))
    assert [each.title for each in row.variants] == [
        "on_demand → spot on 2 of 3 replicas",
        "on_demand → spot on 1 of 3 replicas",
    ]
    assert len({each.key for each in row.variants}) == 2


def test_a_row_keeps_its_identity_whatever_state_it_is_in() -> None:
    def asks(seen: Evidence, service: Service) -> Iterator[Any]:
        if seen.e2e_s.p50 > 1:
            yield skip("slow", "requests take long")
        yield service.on(Placement(purchase="spot"))

    def raises(service: Service) -> Iterator[Any]:
        raise ValueError("broken")

    def refuses(service: Service) -> Iterator[Any]:
        yield skip("no", "never")

    def opens(service: Service) -> Iterator[Any]:
        yield service.on(Placement(purchase="spot"))

    found = [advised(PRICED, own(each))[0] for each in (asks, raises, refuses, opens)]
    assert [each.state for each in found] == [State.BLOCKED, State.FAILED, State.REFUSED, State.OPEN]
    assert len({each.recommendation_id for each in found}) == 1
    assert {(each.target_kind, each.target_key, each.life) for each in found} == {("service", "chat", 1)}
    target = found[0]
    assert target.recommendation_id != identity("other-rule", _target(target))


def _target(row: Recommendation) -> Any:
    from pertoken.advisor.nature import Target

    return Target(row.target_kind, row.target_key, row.target)


def test_values_are_rebuilt_from_exactly_the_types_their_fields_declare() -> None:
    fleet = lever_fleet()
    assert rebuilt(fleet, Fleet) == fleet
    for wrong in (math.nan, math.inf):
        with pytest.raises(InvalidEdit, match="must be a finite number"):
            rebuilt(replace(NOW, gpu_memory_utilization=wrong), Deployment)
    with pytest.raises(InvalidEdit, match="more than 63 bits"):
        rebuilt(replace(NOW, tp=2**63), Deployment)
    with pytest.raises(InvalidEdit, match="must be a whole number, not bool"):
        rebuilt(replace(NOW, deployment_id=True), Deployment)
    with pytest.raises(InvalidEdit, match="hour 200 is not an hour"):
        forged = Schedule()
        _force(forged, off=frozenset({200}))
        rebuilt(replace(SERVICE, schedule=forged), Service)


def test_demand_changes_by_the_edit_are_taken_as_they_are() -> None:
    from pertoken.advisor.candidate import candidate

    found = candidate(FLEET, SERVICE.serving(requests_per_s=times(2.0)), SERVICE)
    assert found is not None and found.after.service("chat") == SERVICE.serving(requests_per_s=times(2.0))
