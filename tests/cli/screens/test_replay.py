"""Recordings that somebody else made: shown, or refused in one line."""

import json
import os
import random
import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.proof.stored import keep
from pertoken.store.connect.location import GROUPS
from pertoken.store.repository import AdviceRepository
from tests.cli.builders import run
from tests.cli.screens.test_record import contents
from tests.examples import examples
from tests.proof.rows import row
from tests.scenario import LOW_BATCH_70B, seed


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, end = tmp_path_factory.mktemp("recorded"), int(time.time()) // 60 * 60
    place = seed(folder / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=3.2, minutes=30, end_ts=end)
    keep(AdviceRepository(place), [row()], {"quantize"}, end, "advisor")
    file = folder / "window.pertoken"
    assert run("record", str(file), "--db", str(place), "--last", "30m").exit_code == 0
    return file


def flipped(body: bytes, chance: random.Random) -> bytes:
    """Return a copy with one to eight flipped bits, half of them among the first bytes, which describe the rest."""
    damaged = bytearray(body)
    for _ in range(chance.randint(1, 8)):
        end = min(len(damaged), chance.choice((100, 5000, len(damaged))))
        damaged[chance.randrange(end)] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def refused(file: Path) -> str:
    """Return the one message of `replay` about a file that it refuses, or nothing where it shows the file."""
    result = run("replay", str(file), "--once")
    assert result.exit_code in (0, 1)
    if result.exit_code == 0:
        return ""
    (line,) = result.output.strip().splitlines()[-1:]
    assert str(file) in line and "Traceback" not in result.output
    return line


def repacked(recorded: Path, file: Path, **changed: bytes) -> Path:
    """Write an archive with other contents of some of its files, by name without suffix."""
    parts = {**contents(recorded), **{f"{name}.db": part for name, part in changed.items() if name != "recording"}}
    parts["recording.json"] = changed.get("recording", parts["recording.json"])
    file.unlink(missing_ok=True)
    with closing(sqlite3.connect(file)) as archive:
        archive.execute("CREATE TABLE sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB)")
        rows = [(name, len(part), zlib.compress(part, 1)) for name, part in parts.items()]
        archive.executemany("INSERT INTO sqlar VALUES (?, 0, 0, ?, ?)", rows)
        archive.commit()
    return file


def test_an_archive_with_flipped_bits_is_shown_or_refused_in_one_line(recorded: Path, tmp_path: Path) -> None:
    chance, file = random.Random(1), tmp_path / "flipped"
    for _ in range(examples(60)):
        file.write_bytes(flipped(recorded.read_bytes(), chance))
        refused(file)


def test_a_database_with_flipped_bits_is_shown_or_refused_in_one_line(recorded: Path, tmp_path: Path) -> None:
    chance, parts = random.Random(2), contents(recorded)
    outcomes = set()
    for number in range(examples(100)):
        group = GROUPS[number % 2]
        damaged = flipped(parts[f"{group}.db"], chance)
        outcomes.add(bool(refused(repacked(recorded, tmp_path / "flipped", **{group: damaged}))))
    assert True in outcomes


@pytest.mark.parametrize(
    ("group", "statement", "reason"),
    [
        ("telemetry", "CREATE TRIGGER x AFTER INSERT ON host BEGIN SELECT 1; END", "trigger 'x'"),
        ("telemetry", "CREATE VIEW x AS SELECT 1", "view 'x'"),
        ("telemetry", "CREATE VIRTUAL TABLE x USING fts5(y)", "table 'x"),
        ("telemetry", "CREATE TABLE x (y)", "table 'x'"),
        ("telemetry", "CREATE INDEX x ON host (name)", "index 'x'"),
        ("telemetry", "DROP INDEX ix_outbox_seq; CREATE INDEX ix_outbox_seq ON outbox (seq + 1)", "of an expression"),
        ("advice", "DROP TABLE refusal; CREATE TABLE refusal (x TEXT CHECK (length(x) > 1))", "table 'refusal'"),
        ("telemetry", "DROP TABLE host_1h", "host_1h has other columns"),
        ("telemetry", "ALTER TABLE host ADD COLUMN y", "host has other columns"),
        ("telemetry", "UPDATE deployment_1m SET generated_tokens = 'many'", "generated_tokens is not a number"),
        ("telemetry", "UPDATE deployment_1m SET generated_tokens = 1e300", "generated_tokens is not a number"),
        ("telemetry", f"UPDATE deployment_1m SET generated_tokens = {2**63 - 1}", "generated_tokens is not a number"),
        ("telemetry", "UPDATE host_1m SET ts = 7 WHERE ts = (SELECT max(ts) FROM host_1m)", "ts is not a time"),
        ("telemetry", "UPDATE host SET last_ts = 99999999999999", "last_ts is not a time"),
        ("telemetry", "UPDATE host SET name = x'00ff'", "name is not text"),
        ("telemetry", "UPDATE host SET name = CAST(x'ff4142' AS TEXT)", "UTF-8"),
        ("telemetry", "UPDATE epoch SET knobs = '[1]'", "knobs is no JSON object"),
        ("telemetry", "UPDATE epoch SET knobs = '{\"tp\": NaN}'", "knobs is no JSON object"),
        ("telemetry", f"UPDATE epoch SET knobs = '{{\"tp\": {9**99}}}'", "knobs is no JSON object"),
        ("telemetry", "UPDATE epoch SET knobs = replace(hex(zeroblob(9999)), '0', '[')", "knobs is no JSON object"),
        ("telemetry", "UPDATE alembic_version SET version_num = '0001'", "an older pertoken"),
        ("telemetry", "UPDATE alembic_version SET version_num = '9999'", "a newer pertoken"),
        ("telemetry", "DELETE FROM alembic_version", "names no revision"),
        ("advice", "UPDATE recommendation SET state = 'NONE'", "cannot be shown"),
        ("advice", "UPDATE recommendation SET body = '{}'", "cannot be shown"),
        ("advice", "DROP TABLE price", "price has other columns"),
    ],
)
def test_a_database_of_another_kind_is_refused_with_what_is_wrong(
    recorded: Path, tmp_path: Path, group: str, statement: str, reason: str
) -> None:
    (tmp_path / "db").write_bytes(contents(recorded)[f"{group}.db"])
    with closing(sqlite3.connect(tmp_path / "db")) as database:
        database.executescript(statement)
        database.commit()
    file = repacked(recorded, tmp_path / "file", **{group: (tmp_path / "db").read_bytes()})
    assert reason in refused(file)


def test_an_archive_with_anything_but_its_table_is_refused(recorded: Path, tmp_path: Path) -> None:
    file = repacked(recorded, tmp_path / "file")
    with closing(sqlite3.connect(file)) as archive:
        archive.execute("ALTER TABLE sqlar RENAME TO parts")
        archive.execute("CREATE VIEW sqlar AS SELECT * FROM parts")
        archive.commit()
    assert "no recording has" in refused(file)


def test_a_part_that_is_larger_than_a_text_may_be_is_unpacked(recorded: Path, tmp_path: Path) -> None:
    file = repacked(recorded, tmp_path / "file")
    with closing(sqlite3.connect(file)) as archive:
        incompressible = random.Random(3).randbytes(20_000_000)
        archive.execute(
            "UPDATE sqlar SET sz = ?, data = ? WHERE name = 'advice.db'", (len(incompressible), incompressible)
        )
        archive.commit()
    assert "advice.db in it: it is no SQLite file" in refused(file)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("end_ts", 10**30),
        ("end_ts", 2**62),
        ("end_ts", -5),
        ("end_ts", "soon"),
        ("end_ts", 1.5),
        ("start_ts", True),
        ("start_ts", 0),
        ("start_ts", None),
        ("anonymized", 7),
        ("format", 10**40),
        ("format", 2),
        ("format", "one"),
        ("more", 1),
    ],
)
def test_a_header_with_another_value_is_refused(recorded: Path, tmp_path: Path, field: str, value: object) -> None:
    header = json.loads(contents(recorded)["recording.json"])
    header[field] = value
    assert refused(repacked(recorded, tmp_path / "file", recording=json.dumps(header).encode()))


def test_a_path_that_is_no_recording_is_refused(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04" + bytes(500))
    (tmp_path / "cut").write_bytes(recorded.read_bytes()[:5000])
    (tmp_path / "other").write_bytes(contents(recorded)["telemetry.db"])
    for name in ("empty", "pipe", "loop", "zip", "cut", "other", "absent", "."):
        assert refused(tmp_path / name), name
    assert refused(Path("/dev/zero"))


def test_a_log_beside_a_recording_is_not_read(recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(recorded.read_bytes())
    for suffix in ("-wal", "-journal"):
        (tmp_path / f"file{suffix}").write_bytes(b"words")
    assert refused(file) == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "file-journal", "file-wal"]
