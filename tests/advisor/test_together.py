"""Proposals of many targets, which are forecast together."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor import pricing
from pertoken.advisor.changes.commands import commands
from pertoken.advisor.recommendation import State
from pertoken.rule import Deployment
from pertoken.savings import estimate
from pertoken.savings.context import Context
from pertoken.state.diff import Diff
from pertoken.state.fleet import Fleet
from pertoken.state.service import Service
from tests.advisor.gathered import advised, gathered, own
from tests.savings.fleets import context, fleet_of, host, llama, low_batch


def narrower(now: Deployment) -> Iterator[Deployment]:
    yield now.but(weight_dtype="fp8", tp=1)


def services(count: int) -> tuple[Fleet, Context]:
    """Alike services, each on a host of its own."""
    made = [
        Service(f"chat-{n}", (replace(llama(n, (10 * n, 10 * n + 1)), serves=((f"chat-{n}", None),)),))
        for n in range(1, count + 1)
    ]
    fleet = fleet_of(made, [host(n) for n in range(1, count + 1)])
    return fleet, replace(
        context(fleet),
        deployments={n: low_batch() for n in range(1, count + 1)},
        services={each.name: low_batch() for each in made},
    )


def test_targets_forecast_together_get_what_each_gets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = gathered(*services(3))
    together = advised(there, own(narrower))
    monkeypatch.setattr("pertoken.advisor.advise.MAX_TOGETHER", 1)
    assert [each.state for each in together] == [State.OPEN] * 3
    alone = advised(gathered(*services(3)), own(narrower))
    assert [each.best and each.best.capacity for each in alone] == [
        each.best and each.best.capacity for each in together
    ]


def test_a_target_that_cannot_be_forecast_costs_no_other_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fails_for_one(before: Fleet, proposed: Iterable[Fleet], known: Context) -> Any:
        fleets = list(proposed)
        asked.append(len(fleets))
        if any(each.deployment(2) != before.deployment(2) for each in fleets):
            raise RuntimeError("not this one")
        return estimate.prepare(before, fleets, known)

    monkeypatch.setattr(pricing, "prepare", fails_for_one)
    found = advised(gathered(*services(3)), own(narrower))
    assert [each.state for each in found] == [State.OPEN] * 3
    assert asked == [3, 1, 1, 1]


def test_a_proposal_is_not_refused_for_another_deployment_whose_devices_were_not_seen() -> None:
    fleet, known = services(2)
    unseen = replace(fleet, devices=fleet.devices[:2])
    found = {each.target_key: each for each in advised(gathered(unseen, known), own(narrower))}
    assert found["1"].state is State.OPEN


def test_only_the_proposals_that_are_kept_are_made_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    def several(now: Deployment) -> Iterator[Deployment]:
        for chosen in ({"weight_dtype": "fp8"}, {"weight_dtype": "fp8", "tp": 1}, {"weight_dtype": "int4", "tp": 1}):
            for limit in (128, 256):
                yield now.but(**chosen, max_num_seqs=limit)

    made: list[str] = []

    def noted(difference: Diff, *more: Any) -> Any:
        made.append(difference.key)
        return commands(difference, *more)

    monkeypatch.setattr(pricing, "commands", noted)
    (found,) = advised(gathered(*services(1)), own(several))
    assert len(found.variants) == pricing.MAX_VARIANTS
    assert made == [each.key for each in found.variants]
