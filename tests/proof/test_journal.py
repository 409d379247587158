"""The journal of a recommendation."""

from pathlib import Path

from pertoken.proof import verdicts
from pertoken.proof.detection import journal
from pertoken.proof.recommendation import Edit, accept
from pertoken.proof.stored import keep, store_acts
from pertoken.proof.verdicts import Verdict
from pertoken.store.repository import AdviceRepository
from tests.proof.rows import NOW, row
from tests.values import new_store

EDIT = Edit("deployment", 7, "weight_dtype", "bf16", "fp8")


def test_moves_and_recorded_changes_are_one_history_by_time(tmp_path: Path) -> None:
    target = AdviceRepository(new_store(tmp_path))
    (recommendation,) = keep(target, [row()], {"quantize"}, NOW, "advisor")
    store_acts(target, recommendation, accept(recommendation, NOW + 5, "cheap"), "ann")
    with target.writing() as connection:
        change = Verdict(
            7, 2, 1, NOW + 9, "chat on gpu-1", (EDIT,), recommendation.recommendation_id, created_ts=NOW + 10
        )
        verdicts.write(connection, [change])
        verdicts.write(connection, [Verdict(7, 3, 2, NOW, "x", created_ts=NOW)])
        entries = journal(connection, recommendation.recommendation_id)
    assert [(entry.ts, entry.what, entry.who, entry.why, entry.edits) for entry in entries] == [
        (NOW, "open", "advisor", "proposed by its rule", ()),
        (NOW + 5, "accepted", "ann", "cheap", ()),
        (NOW + 9, "chat on gpu-1", "telemetry", "its configuration changed", (EDIT,)),
    ]
    edits = entries[2].values()["edits"]
    assert isinstance(edits, tuple) and edits[0]["after"] == "fp8"
