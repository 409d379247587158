"""A window of a database as one file, and the screens over it."""

import json
import sqlite3
import time
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from pertoken.proof.findings import keep
from pertoken.store.connect.location import StoreLocation
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from tests.cli.builders import run
from tests.proof.rows import row
from tests.scenario import LOW_BATCH_70B, seed

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
    assert b"host-1: engine-1/metrics" in parts["telemetry.db"], "texts keep their sense, by the same pseudonyms"
    shown = run("replay", str(file), "--once").output
    assert "host-1" in shown and "model-" in shown


def test_a_recording_is_never_written_over_and_needs_a_minute(where: StoreLocation, tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    assert "exists already" in run("record", str(file), "--db", str(where)).output
    assert file.read_text() == "mine"
    assert "shortest recording is a minute" in run("record", str(tmp_path / "x"), "--last", "10s").output
    assert "is no recording" in run("replay", str(file), "--once").output
