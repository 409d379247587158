"""Bits flipped in the header and the schema: a writer opens the file and works, or finds it damaged; nothing else."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.agent.daemon import migrate
from pertoken.errors import CorruptStore
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import REVISIONS
from pertoken.store.write.writer import Writer
from tests.store.filled import filled, filled_tick

FLIPS = 60


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return filled(tmp_path_factory.mktemp("whole"), 30).file("telemetry").read_bytes()


def start(where: StoreLocation) -> bool:
    """Return what an agent does with its file at a start; whether it is damaged."""
    try:
        migrate(where)
        with Writer(where) as writer:
            writer.restored.counters()
            writer.commit(filled_tick(31))
            writer.roll_up()
    except CorruptStore:
        return True
    return False


def test_a_bit_flipped_in_the_header_or_the_schema_is_harmless_or_found_as_damage(
    tmp_path: Path, content: bytes
) -> None:
    chance = random.Random(5)
    schema = [page for page in range(0, len(content), 4096) if b"CREATE " in content[page : page + 4096]]
    damaged = 0
    for n in range(FLIPS):
        byte = chance.randrange(100) if n % 4 == 0 else chance.choice(schema) + chance.randrange(4096)
        flipped = bytearray(content)
        flipped[byte] ^= 1 << chance.randrange(8)
        for file in tmp_path.iterdir():
            file.unlink()
        (tmp_path / "telemetry.db").write_bytes(flipped)
        damaged += start(locate(str(tmp_path)))
    assert 0 < damaged < FLIPS


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE alembic_version SET version_num = '00x4'",
        f"UPDATE alembic_version SET version_num = '{REVISIONS['telemetry'][0]}'",
        "DELETE FROM alembic_version",
        "ALTER TABLE alembic_version RENAME TO alembib_version",
        "ALTER TABLE share_1h RENAME TO rhare_1h",
        "ALTER TABLE seal RENAME COLUMN crc_sum TO krc_sum",
    ],
)
def test_a_revision_or_a_table_that_is_no_longer_named_so_is_found_as_damage(
    tmp_path: Path, content: bytes, sql: str
) -> None:
    (tmp_path / "telemetry.db").write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "telemetry.db")) as connection:
        connection.execute(sql)
        connection.commit()
    assert start(locate(str(tmp_path)))
