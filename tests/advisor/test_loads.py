"""Loads that are measured ahead of the rules, half of them in a fork."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from pertoken.advisor import loads
from pertoken.advisor.forked import Forked
from pertoken.advisor.loads import measure_loads
from pertoken.evidence import Evidence, NotMeasured, Series, unmade
from pertoken.savings.context import Context
from pertoken.savings.forecasts import Forecasts
from pertoken.window.progress import no_progress
from tests.advisor.gathered import gathered
from tests.advisor.services import services

MADE: list[str] = []


@dataclass(frozen=True)
class Late:
    """A series that notes in this process when it is made."""

    name: str
    value: Series | None

    def series(self) -> Series | None:
        MADE.append(self.name)
        return self.value


def lazy(seen: Evidence) -> Evidence:
    """Return the same measurements, each made when it is read, and one that was not measured."""
    measured = dict(seen.items())
    return Evidence({"mfu": Late("mfu", None)} | {name: Late(name, value) for name, value in measured.items()})


def late(count: int) -> Context:
    known = gathered(*services(count)).context
    alone = {key: lazy(deployment) for key, deployment in known.deployments.items()}
    return replace(known, deployments=alone, services=dict(zip(known.services, alone.values(), strict=False)))


def test_a_fork_measures_the_same_loads_as_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, shared = late(4), late(4)
    measure_loads(ours, no_progress)
    forks: list[int] = []

    def counted(work: Any) -> Forked[Any]:
        forks.append(1)
        return Forked(work)

    monkeypatch.setattr(loads, "Forked", counted)
    monkeypatch.setattr(loads, "can_fork", lambda: True)
    monkeypatch.setattr(loads, "MIN_SHARED", 1)
    MADE.clear()
    measure_loads(shared, no_progress)
    assert forks and MADE.count("generated_tok_s") == 2, "half of the four were made in the fork"
    for key, seen in shared.deployments.items():
        measured, expected = shared.forecasts.measured(seen), ours.forecasts.measured(ours.deployments[key])
        assert repr(measured) == repr(expected) and "generated_tok_s" in repr(measured)
        assert unmade(seen) == unmade(ours.deployments[key]) and "generated_tok_s" not in unmade(seen)
        assert seen.peek("mfu") is None
        assert dict(seen.items()) == dict(ours.deployments[key].items())
    assert MADE.count("generated_tok_s") == 2, "nothing is made twice"


def test_a_load_that_was_not_measured_comes_back_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "can_fork", lambda: True)
    monkeypatch.setattr(loads, "MIN_SHARED", 1)
    first, second = Evidence({}), Evidence({}, {"generated_tok_s": "start an engine that counts"})
    context = replace(late(1), deployments={1: first, 2: second}, services={}, forecasts=Forecasts())
    measure_loads(context, no_progress)
    with pytest.raises(NotMeasured, match="generated_tok_s was not measured: start an engine that counts"):
        context.forecasts.load(second)
