"""`pertoken demo` as a person runs it."""

import json
from pathlib import Path

import pytest

from pertoken.demo import place
from tests.cli.builders import run
from tests.postgres import server_url
from tests.scenario import HEALTHY_70B, seed

END = 1_790_000_000 // 60 * 60
SMALL = ("--hosts", "2", "--days", "1", "--no-open")


def test_a_demo_is_made_advised_on_and_replaced_by_the_next(tmp_path: Path) -> None:
    folder, truth = tmp_path / "demo", tmp_path / "truth.json"
    done = run("demo", *SMALL, "--seed", "5", "--db", str(folder), "--truth", str(truth))
    assert done.exit_code == 0 and f"pertoken top --db {folder}" in done.output
    assert set(json.loads(truth.read_text())) == {"problems", "healthy"}
    options = ("--db", str(folder), "--config", str(folder / "pertoken.toml"))
    shown = run("top", "--once", *options).output
    assert "generated demo" in shown and "No rule has run yet" not in shown
    again = run("demo", *SMALL, "--seed", "6", "--db", str(folder))
    assert again.exit_code == 0 and run("top", "--once", *options).output != shown


def test_without_db_it_lies_beside_the_persons_own_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "person_folder", lambda: tmp_path / "pertoken")
    done = run("demo", *SMALL)
    assert done.exit_code == 0 and (tmp_path / "pertoken" / "demo" / "telemetry.db").exists()
    assert not (tmp_path / "pertoken" / "telemetry.db").exists()


def test_telemetry_of_real_hosts_is_never_touched(tmp_path: Path) -> None:
    real = seed(tmp_path / "real", HEALTHY_70B, gpus=2, usd_per_hour=None, minutes=2, end_ts=END)
    before = real.file("telemetry").read_bytes()
    refused = run("demo", *SMALL, "--db", str(real.folder))
    assert refused.exit_code == 2 and "telemetry of real hosts (gpu-1)" in refused.output
    assert real.file("telemetry").read_bytes() == before


def test_a_demo_is_made_and_read_on_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "person_folder", lambda: tmp_path / "pertoken")
    with server_url(tmp_path / "server") as url:
        done = run("demo", *SMALL, "--seed", "5", "--db", url)
        settings = tmp_path / "pertoken/demo-server/pertoken.toml"
        assert done.exit_code == 0 and f"--config {settings}" in done.output
        shown = run("top", "--once", "--db", url, "--config", str(settings)).output
        assert "generated demo" in shown and "No rule has run yet" not in shown


def test_a_server_that_does_not_answer_is_one_line() -> None:
    refused = run("demo", *SMALL, "--db", "postgresql://nobody@127.0.0.1:1/x")
    assert refused.exit_code == 1 and "Traceback" not in refused.output
    assert refused.stderr.startswith("pertoken: postgresql://nobody@127.0.0.1:1/x: ")
