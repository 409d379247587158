import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.advisor.service import FirstRun, first_run, may_start, reason_to_wait
from pertoken.errors import CorruptStore, NewerStore
from pertoken.store.connect.location import ProgramLock, StoreLocation, locate
from pertoken.store.connect.open import REVISIONS
from pertoken.store.connect.turn import AdvisorTurn
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store

HOUR = 3600.0


@pytest.fixture
def recorded(tmp_path: Path) -> StoreLocation:
    """Three minutes of telemetry."""
    end_ts = int(time.time()) // 60 * 60
    return seed(new_store(tmp_path), LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=3, end_ts=end_ts)


def test_the_first_run_waits_for_five_minutes_of_telemetry_or_its_period(recorded: StoreLocation) -> None:
    state = first_run(recorded, HOUR)
    assert state is not None and state.required_s == 300 and 100 <= state.wait_s < 200
    assert not may_start(recorded, HOUR) and may_start(recorded, 60.0)


def test_a_database_that_is_not_there_yet_can_have_no_run(tmp_path: Path) -> None:
    assert not may_start(locate(str(tmp_path)), HOUR)


def test_there_is_a_reason_to_wait_for_telemetry_that_an_agent_records_or_upgrades_later(tmp_path: Path) -> None:
    assert "holds no telemetry.db; start one with" in (reason_to_wait(locate(str(tmp_path))) or "")
    where = new_store(tmp_path)
    assert reason_to_wait(where) is None
    set_revision(where, REVISIONS["telemetry"][0])
    assert "is of an older pertoken" in (reason_to_wait(where) or "")


def test_there_is_none_for_a_database_that_is_damaged_or_newer(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    set_revision(where, "9999")
    with pytest.raises(NewerStore, match="upgrade pertoken here"):
        reason_to_wait(where)
    Path(where.file("telemetry")).write_bytes(b"not a database at all\n" * 400)
    with pytest.raises(CorruptStore):
        reason_to_wait(where)


def set_revision(where: StoreLocation, revision: str) -> None:
    with closing(sqlite3.connect(where.file("telemetry"))) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_it_is_known_whether_an_advisor_serves_the_database(recorded: StoreLocation) -> None:
    state = first_run(recorded, HOUR)
    assert state is not None and not state.served and "`pertoken advise` runs them once" in state.sentence()
    turn = AdvisorTurn(recorded)
    assert turn.take() and recorded.folder is not None
    try:
        assert ProgramLock(recorded.folder, "advisor").owner() is not None
        state = first_run(recorded, HOUR)
        assert state is not None and state.served and "The advisor runs the rules in " in state.sentence()
    finally:
        turn.release()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            FirstRun(100.0, 300.0, served=True),
            "No rule has run yet. The advisor runs the rules in 3m: 100s of 5m of telemetry are recorded.",
        ),
        (
            FirstRun(900.0, 300.0, served=True),
            "No rule has run yet. The advisor runs the rules now, which takes up to a minute.",
        ),
        (
            FirstRun(900.0, 300.0, served=False),
            "No rule has run yet, and no advisor runs here; rules have enough telemetry. `pertoken advise` runs them "
            "once, `pertoken up` or `sudo pertoken advisor install` runs them again and again.",
        ),
    ],
)
def test_the_sentence_has_the_time_and_the_next_step(state: FirstRun, sentence: str) -> None:
    assert state.sentence() == sentence
