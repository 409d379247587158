from dataclasses import replace

import pytest

from pertoken.plugins.engine.pin_engine import pin_engine
from pertoken.rule import Epoch
from pertoken.testing import Result, deployment, earlier, evidence, fleet, regime, run, service

DEARER = earlier("0.31.0", (1.28, 1.33, 1.38))


def result(*epochs: Epoch, versions: tuple[str | None, ...] = ("0.32.0",), **options: float) -> Result:
    replicas = [deployment(engine_version=version) for version in versions]
    state = regime(fleet(service("chat", *replicas)), {"chat": evidence(*epochs, running=2)})
    return run(pin_engine, state, **options)


def test_the_cheaper_version_is_named_with_what_it_is_expected_to_save() -> None:
    (proposal,) = run(pin_engine, "upgraded-dearer").proposals
    assert [proposal.diff.knobs(deployment_id)["engine_version"] for deployment_id in (1, 2)] == [
        ("0.32.0", "0.31.0")
    ] * 2
    expected = proposal.state.deployments[0].expected  # type: ignore[union-attr]
    assert expected is not None
    assert (expected.low, expected.likely, expected.high) == (1.28, 1.33, 1.38)
    assert expected.source == (
        "its own epoch of version 0.31.0 at like load (90 % interval 1.28 to 1.38 times, 150 matched hours)"
    )


def test_it_is_silent_where_the_load_differed() -> None:
    only = run(pin_engine, "upgraded-other-load")
    assert (only.proposals, only.codes) == ((), ("load-differs",))
    assert only.refusals[0].reason == "0.31.0 cannot be compared with 0.32.0: the load differed"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (earlier("0.31.0", (0.98, 1.1, 1.2)), "not-dearer"),
        (earlier("0.31.0", (1.01, 1.03, 1.05)), "not-dearer"),
        (replace(DEARER, changed=("engine_version", "kv_dtype")), "more-changed"),
        (replace(DEARER, changed=("engine_version", "driver")), "more-changed"),
        (replace(DEARER, engine_version="0.32.0"), "one-version"),
        (replace(DEARER, engine_version="0.33.0"), "newer-before"),
        (earlier("0.31.0", code="few-hours", reason="3 whole hours"), "few-hours"),
        (replace(DEARER, engine_version=None), "one-version"),
    ],
)
def test_it_refuses_without_a_cheaper_older_version_at_like_load(epoch: Epoch, code: str) -> None:
    only = result(epoch)
    assert (only.proposals, only.codes) == ((), (code,))


def test_only_the_replicas_that_show_it_go_back_where_they_run_different_versions() -> None:
    mixed = result(replace(DEARER, deployment_id=2), versions=("0.31.0", "0.32.0"))
    (proposal,) = mixed.proposals
    assert proposal.diff.knobs(2)["engine_version"] == ("0.32.0", "0.31.0") and not proposal.diff.knobs(1)


def test_the_least_increase_is_an_option() -> None:
    assert result(DEARER, dearer=0.4).codes == ("not-dearer",)
    assert result(earlier("0.31.0", (1.01, 1.03, 1.05)), dearer=0.02).proposals
