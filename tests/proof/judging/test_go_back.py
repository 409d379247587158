"""Recommendations to go back: of a regression or a missed objective, recommended or not, for as long as it runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.proof.judging.judge import go_back
from pertoken.proof.judging.receipts import StoredReceipt, read_receipts
from pertoken.proof.receipt import ServiceLevel, from_text, to_text
from pertoken.proof.recommendation import GO_BACK, Edit, Recommendation, State
from pertoken.proof.stored import keep
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeploymentSample, EpochRow
from pertoken.store.write.writer import Writer
from pertoken.window.reading import Window
from tests.proof.judging.changes import DAY, VARIANT, WEEK, Changed, changed_after, written
from tests.proof.looks import detect_at, judge_at
from tests.values import tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU

CHANGED = changed_after(5)
NOW = CHANGED + WEEK


def proposals(kept: Changed, verdicts: tuple[Verdict, ...], receipts: Any = ()) -> tuple[Recommendation, ...]:
    rows = {row.recommendation_id: row for row in kept.rows()}
    with open_store(kept.where).read() as connection:
        inventory = Window(connection, NOW - DAY, NOW).inventory
    return go_back(verdicts, receipts, rows, inventory, NOW)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    """A change that nobody recommended, since which a token takes a fifth more device time."""
    return written(tmp_path_factory.mktemp("worse"), 0.20, weeks_after=1)


def test_an_unrecommended_regression_becomes_a_recommendation_to_go_back_which_ends_when_it_is_followed(
    worse: StoreLocation,
) -> None:
    kept = Changed(worse, CHANGED, variant=None)
    assert judge_at(worse, kept.target, Settings(), NOW) == 1
    (verdict,) = kept.verdicts()
    assert verdict.judgement.result is VerdictResult.DEARER
    (proposal,) = proposals(kept, (verdict,))
    assert (proposal.rule_id, proposal.state, proposal.target) == (GO_BACK, State.OPEN, "tiny on gpu-1")
    assert proposal.reason is not None and proposal.reason.startswith("since 2026-10-26 00:00Z a token takes +")
    best = proposal.variants[0]
    assert best.title == "go back: weight_dtype fp8 → bf16"
    assert best.edits == (Edit("deployment", 8, "weight_dtype", "fp8", "bf16"),)
    assert best.commands == ("remove --quantization",)
    assert best.throughput_ratio is not None and best.throughput_ratio[1] == pytest.approx(1.2, abs=0.03)
    keep(kept.target, [proposal], {GO_BACK}, NOW, "advisor")
    back = EpochRow(10, 8, NOW + 60, None, "0.32.0", '{"weight_dtype": "bf16"}', (5,))
    with Writer(worse) as writer:
        sample = DeploymentSample(10, NOW + 120, 60_000, 60_000, True, 30_000, busy_provenance=0)
        known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "devices": (GPU,)}
        writer.commit(tick(NOW + 120, sample, epochs=(back,), **known))
    detect_at(worse, kept.target, load_market(), Settings(), NOW + 180)
    assert [row.state for row in kept.rows()] == [State.APPLIED]
    with open_store(worse).read() as connection:
        inventory = Window(connection, NOW - DAY, NOW + 180).inventory
    assert go_back(kept.verdicts(), (), {}, inventory, NOW + 180) == ()


def test_a_regression_that_was_recommended_goes_back_by_the_commands_that_undo_it(tmp_path: Path) -> None:
    kept = Changed(written(tmp_path, 0.20, weeks_after=1), CHANGED)
    (verdict,) = kept.verdicts()
    dearer = replace(verdict, judgement=Judgement(VerdictResult.DEARER, (0.15, 0.2, 0.25)))
    (proposal,) = proposals(kept, (dearer,))
    assert proposal.variants[0].commands == VARIANT.undo
    cheaper = replace(verdict, judgement=Judgement(VerdictResult.CHEAPER, (-0.25, -0.2, -0.15)))
    assert proposals(kept, (cheaper,)) == ()


def test_an_objective_that_is_missed_since_a_change_advises_to_go_back_though_tokens_are_cheaper(
    tmp_path: Path,
) -> None:
    kept = Changed(written(tmp_path, -0.20, weeks_after=1), CHANGED)
    judge_at(kept.where, kept.target, Settings(), NOW)
    (verdict,) = kept.verdicts()
    with kept.target.writing() as connection:
        (receipt,) = read_receipts(connection)
    agreed, fine, slow = (ServiceLevel(ttft_p95_s=value) for value in (0.5, 0.4, 0.9))

    def of(before: ServiceLevel, after: ServiceLevel) -> list[StoredReceipt]:
        made = replace(from_text(receipt.text), service_before=before, service_after=after, objectives=agreed)
        return [replace(receipt, text=to_text(made))]

    (proposal,) = proposals(kept, (verdict,), of(fine, slow))
    assert proposal.reason == "since 2026-10-26 00:00Z an objective is missed that was kept before"
    assert proposals(kept, (verdict,), of(slow, slow)) == ()
    assert proposals(kept, (verdict,), of(fine, fine)) == ()


def test_changed_outputs_are_a_reason_to_go_back_however_cheap_a_token_is(tmp_path: Path) -> None:
    kept = Changed(written(tmp_path, -0.20, weeks_after=1, outputs=3.0), CHANGED)
    assert judge_at(kept.where, kept.target, Settings(), NOW) == 1
    with kept.target.writing() as connection:
        receipts = read_receipts(connection)
    (proposal,) = proposals(kept, kept.verdicts(), receipts)
    assert str(proposal.reason).startswith(
        "since 2026-10-26 00:00Z outputs are longer: mean length of outputs 250 → 750"
    )
    assert str(proposal.reason).endswith("check their quality before you keep it")
    assert proposal.variants[0].commands and not proposal.variants[0].throughput_ratio
