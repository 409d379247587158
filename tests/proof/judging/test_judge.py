"""From weeks of stored hours to verdicts, moves, receipts and re-checks, as an advisor run makes them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.config import Settings
from pertoken.proof.judging.judge import judge_pending
from pertoken.proof.judging.receipts import Kind, StoredReceipt, banked, read_receipts
from pertoken.proof.recommendation import State
from pertoken.proof.verdicts import LIKE_HOURS, Judgement, VerdictResult
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from tests.postgres import server_url
from tests.proof.judging.changes import DAY, WEEK, Changed, changed_after, written
from tests.proof.looks import judge_at
from tests.window.test_evidence import GPU

CHANGED = changed_after(5)


def judged(kept: Changed, now_ts: int) -> int:
    return judge_at(kept.where, kept.target, Settings(), now_ts)


def receipts(kept: Changed) -> tuple[StoredReceipt, ...]:
    with kept.target.writing() as connection:
        return read_receipts(connection)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Changed:
    """Five weeks, and a change that saves a tenth for good; it was judged a week after."""
    kept = Changed(written(tmp_path_factory.mktemp("saved"), -0.10), CHANGED)
    with kept.target.writing() as connection:
        price: dict[str, Any] = {"selector": GPU.uuid, "nano_usd_per_device_hour": 3_600_000_000, "set_by": "someone"}
        repository.add_price(connection, from_ts=0, set_ts=1, note=None, **price)
    assert judged(kept, CHANGED + 6 * DAY) == 0
    (waiting,) = kept.verdicts()
    assert waiting.judgement.result is VerdictResult.PENDING
    assert waiting.judgement.reason is not None and waiting.judgement.reason.endswith(
        "judged from 2026-11-02 00:00Z on"
    )
    assert [row.state for row in kept.rows()] == [State.VERIFYING]
    assert judged(kept, CHANGED + WEEK) == 1
    return kept


def test_a_saving_of_a_tenth_is_realized_a_week_after_its_change_with_a_receipt_that_is_reproduced(
    saved: Changed,
) -> None:
    (row,), (verdict,), (stored, *_) = saved.rows(), saved.verdicts(), receipts(saved)
    assert verdict.judgement.result is VerdictResult.CHEAPER and verdict.judged_ts == CHANGED + WEEK
    assert verdict.judgement.effect is not None and verdict.judgement.effect[1] == pytest.approx(-0.10, abs=0.02)
    assert row.state is State.REALIZED
    made = stored.read()
    assert made.finding.verdict is EffectVerdict.REALIZED
    assert made.promised is not None and made.promised.likely == pytest.approx(1 - 1 / 1.1)
    assert (made.change.rule, made.change.before) == ("quantize", "engine 0.32.0, weight_dtype bf16")
    assert made.price is not None and made.price.nano_usd_per_device_hour == 3_600_000_000
    assert made.measured_in_window is not None and made.measured_in_window.low > 0
    assert stored.recommendation_id == row.recommendation_id and stored.kind is Kind.VERDICT
    check = stored.check()
    assert check.intact and check.reproduced


def test_a_verdict_that_was_reached_is_not_judged_again(saved: Changed) -> None:
    assert judged(saved, CHANGED + WEEK + DAY) == 0
    assert len(receipts(saved)) == 1


def test_a_receipt_or_hours_that_were_altered_are_seen(saved: Changed) -> None:
    stored = receipts(saved)[0]
    figures = replace(stored, text=stored.text.replace('"siblings": 0', '"siblings": 3')).check()
    assert (figures.intact, figures.difference) == (False, "its figures were altered after it was made")
    hours = replace(stored, inputs=stored.inputs.replace("0.000", "0.001", 1)).check()
    assert (hours.intact, hours.difference) == (False, "the hours stored beside it were altered after it was made")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | StoreLocation]:
    if request.param == "sqlite":
        yield tmp_path
        return
    with server_url(tmp_path / "postgres") as url:
        yield locate(url)


def test_a_change_without_effect_is_never_a_saving(place: Path | StoreLocation) -> None:
    kept = Changed(written(place, 0.0, weeks_after=1), CHANGED)
    assert judged(kept, CHANGED + WEEK) == 1
    assert [row.state for row in kept.rows()] == [State.NO_EFFECT]
    (stored,) = receipts(kept)
    assert stored.read().finding.verdict is EffectVerdict.NO_EFFECT
    assert stored.check().reproduced


def test_an_unrecommended_change_gets_its_verdict_and_receipt(tmp_path: Path) -> None:
    kept = Changed(written(tmp_path, 0.15, weeks_after=1), CHANGED, variant=None)
    assert judged(kept, CHANGED + WEEK) == 1
    (verdict,), (stored,) = kept.verdicts(), receipts(kept)
    assert verdict.judgement.result is VerdictResult.DEARER
    assert (stored.recommendation_id, stored.read().change.title) == (None, "weight_dtype bf16 → fp8")
    assert stored.read().finding.verdict is EffectVerdict.REGRESSED


def test_a_history_that_is_too_short_shows_like_hours_and_proves_nothing(tmp_path: Path) -> None:
    changed = changed_after(1)
    kept = Changed(written(tmp_path, -0.3, weeks=1, weeks_after=1), changed)
    assert judged(kept, changed + WEEK) == 1
    (row,), (verdict,) = kept.rows(), kept.verdicts()
    assert (verdict.judgement.result, row.state) == (VerdictResult.INCONCLUSIVE, State.INCONCLUSIVE)
    assert verdict.judgement.method == LIKE_HOURS
    assert verdict.judgement.effect is not None and verdict.judgement.effect[1] == pytest.approx(-0.3, abs=0.03)
    reason = "not proven: 162 measured hours before the change, 504 are needed; the figures are of like hours of both"
    assert verdict.judgement.reason == f"{reason} epochs alone"


def test_a_change_without_hours_is_judged_after_a_week_once_more_after_four_and_is_then_inconclusive(
    tmp_path: Path,
) -> None:
    changed = changed_after(0)
    kept = Changed(written(tmp_path, 0.0, weeks=0, weeks_after=4), changed)
    reason = "no hour, or no device, of it is stored"
    assert judged(kept, changed + WEEK) == 0
    (waiting,) = kept.verdicts()
    assert (waiting.judgement.result, waiting.judgement.due_ts) == (VerdictResult.PENDING, changed + 4 * WEEK)
    assert waiting.judgement.reason == f"{reason}; judged from 2026-10-19 00:00Z on"
    assert judged(kept, changed + 2 * WEEK) == 0
    assert kept.verdicts() == (waiting,)
    assert judged(kept, changed + 4 * WEEK) == 1
    (verdict,) = kept.verdicts()
    assert (verdict.judgement.result, verdict.judgement.reason) == (VerdictResult.INCONCLUSIVE, reason)


@pytest.mark.parametrize(
    ("judgement", "state"),
    [
        (Judgement(VerdictResult.CHEAPER, (-0.22, -0.20, -0.18)), State.REALIZED),
        (Judgement(VerdictResult.CHEAPER, (-0.045, -0.04, -0.035)), State.PARTIAL),
        (Judgement(VerdictResult.NO_EFFECT, (-0.02, 0.0, 0.02)), State.NO_EFFECT),
        (Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3)), State.REGRESSED),
        (Judgement(VerdictResult.INCONCLUSIVE, reason="few hours"), State.INCONCLUSIVE),
        (Judgement(VerdictResult.PENDING, reason="few hours yet"), State.VERIFYING),
    ],
)
def test_a_judgement_moves_the_recommendation_of_its_change(tmp_path: Path, judgement: Judgement, state: State) -> None:
    kept = Changed(written(tmp_path, 0.0, weeks=0, weeks_after=1), changed_after(0))
    decided = judge_pending(kept.target, lambda verdict, now_ts: (judgement, None), changed_after(0) + WEEK)
    assert decided == (state is not State.VERIFYING)
    assert [row.state for row in kept.rows()] == [state]


def test_a_saving_that_stands_is_checked_after_7_and_30_days_and_stays_realized(saved: Changed) -> None:
    for days, kinds in ((6, 1), (7, 2), (8, 2), (30, 3), (31, 3)):
        judged(saved, CHANGED + WEEK + days * DAY)
        assert len(receipts(saved)) == kinds
    assert [row.state for row in saved.rows()] == [State.REALIZED]
    assert [receipt.kind for receipt in receipts(saved)] == list(Kind)
    assert all(receipt.check().reproduced for receipt in receipts(saved))


def test_a_saving_that_is_gone_after_7_days_has_decayed(tmp_path: Path) -> None:
    kept = Changed(written(tmp_path, -0.10, later=0.0, weeks_after=3), CHANGED)
    judged(kept, CHANGED + WEEK)
    assert [row.state for row in kept.rows()] == [State.REALIZED]
    judged(kept, CHANGED + 2 * WEEK + 2 * DAY)
    (row,) = kept.rows()
    assert row.state is State.DECAYED
    assert row.reason is not None and "the saving is gone or smaller" in row.reason
    first, again = receipts(kept)
    assert (first.kind, again.kind) == (Kind.VERDICT, Kind.AFTER_7_DAYS)


def test_a_saving_whose_outputs_got_terser_banks_nothing_and_is_named(tmp_path: Path) -> None:
    kept = Changed(written(tmp_path, -0.10, weeks_after=1, outputs=0.6), CHANGED)
    assert judged(kept, CHANGED + WEEK) == 1
    (row,), (verdict,), (stored,) = kept.rows(), kept.verdicts(), receipts(kept)
    assert (row.state, verdict.judgement.result) == (State.OUTPUT_CHANGED, VerdictResult.OUTPUT_CHANGED)
    assert str(verdict.judgement.reason).startswith("outputs are terser: mean length of outputs 250 → 150")
    assert verdict.judgement.label.endswith("output changed")
    assert stored.read().finding.verdict is EffectVerdict.OUTPUT_CHANGED and banked([stored], [row]).nano_usd is None
    check = stored.check()
    assert check.intact and check.reproduced
