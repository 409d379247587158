"""Advice has the same bytes for any number of shards, whatever an agent writes and whichever rule breaks."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pertoken.advisor import run
from pertoken.advisor.rules.discovery import find_rules, source_of
from pertoken.advisor.run import Work, advice_of, advise, in_forks, shards_of
from pertoken.advisor.worker.child import RuleLimits
from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.proof.recommendation import Recommendation, State
from pertoken.rule import Deployment, Fleet, Rule, Service, Skip, skip
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.write.writer import Writer
from pertoken.window.figures import Progress, no_progress
from tests.advisor.builders import NOW
from tests.advisor.gathered import gathered, own, rule_source
from tests.advisor.services import narrower, services
from tests.postgres import server_url
from tests.scenario import HEALTHY_70B, LOW_BATCH_70B, seed, ticks

SHARDS = (1, 2, 7)


def text(rows: Sequence[Recommendation]) -> str:
    return json.dumps([asdict(row) for row in rows], default=str)


# -- of a database -------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreLocation]:
    """Three services on a host each, and a host that nobody uses."""
    if request.param == "sqlite":
        yield fleet_in(locate(str(tmp_path)))
        return
    with server_url(tmp_path / "server") as url:
        yield fleet_in(locate(url))


def fleet_in(where: StoreLocation) -> StoreLocation:
    servings = (
        LOW_BATCH_70B,
        replace(LOW_BATCH_70B, model="Qwen/Qwen3-32B"),
        replace(HEALTHY_70B, model="mistralai/Mistral-7B-Instruct-v0.3"),
        None,
    )
    for number, serving in enumerate(servings):
        price = 6.88 if number == 0 else None
        seed(where, serving, gpus=2, usd_per_hour=price, minutes=40, end_ts=NOW, host=f"gpu-{number}")
    return where


def advised(where: StoreLocation, shards: int, progress: Progress = no_progress) -> str:
    sources = [source_of(place, Settings()) for place in find_rules(Settings())]
    advice = advise(
        open_store(where), sources, load_market(), Settings(), 7 * 86_400, NOW, progress, dated=True, shards=shards
    )
    assert {row.state for row in advice.recommendations} >= {State.OPEN, State.REFUSED, State.BLOCKED}
    return text(advice.recommendations)


def test_advice_has_the_same_bytes_for_any_number_of_shards_and_under_a_writing_agent(recorded: StoreLocation) -> None:
    written: list[str] = []
    with Writer(recorded) as agent:

        def writes(phase: str, share: float) -> None:
            if phase == "reading counters" and not written:
                written.append(phase)
                for tick in ticks(LOW_BATCH_70B, 2, 20, NOW, "late"):
                    agent.commit(tick)
                agent.roll_up()

        alone, *divided = (advised(recorded, shards) for shards in SHARDS)
        assert divided == [alone] * len(divided)
        assert advised(recorded, 2, writes) == alone and written
    later, *divided = (advised(recorded, shards) for shards in SHARDS)
    assert later != alone, "what the agent wrote counts from the next run on"
    assert divided == [later] * len(divided)


# -- of a gathered fleet -------------------------------------------------------------------------------------------


def fleet_wide(fleet: Fleet) -> Iterator[Service | Skip]:
    yield skip("looked", "at all of it")
    yield fleet.services[1].but(weight_dtype="fp8")


def of_service(service: Service) -> Iterator[Service]:
    yield service.resized()


def fails_for_some(now: Deployment) -> Iterator[Skip]:
    if now.deployment_id % 2:
        raise ValueError("not this one")
    yield skip("no", "never")


def exits_for_some(now: Deployment) -> Iterator[Skip]:
    if now.deployment_id in (3, 5):
        os._exit(7)
    yield skip("no", "never")


RULES = (
    *(own(narrower, "narrower"), own(fleet_wide, "fleet-wide"), own(of_service, "of-service")),
    *(own(fails_for_some, "fails"), own(exits_for_some, "exits")),
)


def rows_of(rules: Sequence[Rule], shards: int, *, ours: bool) -> tuple[Recommendation, ...]:
    sources = [replace(rule_source(rule), is_built_in=ours) for rule in rules]
    rows, record = advice_of(sources, gathered(*services(5)), RuleLimits(call_s=5.0), shards=shards)
    assert [rule.name for rule in record.rules] == [rule.rule_id for rule in rules]
    return rows


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("ours", [True, False])
def test_a_rule_that_fails_or_ends_its_process_gives_the_same_rows_in_any_number_of_shards(ours: bool) -> None:
    alone, *divided = (rows_of(RULES, shards, ours=ours) for shards in SHARDS)
    assert divided == [alone] * len(divided)
    assert {row.target_kind for row in alone} == {"deployment", "service", "fleet"}
    ended = [(row.target_key, row.state, row.reason) for row in alone if row.rule_id == "exits"]
    assert sorted(ended) == [
        ("1", State.REFUSED, "never"),
        ("2", State.REFUSED, "never"),
        (
            "3",
            State.FAILED,
            "the rule ended its process with status 7; it was not run for 2 more of 5 targets",
        ),
    ]


def test_each_service_is_in_one_shard_and_the_rules_over_the_fleet_run_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _ = services(5)
    of_fleet, *of_services = shards_of(fleet, 2)
    assert of_fleet.fleet and of_fleet.services == frozenset()
    names = [name for shard in of_services for name in shard.services or ()]
    assert sorted(names) == [service.name for service in fleet.services]
    assert sorted(len(shard.services or ()) for shard in of_services) == [2, 3]
    assert not any(shard.fleet for shard in of_services)
    assert len(shards_of(fleet, 7)) == 1 + 5, "no shard is empty"
    (whole,) = shards_of(fleet, 1)
    assert whole.fleet and whole.services is None


def test_a_small_fleet_is_one_shard_and_a_large_one_has_a_shard_for_each_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []

    def counted(works: Sequence[Work[object]], progress: Progress) -> list[object]:
        counts.append(len(works))
        return in_forks(works, progress)

    monkeypatch.setattr(run, "in_forks", counted)
    monkeypatch.setattr(run, "processors", lambda: 2)
    sources = [rule_source(own(of_service))]
    advice_of(sources, gathered(*services(4)))
    monkeypatch.setattr(run, "MIN_SHARD", 2)
    advice_of(sources, gathered(*services(4)))
    assert counts == [1, 3]
