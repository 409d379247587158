"""A screen keeps its connection to a SQLite file, and notices when another file is there."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from pertoken.errors import StoreError
from pertoken.store.connect.open import Store, open_store
from tests.values import new_store


def opened(store: Store) -> list[object]:
    """Return connections that are made from now on."""
    made: list[object] = []
    event.listen(store.telemetry, "connect", lambda connection, _: made.append(connection))
    return made


def hosts(store: Store) -> int:
    with store.read() as connection:
        count: int = connection.execute(text("SELECT count(*) FROM host")).scalar_one()
        return count


def test_a_connection_is_kept_between_transactions_where_asked(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    for keep, expected in ((True, 0), (False, 3)):
        store = open_store(where, keep=keep)
        hosts(store)
        made = opened(store)
        assert [hosts(store) for _ in range(3)] == [0, 0, 0]
        assert len(made) == expected
        store.telemetry.dispose()


def test_a_file_that_was_replaced_is_read_and_not_the_old_one(tmp_path: Path) -> None:
    where = new_store(tmp_path / "a")
    store = open_store(where, keep=True)
    assert hosts(store) == 0
    other = new_store(tmp_path / "b").file("telemetry")
    with closing(sqlite3.connect(other)) as connection:
        values = "(host_id, name, agent_version, interval_s, first_ts, last_ts) VALUES (1, 'gpu-a', '0', 10, 0, 0)"
        connection.execute(f"INSERT INTO host {values}")
        connection.commit()
    shutil.move(other, where.file("telemetry"))
    assert hosts(store) == 1
    store.telemetry.dispose()


def test_a_file_that_went_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    store = open_store(where, keep=True)
    assert hosts(store) == 0
    where.file("telemetry").unlink()
    with pytest.raises(StoreError, match=str(tmp_path)):
        hosts(store)


def test_reads_of_a_held_group_share_one_transaction_and_one_moment(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    store = open_store(where)
    made = opened(store)
    with store.hold("telemetry", "advice") as held:
        assert hosts(held) == 0
        with closing(sqlite3.connect(where.file("telemetry"))) as agent:
            values = "(host_id, name, agent_version, interval_s, first_ts, last_ts) VALUES (1, 'gpu-a', '0', 10, 0, 0)"
            agent.execute(f"INSERT INTO host {values}")
            agent.commit()
        with held.hold("telemetry") as again:
            assert hosts(again) == hosts(held) == 0
        assert len(made) == 1
    assert hosts(store) == 1
    if store.advice is None:
        with pytest.raises(StoreError, match="holds no advice yet"), held.read("advice"):
            pass
