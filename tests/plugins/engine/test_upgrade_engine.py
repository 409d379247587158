from dataclasses import replace
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.plugins.engine.upgrade_engine import upgrade_engine
from pertoken.rule import Epoch, Placement
from pertoken.testing import Result, deployment, earlier, evidence, fleet, regime, run, service

V100 = Placement(accelerator="V100 SXM2 32GB")
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


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.6.3"), ("vllm", "v0.10.2"), ("sglang", "0.3.6")])
def test_a_version_from_before_a_faster_release_is_upgraded_to_the_newest_known_without_a_stated_saving(
    engine: str, version: str
) -> None:
    present = fleet(service("chat", deployment(engine=engine, engine_version=version)))
    (proposal,) = run(upgrade_engine, regime(present, {"chat": evidence(running=2)})).proposals
    newest = load_market().newer_releases(engine, version)[-1].version
    assert proposal.diff.knobs(1)["engine_version"] == (version, newest)
    assert proposal.state.deployments[0].expected is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"engine_version": "0.31.0"}, "no-newer-seen"),
        ({"engine_version": None}, "no-newer-seen"),
        ({"engine_version": "0.6.3", "placement": V100, "weight_dtype": "fp16"}, "newest-not-run"),
        ({"engine": "lmdeploy", "engine_version": "0.1.0"}, "no-newer-seen"),
    ],
)
def test_it_names_no_newer_version_without_a_faster_one_or_where_that_does_not_start(
    fields: dict[str, Any], code: str
) -> None:
    present = fleet(service("chat", deployment(**fields)))
    only = run(upgrade_engine, regime(present, {"chat": evidence(running=2)}))
    assert (only.proposals, only.codes) == ((), (code,))


def test_hours_of_a_newer_version_in_the_fleet_come_before_release_notes() -> None:
    slower = replace(earlier("0.6.3", (0.9, 0.99, 1.1)), deployment_id=1)
    assert result(slower, versions=("0.32.0", "0.6.3")).codes == ("not-cheaper",)
