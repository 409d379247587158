"""A screen that is open detects and judges as an advice run does."""

from pathlib import Path

import pytest
from sqlalchemy import delete

from pertoken.config import Settings
from pertoken.proof.detection import JUDGED_EVERY_S, ChangeWatch
from pertoken.proof.recommendation import State, roll_back
from pertoken.proof.stored import keep
from pertoken.proof.verdicts import VerdictResult
from pertoken.store.connect.open import open_store
from pertoken.store.schema import advice as tables
from tests.proof.judging.changes import WEEK, Changed, changed_after, written
from tests.proof.test_detection import BF16, TO_FP8, Stored, empty, folder, proposal, recorded
from tests.window.epochs.test_history import NOW

__all__ = ["empty", "folder"]


def test_a_screen_looks_closer_only_when_an_epoch_was_added(folder: Path) -> None:
    kept = Stored(folder, proposal())
    recorded(kept.where, BF16)
    watch, store = ChangeWatch(kept.where, Settings()), open_store(kept.where)
    watch.look(store, NOW)
    recorded(kept.where, BF16, TO_FP8, ts=NOW)
    watch.look(store, NOW)
    assert [row.state for row in kept.rows()] == [State.VERIFYING]
    kept.act("quantize", lambda recommendation: roll_back(recommendation, NOW))
    keep(kept.target, [proposal()], {"quantize"}, NOW, "advisor")
    with kept.target.writing() as connection:
        connection.execute(delete(tables.verdict))  # a look would detect the change again
    watch.look(store, NOW)
    assert sorted(row.state for row in kept.rows()) == [State.OPEN, State.ROLLED_BACK]


@pytest.mark.parametrize("due", [False, True])
def test_a_screen_judges_due_changes_at_its_interval(tmp_path: Path, due: bool) -> None:
    changed = changed_after(5)
    kept = Changed(written(tmp_path, -0.1, weeks_after=1), changed)
    watch, store = ChangeWatch(kept.where, Settings()), open_store(kept.where)
    watch.look(store, changed + WEEK - JUDGED_EVERY_S + 60)
    assert [verdict.judgement.result for verdict in kept.verdicts()] == [VerdictResult.PENDING]
    watch.look(store, changed + WEEK + (60 if due else -JUDGED_EVERY_S + 120))
    expected = VerdictResult.CHEAPER if due else VerdictResult.PENDING
    assert [verdict.judgement.result for verdict in kept.verdicts()] == [expected]
