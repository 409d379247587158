"""`pertoken accept`, `snooze`, `dismiss`, `reopen`, `applied` and `undo`."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete

from pertoken.proof.recommendation import State, short_id
from pertoken.proof.stored import keep
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from tests.cli.builders import run
from tests.proof.judging.changes import VARIANT, changed_after, written
from tests.proof.rows import row
from tests.values import new_store

OPEN = row()
ID = short_id(OPEN)


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with one open and one blocked recommendation."""
    where = new_store(tmp_path)
    proposals = [OPEN, row(State.BLOCKED, "blocked-rule")]
    keep(AdviceRepository(where), proposals, {"quantize", "blocked-rule"}, int(time.time()), "advisor")
    return str(tmp_path)


def test_accepting_prints_the_promised_saving_and_the_commands_to_apply_it(db: str) -> None:
    done = run("accept", ID, "--db", db, "--why", "cheap enough")
    assert done.output.splitlines() == [
        f"{ID}  quantize, chat on gpu-1: weights bf16 → fp8: accepted, promised bankable $1.00 to $3.00 a month",
        "",
        "How to apply it (pertoken runs none of this)",
        "  restart chat with --quantization fp8",
    ]
    again = run("accept", ID, "--db", db)
    assert again.exit_code == 2
    assert again.stderr == (
        f"pertoken: {ID} (weights bf16 → fp8) is accepted and cannot be accepted; possible now: "
        f"`pertoken trial {ID}`, `pertoken reopen {ID}`, `pertoken applied {ID}`\n"
    )


def test_accepting_prints_first_what_the_history_could_prove_of_the_variant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, now = written(tmp_path, 0.0, weeks_after=1), changed_after(5)
    small = replace(VARIANT, key="b" * 16, throughput_ratio=(1.0, 1.001, 1.002))
    proposed = replace(OPEN, variants=(VARIANT, small))
    keep(AdviceRepository(where), [proposed], {"quantize"}, now, "advisor")
    monkeypatch.setattr("time.time", lambda: now)
    done = run("accept", ID, "--variant", "bb", "--db", str(tmp_path))
    first, line, empty, accepted, *_ = done.output.splitlines()
    assert first == "What its history could prove (savings of device time per token)" and empty == ""
    assert line.startswith("  tiny on gpu-1: ") and line.endswith("; the promised 0.1% not within four weeks")
    assert accepted.startswith(f"{ID}  quantize, chat on gpu-1: weights bf16 → fp8: accepted")
    refused = run("accept", ID, "--db", str(tmp_path))
    assert "could prove" not in refused.output and refused.exit_code == 2


def test_accepting_a_change_of_an_engine_that_was_never_restarted_proposes_two_plain_restarts_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, now = written(tmp_path, 0.0, weeks_after=1), changed_after(5)
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(delete(t.event).where(t.event.c.kind == "engine_restarted"))
    engine.dispose()
    keep(AdviceRepository(where), [replace(OPEN, variants=(VARIANT,))], {"quantize"}, now, "advisor")
    monkeypatch.setattr("time.time", lambda: now)
    _, line, *_ = run("accept", ID, "--db", str(tmp_path)).output.splitlines()
    assert line.endswith(
        "not separable from the restart: its engine was not restarted between earlier changes and this one; "
        "try the change by `pertoken trial`, which restarts a control, or restart the engine twice as it is, "
        "two weeks and one week before the change"
    )


def test_another_variant_is_accepted_by_its_key(db: str) -> None:
    (row,) = json.loads(run("accept", ID, "--variant", "bb", "--json", "--db", db).output)
    assert (row["state"], row["estimate"]["title"]) == ("ACCEPTED", "weights bf16 → int4")
    assert [entry["what"] for entry in row["journal"]] == ["open", "accepted"]


def test_a_snooze_and_a_dismissal_end_when_asked_to(db: str) -> None:
    assert ": snoozed until 2" in run("snooze", ID, "--for", "3d", "--db", db).output
    assert ": open" in run("reopen", ID, "--db", db).output
    now = time.time()
    (row,) = json.loads(run("dismiss", ID, "--json", "--db", db).output)
    assert row["until_ts"] == pytest.approx(now + 90 * 86_400, abs=120)
    for arguments, line in (
        (("--until", "2020-01-01"), "the end is in the past"),
        (("--until", "soon"), "--until: 'soon' is not a time"),
        (("--for", "9"), "--for: '9' is not a duration"),
        (("--for", "1d", "--until", "2030-01-01"), "only one of them"),
    ):
        run("reopen", ID, "--db", db)
        done = run("snooze", ID, "--db", db, *arguments)
        assert done.exit_code == 2 and line in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_applied_recommendation_is_undone_with_its_commands_and_journal(db: str) -> None:
    assert "cannot be rolled back" in run("undo", ID, "--db", db).stderr
    assert ": applied, promised" in run("applied", ID, "--db", db, "--why", "by hand").output
    lines = run("undo", ID, "--db", db).output.splitlines()
    assert lines[:2] == [
        "How to undo weights bf16 → fp8 (pertoken runs none of this)",
        "  restart chat without --quantization",
    ]
    assert lines[3] == "Journal" and lines[4].endswith("open (advisor: proposed by its rule)")
    assert lines[5].endswith(": by hand)") and len(lines) == 6
    assert ": rolled back" in run("undo", ID, "--done", "--db", db).output


def test_a_withdrawn_acceptance_goes_on_under_another_id(db: str) -> None:
    run("accept", ID, "--db", db)
    ended, again = run("reopen", ID, "--db", db).output.splitlines()
    assert ended.startswith(ID) and ": expired, promised" in ended
    assert not again.startswith(ID) and again.endswith("weights bf16 → fp8: open")


def test_a_row_without_a_proposal_cannot_be_accepted_and_an_unknown_id_is_one_line(db: str) -> None:
    blocked = short_id(row(rule_id="blocked-rule"))
    done = run("accept", blocked, "--db", db)
    assert done.exit_code == 2 and done.stderr.endswith(
        "is blocked and cannot be accepted: there is no proposal in it\n"
    )
    done = run("dismiss", "ffff", "--db", db)
    assert done.exit_code == 2 and "holds no advice 'ffff'" in done.stderr


def test_a_database_without_advice_names_the_command_that_makes_some(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    where.file("advice").unlink()
    done = run("accept", ID, "--db", str(tmp_path))
    assert done.exit_code == 2 and "holds no advice yet; `pertoken advise` makes some" in done.stderr
