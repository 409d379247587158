"""Changes of configuration in recorded telemetry, as moves of recommendations and as verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.proof.detection import journal
from pertoken.proof.recommendation import Edit, Recommendation, State, Variant, accept, dismiss, snooze
from pertoken.proof.stored import keep, store_acts, stored
from pertoken.proof.verdicts import Verdict, VerdictResult, read_verdicts
from pertoken.savings.saving import Saving
from pertoken.store.connect.location import GROUPS, StoreLocation, locate
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import DeploymentSample, EpochRow
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.writer import Writer
from tests.proof.looks import detect_at
from tests.proof.rows import FP8, row
from tests.values import new_store, tick
from tests.window.epochs.test_history import CHANGED, NOW
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY

BF16 = EpochRow(8, 8, MONDAY, CHANGED, "0.32.0", '{"weight_dtype": "bf16"}', (5,))
TO_FP8 = EpochRow(9, 8, CHANGED, None, "0.32.0", '{"weight_dtype": "fp8"}', (5,))
UPGRADED = replace(TO_FP8, engine_version="0.33.0", knobs='{"weight_dtype": "bf16", "driver_version": "580.2"}')
BACK = EpochRow(10, 8, CHANGED + 50 * HOUR, None, "0.32.0", '{"weight_dtype": "bf16"}', (5,))
EDITS = (Edit("deployment", 8, "weight_dtype", "bf16", "fp8"),)
VARIANT = replace(FP8, edits=EDITS)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database, made once."""
    folder = tmp_path_factory.mktemp("empty")
    where = new_store(folder)
    for group in GROUPS:
        writing(where, group).dispose()
    return folder


@pytest.fixture
def folder(empty: Path, tmp_path: Path) -> Path:
    return copytree(empty, tmp_path / "db")


def recorded(where: StoreLocation, *epochs: EpochRow, ts: int = NOW - 60) -> None:
    """Record one engine with these epochs, the newest of which serves."""
    with Writer(where) as writer:
        sample = DeploymentSample(
            epochs[-1].epoch_id, ts, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60
        )
        known: dict[str, Any] = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "devices": (GPU,)}
        writer.commit(tick(ts, sample, epochs=epochs, **known))
        writer.roll_up()


def proposal(**values: Any) -> Recommendation:
    """Return an open recommendation of the time before the change."""
    return row(**{"variants": (VARIANT,), "created_ts": CHANGED - HOUR, **values})


class Stored:
    """A database with recommendations, as an advice run keeps them."""

    def __init__(self, folder: Path, *recommendations: Recommendation) -> None:
        self.where = locate(str(folder))
        self.target = AdviceRepository(self.where)
        keep(
            self.target,
            recommendations,
            {recommendation.rule_id for recommendation in recommendations},
            CHANGED - HOUR,
            "advisor",
        )

    def look(self, now_ts: int = NOW) -> int:
        return detect_at(self.where, self.target, load_market(), Settings(), now_ts)

    def act(self, rule_id: str, act: Callable[[Recommendation], Sequence[Any]]) -> None:
        recommendation = next(row for row in self.rows() if row.rule_id == rule_id)
        store_acts(self.target, recommendation, act(recommendation), "someone")

    def rows(self) -> tuple[Recommendation, ...]:
        with self.target.writing() as connection:
            return tuple(sorted(stored(connection), key=lambda recommendation: recommendation.rule_id))

    def verdicts(self) -> tuple[Verdict, ...]:
        with self.target.writing() as connection:
            return read_verdicts(connection)


@pytest.mark.parametrize("state", ["open", "accepted", "snoozed", "dismissed"])
def test_a_change_that_a_recommendation_proposes_applies_it_accepted_or_not(folder: Path, state: str) -> None:
    kept = Stored(folder, proposal())
    acting: dict[str, Callable[[Recommendation], Sequence[Any]]] = {
        "accepted": lambda recommendation: accept(recommendation, CHANGED - 60),
        "snoozed": lambda recommendation: snooze(recommendation, CHANGED - 60, CHANGED + 99 * HOUR),
        "dismissed": lambda recommendation: dismiss(recommendation, CHANGED - 60, CHANGED + 99 * HOUR),
    }
    if state in acting:
        kept.act("quantize", acting[state])
    recorded(kept.where, BF16, TO_FP8)
    assert kept.look() == 1
    (recommendation,), (verdict,) = kept.rows(), kept.verdicts()
    assert (recommendation.state, recommendation.estimate, recommendation.until_ts) == (State.APPLIED, VARIANT, None)
    assert (verdict.recommendation_id, verdict.edits) == (recommendation.recommendation_id, EDITS)
    with kept.target.writing() as connection:
        entries = journal(connection, recommendation.recommendation_id)
    newest = entries[-1]
    assert (newest.what, newest.who, newest.why) == ("applied", "detected", "tiny on gpu-1: weight_dtype")
    assert EDITS in [entry.edits for entry in entries]


def test_a_second_look_finds_nothing_new(folder: Path) -> None:
    kept = Stored(folder, proposal())
    recorded(kept.where, BF16, TO_FP8)
    assert [kept.look(), kept.look()] == [1, 0]
    assert [row.version for row in kept.rows()] == [2]


def test_an_unrecommended_change_is_a_pending_verdict_that_names_the_previous_version(folder: Path) -> None:
    kept = Stored(folder, proposal())
    recorded(kept.where, BF16, UPGRADED)
    kept.look()
    (recommendation,), (verdict,) = kept.rows(), kept.verdicts()
    assert recommendation.state is State.OPEN
    assert (verdict.recommendation_id, verdict.judgement.result) == (None, VerdictResult.PENDING)
    assert (verdict.version_before, verdict.version_after) == ("0.32.0", "0.33.0")
    assert [(edit.field, edit.before, edit.after) for edit in verdict.edits] == [
        ("engine_version", "0.32.0", "0.33.0"),
        ("driver", None, "580.2"),
    ]


def test_a_change_older_than_the_proposal_does_not_apply_it(folder: Path) -> None:
    kept = Stored(folder, proposal(created_ts=CHANGED + HOUR))
    recorded(kept.where, BF16, TO_FP8)
    kept.look()
    assert [row.state for row in kept.rows()] == [State.OPEN]


def test_a_change_that_lacks_a_part_of_the_proposal_does_not_apply_it(folder: Path) -> None:
    whole = replace(VARIANT, edits=(*EDITS, Edit("deployment", 8, "kv_dtype", "auto", "fp8")))
    kept = Stored(folder, proposal(variants=(whole,)))
    recorded(kept.where, BF16, TO_FP8)
    kept.look()
    assert [row.state for row in kept.rows()] == [State.OPEN]


def test_of_several_proposals_of_one_change_the_accepted_one_is_applied_and_the_others_are_superseded(
    folder: Path,
) -> None:
    better = replace(VARIANT, key="cc", saving=Saving((9 * 10**9,) * 3))
    kept = Stored(folder, proposal(), proposal(rule_id="other-rule", variants=(better,)))
    kept.act("quantize", lambda recommendation: accept(recommendation, CHANGED - 60))
    recorded(kept.where, BF16, TO_FP8)
    kept.look()
    assert [(row.rule_id, row.state) for row in kept.rows()] == [
        ("other-rule", State.SUPERSEDED),
        ("quantize", State.APPLIED),
    ]


def test_a_change_back_rolls_the_recommendation_back(folder: Path) -> None:
    kept = Stored(folder, proposal())
    recorded(kept.where, BF16, TO_FP8)
    kept.look()
    recorded(kept.where, BF16, replace(TO_FP8, end_ts=BACK.start_ts), BACK, ts=NOW)
    kept.look()
    (rows,) = kept.rows()
    assert (rows.state, rows.estimate) == (State.ROLLED_BACK, VARIANT)
    assert [verdict.recommendation_id for verdict in kept.verdicts()] == [rows.recommendation_id] * 2


def test_a_change_that_no_epoch_shows_is_applied_only_if_it_was_accepted(folder: Path) -> None:
    gone = replace(VARIANT, edits=(Edit("deployment", 77, "running", True, False),))
    kept = Stored(folder, proposal(variants=(gone,)), proposal(rule_id="other-rule", variants=(gone,)))
    kept.act("quantize", lambda recommendation: accept(recommendation, CHANGED - 60))
    recorded(kept.where, BF16)
    kept.look()
    assert [(row.rule_id, row.state) for row in kept.rows()] == [
        ("other-rule", State.SUPERSEDED),
        ("quantize", State.APPLIED),
    ]


def test_the_estimate_of_an_applied_change_is_not_altered_by_later_runs(folder: Path) -> None:
    kept = Stored(folder, proposal())
    recorded(kept.where, BF16, TO_FP8)
    kept.look()
    cheaper: tuple[Variant, ...] = (replace(VARIANT, saving=Saving((7, 8, 9))),)
    keep(kept.target, [proposal(variants=cheaper)], {"quantize"}, NOW, "advisor")
    assert [row.estimate for row in kept.rows()] == [VARIANT]
