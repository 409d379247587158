"""Proposals of many targets, which are forecast together."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pertoken.advisor import pricing
from pertoken.advisor.changes.commands import commands
from pertoken.proof.recommendation import State
from pertoken.rule import Deployment
from pertoken.state.diff import Diff
from tests.advisor.gathered import advised, gathered, own
from tests.advisor.services import narrower, services


def test_a_proposal_is_not_refused_because_of_another_deployment_with_unseen_devices() -> None:
    fleet, known = services(2)
    unseen = replace(fleet, devices=fleet.devices[:2])
    by_target = {row.target_key: row for row in advised(gathered(unseen, known), own(narrower))}
    assert by_target["1"].state is State.OPEN


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
    (row,) = advised(gathered(*services(1)), own(several))
    assert len(row.variants) == pricing.MAX_VARIANTS
    assert made == [variant.key for variant in row.variants]
