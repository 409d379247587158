"""That the benchmarks run and print what they promise; nothing is timed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.standin_nvml.native import COMPILER

ROOT = Path(__file__).parents[1]


def run(name: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.keys() == {"name", "machine", "rows", "targets"}
    assert found["name"] == name
    assert {"cpu", "cores", "python", "versions"} <= found["machine"].keys()
    for row in found["rows"]:
        assert row.keys() == {"subject", "what", "value", "unit", "method"}
    for target in found["targets"]:
        assert target.keys() == {"id", "value", "limit", "op", "met"}
    return found


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_the_agent_benchmark_prints_its_figures_beside_those_of_the_bare_loop(tmp_path: Path) -> None:
    out = tmp_path / "agent.json"
    found = run("agent", "--gpus", "2", "--seconds", "2", "--starts", "1", "--growth", "3", "--out", str(out))
    assert json.loads(out.read_text()) == found
    rows = {(row["subject"], row["what"]): row["value"] for row in found["rows"]}
    assert rows["pertoken agent", "ticks"] >= 1
    assert {"pertoken agent", "bare pynvml loop", "zeus", "nvitop-exporter"} <= {subject for subject, _ in rows}
    assert {target["id"]: target["value"] for target in found["targets"]}.keys() == {
        "agent.cpu_share",
        "agent.driver_calls_per_tick",
        "agent.rss_mib",
        "agent.first_sample_s",
    }
    assert rows["pertoken agent", "pss_growth"] == 0  # of one look
    assert rows["bare pynvml loop", "driver_calls_per_tick"] > 0


def test_the_scrape_benchmark_compares_the_same_values() -> None:
    found = run("scrape", "--rounds", "1")
    targets = {target["id"]: target for target in found["targets"]}
    assert targets.keys() == {"scrape.cpu_ratio", "scrape.same_values"}
    assert targets["scrape.same_values"]["met"]


def test_the_plan_search_benchmark_forecasts_as_many_candidates_as_it_is_asked_to() -> None:
    found = run("forecast_speed", "--rounds", "1", "--candidates", "300")
    assert {target["id"] for target in found["targets"]} == {
        "forecast.candidates_per_s",
        "forecast.search_candidates_per_s",
    }
    assert "300 candidates" in found["rows"][0]["method"]


def test_the_benchmark_on_a_real_gpu_says_why_it_cannot_run_here() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_forecast"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 0:
        pytest.skip("there is a GPU here")
    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stderr or "no NVIDIA GPU" in done.stderr


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch")
def test_the_benchmark_on_a_real_gpu_runs_on_a_cpu_with_a_tiny_model() -> None:
    found = run("gpu_forecast", "--device", "cpu", "--tiny", "--steps", "2", "--accelerator", "H100 SXM5")
    measured = [row for row in found["rows"] if row["subject"] == "measured"]
    forecast = [row for row in found["rows"] if row["subject"] == "forecast" and row["unit"] == "tok/s"]
    assert [row["what"] for row in measured] == [f"{w}, batch {b}" for w in ("bf16", "int8") for b in (1, 2, 4)]
    assert len(forecast) == 5 and all(row["value"] > 0 for row in forecast)


def test_the_store_benchmark_is_exact_and_measures_nothing_by_a_peer_that_is_left_out() -> None:
    found = run("store", "--short", "--no-prometheus")
    rows = {(row["subject"], row["what"]): row["value"] for row in found["rows"]}
    assert rows["pertoken", "exact"] == 1
    targets = {target["id"]: target for target in found["targets"]}
    assert targets.keys() == {
        "store.query_ratio",
        "store.disk_ratio",
        "store.commit_ratio",
        "store.fleet_ratio",
        "store.fleet_screen_ms",
        "store.host_week_ms",
    }
    assert targets["store.disk_ratio"]["value"] is None
    assert not targets["store.disk_ratio"]["met"]


def test_the_check_benchmark_finds_its_two_faults_and_no_other() -> None:
    found = run("store_check", "--gpus", "4", "--days", "1")
    rows = {row["what"]: row["value"] for row in found["rows"]}
    assert (rows["faults"], rows["faults_of_two"]) == (0, 2)
    assert found["targets"][0]["value"] is not None
