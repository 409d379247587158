"""`pertoken probe` against a real llama.cpp server, from consent to a calibrated forecast."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pertoken.advisor.present import present
from pertoken.agent import load_probe
from pertoken.catalog.market import load_market
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from tests.cli.builders import run
from tests.llama import ALIAS, LlamaServer, Shape, write_model
from tests.values import served_at

SHAPE = Shape(width=128, heads=4, layers=4, hidden=256)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    model = write_model(tmp_path_factory.mktemp("probe") / "model.gguf", shape=SHAPE)
    with LlamaServer(model, slots=2, context=600) as running:
        yield running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_probe, "IDLE_S", 0.1)


def points_of(where: StoreLocation) -> int:
    """Points that the forecast of the deployment is calibrated on."""
    (seen,) = present(open_store(where), load_market(), 3600, int(time.time()) + 1).context.deployments.values()
    return len(seen.operating_points())


def test_a_probe_shows_its_cost_first_and_its_points_calibrate_the_deployment_at_that_address(
    server: LlamaServer, tmp_path: Path
) -> None:
    where = served_at(tmp_path / "db", server.url)
    done = run("probe", server.url, "--yes", "--json", "--db", str(where.folder))
    assert done.exit_code == 0, done.stderr
    assert "At most" in done.stderr and "generated tokens" in done.stderr and "no price" in done.stderr
    printed = json.loads(done.stdout)
    assert printed["stored"] and printed["deployment_id"] == 8 and printed["stopped"] is None
    assert {point["probed"] for point in printed["points"]} == {True}
    assert {point["running"] for point in printed["points"]} == {1, 2}
    assert (printed["engine"], printed["model"]) == ("llama.cpp", ALIAS) and printed["prompt_tokens"] > 100
    assert points_of(where) == len(printed["points"]) > 3
    served_at(tmp_path / "db", server.url, epoch_id=10, began_s_ago=-1)
    assert points_of(where) == 0  # its engine, driver, model or knobs changed


def test_nothing_is_sent_without_consent(server: LlamaServer, tmp_path: Path) -> None:
    before = server.counted()
    refused = run("probe", server.url, "--db", str(tmp_path))
    assert refused.exit_code == 2 and "--yes" in refused.stderr
    assert server.counted() == before


def test_points_of_an_unrecorded_address_are_shown_with_the_reason_why_they_are_not_kept(
    server: LlamaServer, tmp_path: Path
) -> None:
    done = run("probe", server.url.removeprefix("http://"), "--yes", "--db", str(tmp_path))
    assert done.exit_code == 0 and "TTFT" in done.stdout and "tokens/s" in done.stdout
    assert "Not stored" in done.stdout and "telemetry.db" in done.stdout


def test_a_server_without_metrics_is_probed_only_with_exclusive_use(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model.gguf", shape=SHAPE)
    with LlamaServer(model, metrics=False, slots=1, context=200) as server:
        refused = run("probe", server.url, "--yes", "--db", str(tmp_path))
        assert refused.exit_code == 1 and "--exclusive" in refused.stderr
        done = run("probe", server.url, "--yes", "--exclusive", "--json", "--db", str(tmp_path), "--seconds", "10")
    assert done.exit_code in (0, 3) and json.loads(done.stdout)["points"]


@pytest.mark.parametrize("endpoint", ["ftp://host", "http://", "http://host:port"])
def test_a_value_that_is_no_address_is_refused(endpoint: str, tmp_path: Path) -> None:
    refused = run("probe", endpoint, "--yes", "--db", str(tmp_path))
    assert refused.exit_code == 2 and "is no HTTP address" in refused.stderr


def test_an_address_at_which_nothing_answers_is_one_line(tmp_path: Path) -> None:
    refused = run("probe", "http://127.0.0.1:9", "--yes", "--exclusive", "--db", str(tmp_path))
    assert refused.exit_code == 1 and refused.stderr.count("\n") == 1 and "127.0.0.1:9" in refused.stderr


def test_ctrl_c_ends_the_probe_cleanly_and_prints_the_measured_points(server: LlamaServer, tmp_path: Path) -> None:
    code = "from pertoken.cli import main; from pertoken.agent import load_probe; load_probe.IDLE_S = 0.1; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "probe", server.url, "--yes", "--json", "--db", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    before, deadline = server.counter("n_decode_total"), time.monotonic() + 30
    while server.counter("n_decode_total") < before + 60:
        assert time.monotonic() < deadline and process.poll() is None, "the probe sends nothing"
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert b"Traceback" not in err, err
    if process.returncode == 130:
        assert json.loads(out)["stopped"] == "interrupted" and json.loads(out)["points"]
    else:
        assert process.returncode == 0  # it had ended before
