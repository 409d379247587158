"""Proposals of many targets, which are forecast together."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor import pricing
from pertoken.proof.recommendation import State
from pertoken.rule import FleetEvidence, Skip, skip
from pertoken.savings import estimate
from pertoken.savings.context import Context
from pertoken.state.fleet import Fleet
from tests.advisor.gathered import advised, gathered, own
from tests.advisor.services import narrower, services


def test_targets_forecast_together_get_what_each_gets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    state = gathered(*services(3))
    together = advised(state, own(narrower))
    monkeypatch.setattr("pertoken.advisor.pricing.MAX_TOGETHER", 1)
    assert [row.state for row in together] == [State.OPEN] * 3
    alone = advised(gathered(*services(3)), own(narrower))
    assert [row.best and row.best.capacity for row in alone] == [row.best and row.best.capacity for row in together]


@pytest.mark.usefixtures("in_this_process")
def test_a_target_that_cannot_be_forecast_costs_no_other_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def fails_for_one(before: Fleet, proposed: Iterable[Fleet], known: Context) -> Any:
        fleets = list(proposed)
        asked.append(len(fleets))
        if any(fleet.deployment(2) != before.deployment(2) for fleet in fleets):
            raise RuntimeError("not this one")
        return estimate.prepare(before, fleets, known)

    monkeypatch.setattr(pricing, "prepare", fails_for_one)
    rows = advised(gathered(*services(3)), own(narrower))
    assert [row.state for row in rows] == [State.OPEN] * 3
    assert asked == [3, 1, 1, 1]


def test_of_very_many_series_that_a_rule_read_the_first_are_listed_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reads_all(seen: FleetEvidence, fleet: Fleet) -> Iterator[Skip]:
        for deployment in fleet.deployments:
            busy, waiting = seen.of(deployment).busy, seen.of(deployment).waiting
            assert busy.mean >= 0 and waiting.mean >= 0
        yield skip("looked", "at all of it")

    state = gathered(*services(3))
    (whole,) = advised(state, own(reads_all))
    assert len(whole.evidence) == 6
    monkeypatch.setattr("pertoken.advisor.present.MAX_EVIDENCE", 4)
    (row,) = advised(state, own(reads_all))
    assert row.evidence[:4] == whole.evidence[:4] and len(row.evidence) == 5
    assert (row.evidence[4].series, row.evidence[4].n) == ("more that the rule read", 2)


def test_a_recommendation_has_the_owner_of_its_service_and_the_prices_of_its_devices() -> None:
    state = gathered(*services(2))
    priced = replace(
        state,
        owners={"chat-1": "search"},
        price_texts={10: "H100: $2/hour, set on 2026-11-01", 11: "H100: $2/hour, set on 2026-11-01"},
    )
    by_target = {row.target_key: row for row in advised(priced, own(narrower))}
    (named,) = (row for row in by_target.values() if row.owner is not None)
    assert named.owner == "search" and "gpu-1" in named.target
    assert {row.prices for row in by_target.values()} == {("H100: $2/hour, set on 2026-11-01",), ()}
