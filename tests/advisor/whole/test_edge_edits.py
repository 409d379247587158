"""Edits that a rule may make, with values at the edge of what they take, one after the other on one service."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pertoken.advisor.changes.title import MAX_TITLE
from pertoken.proof.recommendation import Recommendation
from pertoken.rule import Commitment, Fleet, Model, Placement, Rule, Schedule, Service, times, to
from pertoken.state.deployment import knobs
from pertoken.state.service import EDITABLE
from tests.advisor.gathered import advised, own
from tests.advisor.hostile import HOSTILE, NEIGHBOURS, NOW, PRICED, SPEND, others, rows_of_hostile
from tests.deployments import model
from tests.examples import examples

EDGES: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, 64, 1023, 1024, 10**6, 10**8, 10**9],
    "float": [0.0, 0.01, 0.5, 0.99, 1.0, 1.01],
    "bool": [True, False],
    "word": ["none", "both"],
    "text": ["vllm", "sglang", "0.12", "a" * 255, "a" * 256, "a\nb", "\u202ea"],
    "names": [[], ["a"], ["a"] * 256, ["a", "\x07"]],
    "model": [model("Qwen3-8B"), model("Llama-3.1-8B"), Model("unknown"), Model("m", 7, 7, 1, 1, 1)],
}
"""Values by type of a knob."""
PLACEMENTS = [
    Placement(purchase="spot"),
    Placement(purchase="owned"),
    Placement(provider="bedrock", purchase="per_token"),
    Placement(accelerator="H200 SXM"),
    Placement(accelerator="T4"),
    Placement(accelerator="no such device"),
    Placement(provider="gcp", region="us-central1"),
    Placement(provider="lambda"),
]
RATIOS = st.sampled_from([1e-3, 0.5, 1.0, 2.0, 100.0, 101.0])
DEVICES = st.sampled_from([1, 2, 3, 9, 10, 11, 20, 90, 91])
OfService = Callable[[Service], Any]
OfFleet = Callable[[Fleet, Service], Any]
ALONE = others(advised(PRICED, *NEIGHBOURS))


def assert_storable_and_possible(recommendations: tuple[Recommendation, ...]) -> None:
    for row in recommendations:
        json.dumps(asdict(row)).encode()
        texts = [row.title, row.reason or "", row.remedy or ""]
        for variant in row.variants:
            assert variant.title.isprintable() and 0 < len(variant.title) <= MAX_TITLE
            assert variant.commands and variant.undo
            assert all(line.isprintable() for line in (*variant.commands, *variant.undo))
            texts += [*variant.assumptions, *variant.against, variant.unpriced or "", variant.break_even or ""]
            for money in (variant.net, variant.capacity):
                if money is not None:
                    assert all(type(end) is int for end in money)
                    assert 0 <= money[0] <= money[1] <= money[2] <= SPEND
        for text in texts:
            assert "\0" not in text
            text.encode()


def _edges(name: str) -> list[Any]:
    return [*knobs()[name].values, None, *EDGES[knobs()[name].type]]


KNOBS = st.lists(
    st.sampled_from([*knobs()]).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(_edges(name)))),
    max_size=3,
).map(dict)
HOURS = st.sets(st.integers(0, 167), max_size=5)


def but(changes: dict[str, Any]) -> OfService:
    return lambda service: service.but(**changes)


def on(placement: Placement, all_but: int) -> OfService:
    return lambda service: service.on(placement, all_but=all_but)


def scaled(replicas: int) -> OfService:
    return lambda service: service.scaled_to(replicas)


def serving(name: str, change: Any) -> OfService:
    return lambda service: service.serving(**{name: change})


def scheduled(none: set[int], asleep: set[int], replicas: int) -> OfService:
    counts = ((166, replicas),) if replicas >= 0 else ()
    return lambda service: service.scheduled(Schedule(frozenset(none), frozenset(asleep - none), counts))


def expecting(low: float, high: float) -> OfService:
    return lambda service: service.expecting(low, max(low, high), high, "a report")


def release(number: int) -> OfFleet:
    return lambda fleet, service: fleet.release(number)


def divide(device_id: int, partitions: int) -> OfFleet:
    return lambda fleet, service: fleet.partition(device_id, *["1g.10gb"] * partitions)


def commit(kind: str, count: int, price: int, end: int) -> OfFleet:
    return lambda fleet, service: fleet.commit(Commitment("aws", "us-east-1", kind, count, price, end))


def move(at: int, *device_ids: int) -> OfFleet:
    return lambda fleet, service: fleet.replace(
        service.deployments[at], service.deployments[at].on_devices(tuple(device_ids))
    )


def route(stays: float, goes: float) -> OfFleet:
    return lambda fleet, service: fleet.replace(NOW, NOW.serving_share(stays), NOW.but(tp=1).serving_share(goes))


def merge(count: int) -> OfFleet:
    return lambda fleet, service: fleet.merge(service.deployments[:count], NOW)


SERVICE_EDITS = st.one_of(
    st.builds(but, KNOBS),
    st.builds(on, st.sampled_from(PLACEMENTS), st.integers(0, 3)),
    st.just(lambda service: service.resized()),
    st.builds(scaled, st.integers(-1, 5)),
    st.builds(serving, st.sampled_from(EDITABLE), st.one_of(RATIOS.map(times), RATIOS.map(to), st.just(0.5))),
    st.builds(scheduled, HOURS, HOURS, st.integers(-1, 4)),
    st.builds(expecting, RATIOS, RATIOS),
)
FLEET_EDITS = st.one_of(
    st.builds(release, DEVICES),
    st.builds(divide, DEVICES, st.integers(0, 9)),
    st.builds(
        commit,
        st.sampled_from(["p5.48xlarge", "p4d.24xlarge"]),
        st.integers(1, 3),
        st.sampled_from([0, 1, 10**9, 10**12]),
        st.sampled_from([1, 1_900_000_000]),
    ),
    st.builds(move, st.integers(0, 2), DEVICES, DEVICES),
    st.builds(route, st.floats(0, 1), st.floats(0, 1)),
    st.just(lambda fleet, service: fleet.replace(NOW, NOW.but(role="prefill"), NOW.but(role="decode"))),
    st.builds(merge, st.integers(0, 3)),
)


BESIDE = 4
"""Rules with edits of their own that run in one advice run: much of its time goes into their neighbours."""


@given(
    edits=st.lists(
        st.tuples(st.lists(SERVICE_EDITS, max_size=3), st.lists(FLEET_EDITS, max_size=2)),
        min_size=BESIDE,
        max_size=BESIDE,
    )
)
@settings(
    max_examples=examples(100 // BESIDE),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
def test_no_combination_of_edits_saves_more_than_is_paid_or_touches_other_advice(
    edits: list[tuple[list[OfService], list[OfFleet]]],
) -> None:
    def hostile(n: int, of_service: list[OfService], of_fleet: list[OfFleet]) -> Rule:
        def combined(fleet: Fleet) -> Iterator[Any]:
            service = fleet.services[0]
            for change in of_service:
                service = change(service)
                yield service
            made = fleet.edit(service)
            for edit in of_fleet:
                made = edit(made, service)
                yield made

        return own(combined, f"{HOSTILE}-{n}")

    rows = advised(PRICED, *(hostile(n, *edit) for n, edit in enumerate(edits)), *NEIGHBOURS)
    assert others(rows) == ALONE
    assert_storable_and_possible(rows_of_hostile(rows))
