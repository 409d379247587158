"""Many rows by one statement, on both dialects."""

from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.exc import DatabaseError

from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import writing
from pertoken.store.connect.sqlite import copy_rows, run_many
from pertoken.store.schema import telemetry as t
from tests.postgres import server_url
from tests.values import new_store

ADD = insert(t.dirty).values({name: bindparam(name) for name in ("rollup", "owner_id", "ts")})
MOVE = update(t.dirty).where(t.dirty.c.owner_id == bindparam("owner")).values(ts=bindparam("to"), rollup="host_1h")


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_rows_are_the_values_of_their_parameters_in_whatever_order_these_are_named(
    dialect: str, tmp_path: Path
) -> None:
    if dialect == "sqlite":
        check(new_store(tmp_path))
    else:
        with server_url(tmp_path) as url:
            check(new_store(locate(url)))


def check(where: StoreLocation) -> None:
    with writing(where, "telemetry").connect() as connection, connection.begin():
        assert run_many(connection, ADD, ("ts", "rollup", "owner_id"), [(60, "host_1m", 1), (120, "host_1m", 2)]) in (
            2,
            -1,
        )
        assert run_many(connection, MOVE, ("to", "owner"), [(180, 2)]) in (1, -1)
        assert run_many(connection, ADD, ("ts", "rollup", "owner_id"), []) == 0
        rows = connection.execute(select(t.dirty).order_by(t.dirty.c.owner_id)).all()
    assert [tuple(row) for row in rows] == [("host_1m", 1, 60), ("host_1h", 2, 180)]


def test_rows_are_copied_to_a_server_whole_or_not_at_all(tmp_path: Path) -> None:
    rows = [("host_1m", 1, 60), ("ho\\st\t1m", -(2**62), 120)]
    with server_url(tmp_path) as url:
        where = new_store(locate(url))
        with writing(where, "telemetry").connect() as connection, connection.begin():
            copy_rows(connection, t.dirty, rows)
        with writing(where, "telemetry").connect() as connection:
            with pytest.raises(DatabaseError, match="duplicate key"), connection.begin():
                copy_rows(connection, t.dirty, [("host_1m", 3, 60), rows[0]])
            assert sorted(connection.execute(select(t.dirty)).all(), reverse=True) == sorted(rows, reverse=True)
            assert connection.execute(select(func.count()).select_from(t.dirty)).scalar() == 2
