"""A host's own file holds anything that its schema allows: every command answers, in less than 1 MB."""

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Table

from pertoken.cli import main
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.telemetry import HOUR
from tests.fleet.servers import host
from tests.fleet.test_report import price

COMMANDS = (
    "top --once",
    "top --once --json",
    "advise",
    "advise --json",
    "plan",
    "plan --json",
    "costs --hours 2",
    "costs --hours 2 --by gpu",
    "costs --hours 2 --by tenant --json",
    "costs --hours 2 --figures",
    "report --from 2h --md",
    "report --from 2h --html",
    "report --from 2h --focus",
    "report --from 2h --csv",
    "report --weekly",
    "budget",
    "alerts list",
    "doctor --json",
    "db info",
    "prices show",
    "export csv --table device_1m",
)
MAX_OUTPUT = 1_000_000
TABLES = tuple(table for table in t.metadata.sorted_tables if table.name not in ("alembic_version", "batch", "seal"))
WHOLE = st.one_of(
    st.sampled_from((0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63))), st.integers(-(2**63), 2**63 - 1)
)
TEXT = st.one_of(
    st.sampled_from(
        (
            "",
            " ",
            "\x1b[2J",
            "\u202e",
            "x" * 100_000,
            "[]",
            "null",
            '{"tp": 0}',
            '{"tp": ' + "9" * 5_000 + "}",
            "[" * 900,
        )
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40),
)


def values(column: Column[Any]) -> st.SearchStrategy[Any]:
    return WHOLE if "INT" in str(column.type) or "BOOL" in str(column.type) else TEXT


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[Table, float, dict[str, Any]]]:
    """Return (table, which of its rows, values of columns)."""
    tables = draw(st.lists(st.sampled_from(TABLES), min_size=1, max_size=40))
    return [
        (
            table,
            draw(st.floats(0, 1)),
            {
                column.name: draw(values(column))
                for column in draw(st.lists(st.sampled_from(list(table.columns)), min_size=1, max_size=3))
            },
        )
        for table in tables
    ]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    where = host(tmp_path_factory.mktemp("host"), minutes=70, end_ts=int(time.time()) // HOUR * HOUR, raw=True)
    price(where)
    return where


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("changed") / "db"


def change(file: Path, table: Table, which: float, values: dict[str, Any]) -> None:
    """Write values into one row of a table; the schema may refuse them."""
    keys = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(f"SELECT {keys} FROM {table.name}").fetchall()
        if not rows:
            return
        row = rows[min(int(which * len(rows)), len(rows) - 1)]
        columns = ", ".join(f'"{name}" = ?' for name in values)
        try:
            with connection:
                marks = ", ".join("?" * len(row))
                connection.execute(
                    f"UPDATE {table.name} SET {columns} WHERE ({keys}) = ({marks})", (*values.values(), *row)
                )
        except sqlite3.IntegrityError as refused:
            assert "constraint failed" in str(refused)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=changes())
def test_every_command_answers_whatever_a_hosts_file_holds(
    recorded: StoreLocation, folder: Path, made: list[tuple[Table, float, dict[str, Any]]]
) -> None:
    assert recorded.folder is not None
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(recorded.folder, folder)
    for table, which, row in made:
        change(folder / "telemetry.db", table, which, row)
    for command in COMMANDS:
        result = CliRunner().invoke(main, [*command.split(), "--db", str(folder)])
        assert result.exit_code == 0, (command, result.exception, result.output[-500:])
        assert len(result.output) < MAX_OUTPUT, command
        assert not {"\x1b", "\u202e"} & set(result.output), command
