"""Errors of a rule become its own row: no impossible proposal is priced, and other rules are not affected."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.evidence import Evidence, NotMeasured
from pertoken.proof.recommendation import State
from pertoken.rule import (
    Deployment,
    Device,
    Fleet,
    FleetEvidence,
    Host,
    Placement,
    Proposal,
    Rule,
    Service,
    Skip,
)
from pertoken.state.deployment import knobs
from tests.advisor.gathered import advised, own
from tests.advisor.hostile import (
    ALONE,
    FLEET,
    GATHERED,
    HOSTILE,
    NEIGHBOURS,
    force,
    others,
    rows,
    rows_of_hostile,
)
from tests.advisor.whole.test_edge_edits import assert_storable_and_possible
from tests.examples import examples

BESIDE = 5
"""Hostile rules that run in one advice run: most of its time goes into the processes of their neighbours."""


def test_the_neighbours_of_a_hostile_rule_have_advice_that_could_change() -> None:
    rows = advised(GATHERED, *NEIGHBOURS)
    assert {(row.rule_id, row.target_key): row.state for row in rows} == {
        ("release-idle", "9"): State.OPEN,
        ("release-idle", ""): State.REFUSED,
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


class Liar(Exception):
    """Not even its class can be asked for."""

    @property  # type: ignore[misc]  # on purpose
    def __class__(self) -> Any:
        raise SystemExit("no class")


class Noted(Exception):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]  # on purpose
        raise KeyboardInterrupt


class Unmeasured(NotMeasured):
    def __getattribute__(self, name: str) -> Any:
        raise SystemExit(name)


def _plain(kind: type[BaseException]) -> Callable[[str], BaseException]:
    return lambda text: kind(text)


ERRORS: dict[str, Callable[[str], BaseException]] = {
    **{
        error.__name__: _plain(error)
        for error in (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, RecursionError, ValueError)
    },
    "an error without words": Unprintable,
    "an error without a class": Liar,
    "an error with broken notes": Noted,
    "a forged NotMeasured": lambda text: Unmeasured("running", text),
    "NotMeasured of no series": lambda text: NotMeasured(text, text),
    "NotMeasured with a remedy that cannot be stored": lambda text: NotMeasured("running", text),
    "NotMeasured without words": lambda text: NotMeasured("running", 5),  # type: ignore[arg-type]
    "a group of errors": lambda text: BaseExceptionGroup("\0", [KeyboardInterrupt(), NotMeasured("running", text)]),
}


BODIES = st.tuples(
    st.lists(_edits(FLEET), max_size=3),
    st.one_of(st.none(), st.sampled_from([*ERRORS.values()])),
    st.sampled_from(["now", "service", "fleet"]),
)


@given(bodies=st.lists(BODIES, min_size=BESIDE, max_size=BESIDE))
@settings(
    max_examples=examples(150 // BESIDE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
def test_no_proposal_leaves_the_guard_and_no_other_rule_sees_it(bodies: list[Any]) -> None:
    def hostile(
        n: int, edits: list[Callable[[], object]], error: Callable[[str], BaseException] | None, per: str
    ) -> Rule:
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
        return own(functions[per], f"{HOSTILE}-{n}")

    recommendations = advised(GATHERED, *(hostile(n, *body) for n, body in enumerate(bodies)), *NEIGHBOURS)
    assert others(recommendations) == ALONE
    for n in range(BESIDE):
        assert rows(recommendations, f"{HOSTILE}-{n}")
    assert_storable_and_possible(rows_of_hostile(recommendations))


@pytest.mark.parametrize("per", ["now", "service", "fleet"])
def test_whatever_a_rule_raises_is_its_row(per: str) -> None:
    def raising(n: int, error: Callable[[str], BaseException]) -> Rule:
        def of_deployment(now: Deployment) -> None:
            raise error("\udfff\0 bad words")

        def of_service(service: Service) -> None:
            raise error("\udfff\0 bad words")

        def of_fleet(fleet: Fleet) -> None:
            raise error("\udfff\0 bad words")

        functions: dict[str, Callable[..., Any]] = {"now": of_deployment, "service": of_service, "fleet": of_fleet}
        return own(functions[per], f"{HOSTILE}-{n}")

    recommendations = advised(GATHERED, *(raising(n, error) for n, error in enumerate(ERRORS.values())), *NEIGHBOURS)
    assert others(recommendations) == ALONE
    for n, name in enumerate(ERRORS):
        states = {row.state for row in rows(recommendations, f"{HOSTILE}-{n}")}
        assert states and states <= {State.FAILED, State.BLOCKED}, name
    assert_storable_and_possible(rows_of_hostile(recommendations))


FORGERIES: dict[str, Callable[[Any], Any]] = {
    "a series that is none": lambda seen: seen._read.update(nonsense=None),
    "a list of series": lambda seen: force(seen, _read=[[1]]),
    "broken names": lambda seen: force(seen, _read=[Anything()]),
    "another class": lambda seen: force(seen, __class__=Forged),
    "broken values": lambda seen: (seen._series.update(running=Anything()), seen.running),
}


class Forged:
    @property
    def read(self) -> Any:
        raise SystemExit("not read")


@pytest.mark.parametrize("per", ["service", "fleet"])
def test_evidence_that_a_rule_forges_is_not_shown(per: str) -> None:
    def forging(n: int, forgery: Callable[[Any], Any]) -> Rule:
        def of_service(seen: Evidence, service: Service) -> Iterator[Any]:
            forgery(seen)
            yield service.on(Placement(purchase="spot"), all_but=1)

        def of_fleet(seen: FleetEvidence, fleet: Fleet) -> Iterator[Any]:
            forgery(seen.of(fleet.services[0]))
            yield fleet.release(9)

        functions: dict[str, Callable[..., Any]] = {"service": of_service, "fleet": of_fleet}
        return own(functions[per], f"{HOSTILE}-{n}")

    recommendations = advised(
        GATHERED, *(forging(n, forgery) for n, forgery in enumerate(FORGERIES.values())), *NEIGHBOURS
    )
    assert others(recommendations) == ALONE
    assert_storable_and_possible(rows_of_hostile(recommendations))
    for n, name in enumerate(FORGERIES):
        shown = rows(recommendations, f"{HOSTILE}-{n}")
        assert shown and all(line.mean in (2.0, 6.0) for row in shown for line in row.evidence), name


def test_a_rule_that_changes_what_it_is_handed_changes_nothing_for_others() -> None:
    def vandal(seen: FleetEvidence, fleet: Fleet, market: Any) -> None:
        for accelerator in market.accelerators:
            force(accelerator, memory_bytes=1, arch="Volta")
        force(market, all_offers=(), accelerators=())
        for now in fleet.deployments:
            force(now.placement, purchase="spot")
            force(now, weight_dtype="int4", placement=None, device_ids=())
        for host in fleet.hosts:
            force(host, device_ids=(), name="gone")
        for device in fleet.devices:
            seen.of(device)._series.clear()
        seen._measured.clear()  # type: ignore[attr-defined]  # a dictionary
        force(fleet, services=(), hosts=(), devices=())

    for order in ((own(vandal, HOSTILE), *NEIGHBOURS), (*NEIGHBOURS, own(vandal, HOSTILE))):
        assert others(advised(GATHERED, *order)) == ALONE
