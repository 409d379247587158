"""Decisions of a verification, and what it needs of a verdict and its window."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.proof.judging.verifier import Verifier, edits_text, judgement, ran_before
from pertoken.proof.recommendation import Edit
from pertoken.proof.trials.trial import Arm, Design, Trial, TrialResult
from pertoken.proof.verdicts import BY_TRIAL, LIKE_HOURS, VERIFIED, Verdict, VerdictResult, move_code
from pertoken.proof.verification.verify import verify
from pertoken.store.connect.open import open_store
from tests.proof.histories import asked
from tests.proof.judging.changes import DAY, EDITS, VARIANT, WEEK, Changed, changed_after, split, written

CHANGE = Verdict(8, 9, 7, 100, "chat on gpu-1", (Edit("deployment", 8, "tp", None, 2),), version_before="0.31.0")


@pytest.mark.parametrize(
    ("effect", "result"), [(-0.2, VerdictResult.CHEAPER), (0.2, VerdictResult.DEARER), (-0.1, VerdictResult.CHEAPER)]
)
def test_a_saving_is_cheaper_and_a_loss_dearer_by_the_same_interval(effect: float, result: VerdictResult) -> None:
    question = asked(1, effect)
    verdict = judgement(question, verify(question))
    assert (verdict.result, verdict.method) == (result, VERIFIED)
    assert verdict.effect is not None and verdict.effect[0] < effect < verdict.effect[2]


def test_without_a_baseline_like_hours_are_shown_and_decide_nothing() -> None:
    question = asked(1, -0.3)
    hours = question.deployment
    short = hours.where(hours.ts >= question.changed_at - 8 * 86_400)
    question = replace(question, deployment=short)
    verdict = judgement(question, verify(question))
    assert (verdict.result, verdict.method) == (VerdictResult.INCONCLUSIVE, LIKE_HOURS)
    assert verdict.effect is not None and verdict.effect[2] < -0.2


def test_a_change_is_described_by_its_fields_and_what_ran_before_by_the_old_values() -> None:
    assert edits_text(CHANGE.edits) == "tp not known → 2"
    assert ran_before(CHANGE) == "engine 0.31.0, tp not known"
    assert edits_text(()) == "configuration"


def test_the_next_change_of_its_deployment_brings_a_verdict_forward(tmp_path: Path) -> None:
    changed, following = changed_after(5), changed_after(5) + 3 * DAY
    store = open_store(written(tmp_path, -0.2, weeks_after=1))
    first = replace(CHANGE, deployment_id=8, epoch_id=9, changed_ts=changed)
    with store.read() as connection:
        alone = Verifier(store, connection, [first], {}, Settings(), following)
        assert alone.judge(first, following)[0].result is VerdictResult.PENDING
        followed = Verifier(
            store, connection, [replace(first, epoch_id=10, changed_ts=following), first], {}, Settings(), following
        )
        waiting, _ = followed.judge(first, following - 60)
        assert (waiting.result, waiting.due_ts) == (VerdictResult.PENDING, following)
        judgement, receipt = followed.judge(replace(first, judgement=waiting), following)
    assert judgement.result is VerdictResult.CHEAPER
    assert receipt is not None and receipt.read().change.before == "engine 0.31.0, tp not known"


@pytest.mark.parametrize("effect", [-0.2, 0.2])
@pytest.mark.parametrize("decoder_before", [False, True])
def test_a_split_into_prefill_and_decode_is_judged_as_one_service(
    tmp_path: Path, effect: float, decoder_before: bool
) -> None:
    changed = changed_after(5)
    store, now_ts = open_store(split(tmp_path, effect, decoder_before=decoder_before)), changed_after(10)
    prefill = replace(CHANGE, deployment_id=8, epoch_id=9, changed_ts=changed)
    decode = replace(CHANGE, deployment_id=18, epoch_id=19, changed_ts=changed + 600)
    verdicts = [prefill, decode] if decoder_before else [prefill]
    with store.read() as connection:
        verifier = Verifier(store, connection, verdicts, {}, Settings(), now_ts)
        judged = [verifier.judge(verdict, now_ts) for verdict in verdicts]
    for verdict, _ in judged:
        assert verdict.result is (VerdictResult.CHEAPER if effect < 0 else VerdictResult.DEARER), verdict.reason
        assert verdict.effect is not None and verdict.effect[0] < effect < verdict.effect[2]
    receipts = [receipt.read() for _, receipt in judged if receipt is not None]
    assert [receipt.change.target for receipt in receipts] == ["chat on gpu-1, with 1 that share its requests"]


def test_the_trial_before_a_change_decides_where_hours_do_not(tmp_path: Path) -> None:
    changed = changed_after(2)  # too short a history to verify anything
    where = written(tmp_path, -0.1, weeks=2, weeks_after=1)
    kept = Changed(where, changed)
    (row,) = kept.rows()
    (verdict,) = kept.verdicts()
    result = TrialResult(VerdictResult.CHEAPER, (-0.12, -0.1, -0.08), 120)
    arm = Arm(8, 7, "tiny on gpu-1", "http://127.0.0.1:8000")
    tried = Trial(row.recommendation_id, Design.REPLICAS, changed, arm, arm, EDITS, 120, 0, result=result)
    rows = {row.recommendation_id: row}
    store, now_ts = open_store(where), changed + WEEK
    with store.read() as connection:
        without = Verifier(store, connection, [verdict], rows, Settings(), now_ts).judge(verdict, now_ts)[0]
        judged = Verifier(store, connection, [verdict], rows, Settings(), now_ts, trials=[tried]).judge(verdict, now_ts)
    assert without.result is not VerdictResult.CHEAPER
    last = changed + 4 * WEEK
    with store.read() as connection:
        judged = Verifier(store, connection, [verdict], rows, Settings(), last, trials=[tried]).judge(verdict, last)
    assert (judged[0].result, judged[0].effect, judged[0].method) == (VerdictResult.CHEAPER, result.effect, BY_TRIAL)
    assert judged[0].reason is not None and judged[0].reason.startswith("by its trial; the hours after the change")
    assert move_code(VARIANT, [judged[0]]) == "realized"
