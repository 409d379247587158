"""Rows of a local database that hold anything: every command answers, and names what it cannot use."""

import random
import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Table

from pertoken.cli import main
from pertoken.store.schema import telemetry as t
from tests.fleet.servers import host
from tests.fleet.test_report import price
from tests.fuzz.damage import TEXTS

COMMANDS = (
    ("top", "--once"),
    ("advise", "--since", "1h"),
    ("plan", "--since", "1h"),
    ("costs", "--hours", "2"),
    ("costs", "--hours", "2", "--figures"),
    ("report", "--from", "2h", "--md"),
)
IDENTITIES = (t.host, t.device, t.engine, t.deployment, t.epoch, t.event, t.capability)
LIMITS = (0, 1, -1, 60, 2**31, 2**53, 2**63 - 1, -(2**63))
ROLLED_LIMITS = (0, 1, 60, 2**31, 2**40)
JSON = (
    "{}",
    "[]",
    "null",
    '{"tp": 0}',
    '{"tp": ' + "9" * 5_000 + "}",
    '{"nvlink": 1}',
    '{"params_total": 0}',
    "[" * 9_000,
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of one host, with a price."""
    where = host(tmp_path_factory.mktemp("recorded"), minutes=70, end_ts=int(time.time()) // 60 * 60)
    price(where)
    return Path(where.file("telemetry")).parent


def any_value(column: Any, chance: random.Random, limits: Sequence[int]) -> Any:
    if column.nullable and chance.random() < 0.1:
        return None
    if column.type.python_type is str:
        return chance.choice((*(text for text in TEXTS if text.isascii() or text.isalpha()), *JSON))
    return chance.choice(limits)


def write(
    database: Path, tables: tuple[Table, ...], chance: random.Random, portion: float, limits: Sequence[int] = LIMITS
) -> None:
    connection = sqlite3.connect(database)
    for table in tables:
        for column in table.columns:
            if column.primary_key or column.name.endswith("_id") or chance.random() > portion:
                continue
            value = any_value(column, chance, limits)
            if isinstance(value, str):
                value = value.encode(errors="replace").decode()
            connection.execute(f"UPDATE {table.name} SET {column.name} = ?", (value,))
    connection.commit()
    connection.close()


def run_all(folder: Path) -> str:
    output = ""
    for arguments in COMMANDS:
        result = CliRunner().invoke(main, [*arguments, "--db", str(folder)])
        assert result.exit_code == 0, (arguments, result.exception, result.output[-300:])
        assert len(result.output) < 1_000_000, arguments
        assert "\x1b" not in result.output and "\x00" not in result.output, arguments
        output += result.output
    return output


@pytest.mark.parametrize("seed", range(6))
def test_any_value_of_an_identity_is_answered_and_named(recorded: Path, tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(recorded, folder)
    write(folder / "telemetry.db", IDENTITIES, random.Random(seed), 0.6)
    assert "are not used as they came" in run_all(folder)


@pytest.mark.parametrize("seed", range(6))
def test_any_value_of_a_roll_up_is_answered(recorded: Path, tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(recorded, folder)
    rolled = tuple(table for table in t.metadata.sorted_tables if table.name.endswith(("_1m", "_1h", "_sample")))
    write(folder / "telemetry.db", rolled, random.Random(seed), 0.2, ROLLED_LIMITS)
    run_all(folder)
