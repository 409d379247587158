"""A window of a database as one file, and the screens over it."""

import json
import re
import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, Text

from pertoken.proof.stored import keep
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.export.anonymous import COLUMNS, column_name, is_id
from pertoken.store.export.recording import tables, unpack
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import stable_id
from tests.cli.builders import run
from tests.proof.rows import row
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store

END = int(time.time()) // 60 * 60
SECRETS = (
    "planted-host",
    "planted-model",
    "/srv/planted",
    "GPU-planted",
    "10.77.66.55",
    "planted-user",
    "planted-team",
)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    """A host with planted names, in columns and in free text."""
    folder: Path = tmp_path_factory.mktemp("record") / "db"
    place = seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=3.2, minutes=30, end_ts=END, host="planted-host")
    keep(AdviceRepository(place), [row()], {"quantize"}, END, "advisor")
    with closing(sqlite3.connect(place.file("telemetry"))) as file:
        file.create_function("crc_row", -1, lambda *_: 0)
        for name in [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]:
            file.execute(f'DROP TRIGGER "{name}"')
        file.execute("UPDATE deployment SET served_model = 'planted-model', model_path = '/srv/planted/weights'")
        file.execute("UPDATE engine SET base_url = 'http://10.77.66.55:8000'")
        file.execute("UPDATE device SET uuid = 'GPU-planted' || slot WHERE kind = 'gpu'")
        epoch_id = file.execute("SELECT epoch_id FROM epoch").fetchone()[0]
        file.execute(
            f"INSERT INTO {t.engine_counter_rollup[60].name} VALUES (?, ?, ?, 7, 1)",
            (epoch_id, END - 120, 'tenant_prompt_tokens{team="planted-team",user="planted-user"}'),
        )
        message = "planted-host: http://10.77.66.55:8000/metrics of /srv/planted/weights answered 404 (planted-model)"
        file.execute("INSERT INTO event VALUES (1, 1, ?, ?, 1, 'x', NULL, ?)", (END - 300, END - 300, message))
        file.commit()
    with closing(sqlite3.connect(place.file("advice"))) as file:
        file.execute("UPDATE recommendation SET target_kind = 'service', target_key = 'planted-model'")
        file.execute("UPDATE recommendation SET title = 'Serve planted-model on planted-host otherwise'")
        file.execute("UPDATE transition SET who = 'planted-user', why = 'planted-user asked for it'")
        file.commit()
    return place


def contents(file: Path) -> dict[str, bytes]:
    """Return the files of an archive, by name."""
    with closing(sqlite3.connect(file)) as archive:
        rows = archive.execute("SELECT name, sz, data FROM sqlar").fetchall()
    return {name: data if len(data) == size else zlib.decompress(data) for name, size, data in rows}


def test_a_recording_shows_the_same_figures_without_the_database(where: StoreLocation, tmp_path: Path) -> None:
    file = tmp_path / "window.pertoken"
    recorded = run("record", str(file), "--db", str(where), "--last", "1h")
    assert recorded.exit_code == 0 and "`pertoken replay" in recorded.output
    shown = run("replay", str(file), "--once").output
    assert f"from {file}" in shown and "planted-host" in shown
    end = time.gmtime(json.loads(contents(file)["recording.json"])["end_ts"])
    live = run("top", "--once", "--at", time.strftime("%Y-%m-%dT%H:%MZ", end), "--db", str(where)).output

    def deployments(text: str) -> list[str]:
        return [line for line in text.splitlines() if "planted-model" in line and "vllm" in line]

    assert deployments(shown) == deployments(live) != []


def test_no_planted_name_is_left_in_an_anonymized_recording(where: StoreLocation, tmp_path: Path) -> None:
    file = tmp_path / "window.pertoken"
    assert run("record", str(file), "--db", str(where), "--anonymize").exit_code == 0
    parts = {**contents(file), "the archive itself": file.read_bytes()}
    leaks = [(name, secret) for name, part in parts.items() for secret in SECRETS if secret.encode() in part]
    assert leaks == []
    sense = rb"host-\w{12}: http://address-\w{12}:8000/metrics of [\w-]+ answered 404"
    assert re.search(sense, parts["telemetry.db"]), "texts keep their sense"
    shown = run("replay", str(file), "--once").output
    assert "host-" in shown and "model-" in shown


def test_a_name_in_any_text_column_and_any_id_is_replaced(tmp_path: Path) -> None:
    """Every text column of the schema has a name, alone or in a sentence or document; every id has 64 bits."""
    place = new_store(tmp_path / "db")
    planted: list[str] = []
    ids: list[int] = []
    for group in GROUPS:
        with closing(sqlite3.connect(place.file(group))) as database:
            for table in tables(group):
                values = [planted_value(column, planted, ids) for column in table.columns]
                database.execute(f"INSERT INTO {table.name} VALUES ({','.join('?' * len(values))})", values)
            database.commit()
    file = tmp_path / "window.pertoken"
    assert run("record", str(file), "--db", str(place), "--anonymize").exit_code == 0
    parts = contents(file)
    assert len(planted) > 100 and len(ids) > 40
    assert [name for name in planted for part in parts.values() if name.encode() in part] == []
    stored = [number.to_bytes(8, signed=True) for number in ids]
    assert [number for number in stored for part in parts.values() if number in part] == []
    (tmp_path / "plain").mkdir()
    assert run("record", str(tmp_path / "plain" / "file"), "--db", str(place)).exit_code == 0
    plain = b"".join(contents(tmp_path / "plain" / "file").values())
    assert [name for name in planted if name.encode() not in plain] == []
    assert [number for number in stored if number not in plain] == []


def planted_value(column: Column[Any], planted: list[str], ids: list[int]) -> object:
    name = column_name(column)
    if isinstance(column.type, Text):
        planted.append(f"Xylo{len(planted)}phon")
        if name in COLUMNS["facts"] + COLUMNS["document"]:
            planted.extend(f"Xylo{len(planted) + number}phon" for number in range(3))
            return json.dumps({planted[-4]: planted[-3], "reason": [f"the team '{planted[-2]}' of {planted[-1]}"]})
        return f"the engine of {planted[-1]} stopped" if name in COLUMNS["sentence"] else planted[-1]
    if is_id(column):
        ids.append(stable_id("planted", column.name))
        return ids[-1]
    return END - 300 if name.endswith("ts") else 1


def test_an_anonymized_recording_shows_the_same_figures(
    where: StoreLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: END + 5.0)
    figures = []
    for option in ((), ("--anonymize",)):
        file, folder = tmp_path / f"file{len(option)}", tmp_path / f"db{len(option)}"
        assert run("record", str(file), "--db", str(where), "--last", "2h", *option).exit_code == 0
        folder.mkdir()
        unpack(file, folder)
        outputs = [
            run("replay", str(file), "--once").output,
            run("costs", "--hours", "1", "--db", str(folder)).output,
            run("costs", "--hours", "1", "--by", "gpu", "--db", str(folder)).output,
            run("advise", "--db", str(folder)).output,
        ]
        figures.append([sorted(re.findall(r"\$[\d.,]+", output)) for output in outputs])
    assert figures[0] == figures[1]
    assert all(figures[0][:3])


def test_pseudonyms_are_the_same_in_recordings_by_one_key_file_alone(where: StoreLocation, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef")

    def host_names(name: str, *options: str) -> set[bytes]:
        file = tmp_path / name
        assert run("record", str(file), "--db", str(where), "--anonymize", *options).exit_code == 0
        assert key.read_bytes() not in b"".join(contents(file).values())
        return set(re.findall(rb"host-[0-9a-f]{12}", contents(file)["telemetry.db"]))

    names = host_names("a", "--key", str(key))
    assert host_names("b", "--key", str(key)) == names
    assert not host_names("c") & names


def test_a_key_file_that_is_short_or_absent_or_has_no_use_is_refused(where: StoreLocation, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"short")
    arguments = ("record", str(tmp_path / "file"), "--db", str(where), "--key")
    assert "fewer than 16 bytes" in run(*arguments, str(key), "--anonymize").output
    assert "cannot be read" in run(*arguments, str(tmp_path / "none"), "--anonymize").output
    assert "only with --anonymize" in run(*arguments, str(key)).output


def test_a_recording_is_never_written_over_and_needs_a_minute(where: StoreLocation, tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    assert "exists already" in run("record", str(file), "--db", str(where)).output
    assert file.read_text() == "mine"
    assert "shortest recording is a minute" in run("record", str(tmp_path / "x"), "--last", "10s").output
    assert "is no recording" in run("replay", str(file), "--once").output
