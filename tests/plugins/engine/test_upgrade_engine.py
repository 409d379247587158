from dataclasses import replace
from typing import Any

import pytest

from pertoken.plugins.engine.upgrade_engine import upgrade_engine
from pertoken.rule import Epoch
from pertoken.testing import Result, deployment, earlier, evidence, fleet, regime, run, service

CHEAPER = replace(earlier("0.31.0", (0.77, 0.8, 0.83)), deployment_id=1)


def result(*epochs: Epoch, versions: tuple[str, str] = ("0.32.0", "0.31.0"), **second: Any) -> Result:
    one, other = (deployment(engine_version=version) for version in versions)
    present = fleet(service("chat", one, replace(other, **second)))
    return run(upgrade_engine, regime(present, {"chat": evidence(*epochs, running=2)}))


def test_a_version_that_a_like_replica_runs_more_cheaply_is_advised_with_what_it_showed() -> None:
    (proposal,) = run(upgrade_engine, "upgraded-one").proposals
    assert proposal.diff.knobs(2)["engine_version"] == ("0.31.0", "0.32.0") and not proposal.diff.knobs(1)
    expected = proposal.state.expected  # type: ignore[union-attr]
    assert expected is not None
    assert (expected.low, expected.likely, expected.high) == pytest.approx((1 / 0.83, 1.25, 1 / 0.77))


def test_a_newer_version_that_it_ran_before_itself_and_more_cheaply_is_advised() -> None:
    own = replace(earlier("0.33.0", (1.1, 1.2, 1.3)), deployment_id=1)
    (proposal,) = result(own).proposals
    assert proposal.diff.knobs(1)["engine_version"] == ("0.32.0", "0.33.0")
    assert proposal.state.expected.likely == 1.2  # type: ignore[union-attr]


def test_an_engine_in_maintenance_is_left_for_those_that_its_makers_recommend_without_a_stated_saving() -> None:
    proposals_made = run(upgrade_engine, "unmaintained").proposals
    assert [proposal.diff.knobs(1)["engine"] for proposal in proposals_made] == [("tgi", "vllm"), ("tgi", "sglang")]
    assert all(proposal.state.deployments[0].expected is None for proposal in proposals_made)  # type: ignore[union-attr]
    assert {proposal.effort for proposal in proposals_made} == {"high"}


@pytest.mark.parametrize(
    ("epochs", "second", "code"),
    [
        ((CHEAPER,), {"weight_dtype": "fp8"}, "no-newer-seen"),
        ((CHEAPER,), {"tp": 2}, "no-newer-seen"),
        ((replace(CHEAPER, changed=("engine_version", "kv_dtype")),), {}, "no-newer-seen"),
        ((replace(earlier("0.31.0", (0.9, 0.99, 1.1)), deployment_id=1),), {}, "not-cheaper"),
        ((replace(earlier("0.31.0"), deployment_id=1),), {}, "load-differs"),
        ((), {}, "no-newer-seen"),
    ],
)
def test_it_refuses_without_a_like_deployment_that_shows_a_saving(
    epochs: tuple[Epoch, ...], second: dict[str, Any], code: str
) -> None:
    only = result(*epochs, **second)
    assert (only.proposals, only.codes) == ((), (code,))


def test_a_newer_version_that_costs_more_is_not_advised() -> None:
    assert run(upgrade_engine, "upgraded-dearer").proposals == ()
