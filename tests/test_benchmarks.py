"""That the benchmarks run and print what they promise; nothing is timed."""

import csv
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks import latency_llama
from benchmarks.forecast.live import queueing
from benchmarks.forecast.live.llama_clients import Clients, Prompt, Response, poisson_gaps, request, requests
from benchmarks.proof.__main__ import upper_95
from benchmarks.proof.histories import Condition, histories
from benchmarks.proof.runs import run as run_proof
from pertoken.arrivals import Lengths, fixed
from pertoken.evidence import OperatingPoint
from pertoken.forecast.queueing import under_load
from tests.examples import examples
from tests.forecast.engine_simulation import Request, simulate
from tests.llama import LlamaServer, write_model
from tests.standin_nvml.native import COMPILER

ROOT = Path(__file__).parents[1]


def run(name: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result.keys() == {"name", "machine", "rows", "targets"}
    assert result["name"] == name
    assert {"cpu", "cores", "python", "versions"} <= result["machine"].keys()
    for row in result["rows"]:
        assert row.keys() == {"subject", "what", "value", "unit", "method"}
    for target in result["targets"]:
        assert target.keys() == {"id", "value", "limit", "op", "met"}
    return result


RUNS = ROOT / "benchmarks/data/load/runs.csv"


def some_runs(path: Path, *rates: str) -> Path:
    """Return runs of one configuration under load; the last of them once more in bursts, under a name of its own, and
    of a model that does not fit."""
    with RUNS.open(encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["config"] == "C1" and row["rate_rps"] in rates]
    large = {"id": "large", "config": "L", "model": "meta-llama/Llama-3.1-70B-Instruct", "weight_dtype": "fp16"}
    bursts = {"id": "C1-bursts-r200", "burstiness": "0.5"}
    alone = {"id": "alone-r200", "config": "D"}
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        last = max(rows, key=lambda row: float(row["rate_rps"]))
        writer.writerows([*rows, *({**last, **other} for other in (bursts, alone, large))])
    return path


def test_the_load_benchmark_predicts_runs_and_leaves_out_the_one_it_is_calibrated_on(tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    runs = some_runs(tmp_path / "runs.csv", "1", "10", "200")
    result = run("load", "--runs", str(runs), "--out", str(out), "--calibrate-on", "10")
    figures = ("tok_s", "tpot", "ttft", "power", "coverage", "half_width")
    prefixes = ("load", "load.calibrated")
    assert {target["id"] for target in result["targets"]} == {f"{p}.{name}" for p in prefixes for name in figures}
    rows = {(row["subject"], row["what"]): row for row in result["rows"]}
    assert {"forecast", "forecast, calibrated", "roofline", "interpolate the neighbours"} == {name for name, _ in rows}
    assert "do not fit" in rows["forecast", "refused.L"]["method"]
    with out.open(encoding="utf-8", newline="") as lines:
        predicted = list(csv.DictReader(lines))
    assert [row["id"].rpartition("-")[2] for row in predicted] == ["r1", "r200", "r200", "r200"]
    likely, low = ({row["id"]: float(row[name]) for row in predicted} for name in ("tpot_p50_ms", "tpot_p50_ms_low80"))
    regular = next(value for value in likely if value.startswith("C1-chat") and value.endswith("r200"))
    # What is known of a configuration holds in bursts; one without a run to calibrate on keeps its wide interval.
    assert likely["C1-bursts-r200"] == pytest.approx(likely[regular], rel=0.1)
    assert low["alone-r200"] / likely["alone-r200"] < low[regular] / likely[regular]
    for row in predicted:
        for name in ("output_tok_s", "tpot_p50_ms", "ttft_p50_ms", "power_w"):
            assert 0 < float(row[f"{name}_low80"]) <= float(row[name]) <= float(row[f"{name}_high80"])


def test_the_load_benchmark_predicts_runs_of_which_nothing_was_measured_alike(tmp_path: Path) -> None:
    runs, blank = some_runs(tmp_path / "runs.csv", "200"), tmp_path / "blank.csv"
    known = {"id", "config", "source_ref", "engine", "model", "weight_dtype", "gpu", "n_gpus", "tp", "rate_rps"}
    known |= {"burstiness", "input_tokens", "output_tokens", "prefix_caching"}
    with runs.open(encoding="utf-8", newline="") as lines, blank.open("w", encoding="utf-8", newline="") as out:
        reader = csv.DictReader(lines)
        writer = csv.DictWriter(out, reader.fieldnames or ())
        writer.writeheader()
        writer.writerows({name: cell if name in known else "" for name, cell in row.items()} for row in reader)
    for path in (runs, blank):
        run("load", "--runs", str(path), "--out", str(path.with_suffix(".out")))
    assert runs.with_suffix(".out").read_text() == blank.with_suffix(".out").read_text()


@pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
def test_the_agent_benchmark_prints_its_figures_beside_those_of_the_bare_loop(tmp_path: Path) -> None:
    out = tmp_path / "agent.json"
    result = run("agent", "--gpus", "2", "--seconds", "2", "--starts", "1", "--growth", "3", "--out", str(out))
    assert json.loads(out.read_text()) == result
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    assert rows["pertoken agent", "ticks"] >= 1
    assert "1 vllm (setting)" in rows["pertoken agent with discovery", "engines"]
    assert {"pertoken agent", "pertoken agent with discovery", "bare pynvml loop", "zeus", "nvitop-exporter"} <= {
        subject for subject, _ in rows
    }
    assert {target["id"]: target["value"] for target in result["targets"]}.keys() == {
        "agent.cpu_ratio",
        "agent.driver_calls_per_tick",
        "agent.rss_mib",
        "agent.first_sample_s",
    }
    assert rows["pertoken agent", "pss_growth"] == 0  # of one look
    assert rows["bare pynvml loop", "driver_calls_per_tick"] > 0


def test_the_scrape_benchmark_compares_the_same_values() -> None:
    result = run("scrape", "--rounds", "1")
    targets = {target["id"]: target for target in result["targets"]}
    assert targets.keys() == {"scrape.cpu_ratio", "scrape.same_values"}
    assert targets["scrape.same_values"]["met"]


def test_the_plan_search_benchmark_forecasts_as_many_candidates_as_it_is_asked_to() -> None:
    result = run("forecast_speed", "--rounds", "1", "--candidates", "300")
    assert {target["id"] for target in result["targets"]} == {
        "forecast.candidates_per_s",
        "forecast.search_candidates_per_s",
    }
    assert "300 candidates" in result["rows"][0]["method"]


def test_the_benchmark_on_a_real_gpu_gives_the_reason_why_it_cannot_run() -> None:
    command = [sys.executable, "-m", "benchmarks.gpu_forecast"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 0:
        pytest.skip("there is a GPU here")
    assert done.returncode == 2
    assert "PyTorch is not installed" in done.stderr or "no NVIDIA GPU" in done.stderr


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="needs PyTorch")
def test_the_benchmark_on_a_real_gpu_runs_on_a_cpu_with_a_tiny_model() -> None:
    result = run("gpu_forecast", "--device", "cpu", "--tiny", "--steps", "2", "--accelerator", "H100 SXM5")
    measured = [row for row in result["rows"] if row["subject"] == "measured"]
    forecast = [row for row in result["rows"] if row["subject"] == "forecast" and row["unit"] == "tok/s"]
    assert [row["what"] for row in measured] == [f"{w}, batch {b}" for w in ("bf16", "int8") for b in (1, 2, 4)]
    assert len(forecast) == 5 and all(row["value"] > 0 for row in forecast)


def test_the_benchmark_of_tenants_finds_weighted_shares_nearer_to_shapley_shares_than_tokens() -> None:
    result = run("tenant_shares", "--mixes", "2")
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    assert 0 <= rows["weighted", "median"] < rows["by tokens", "median"] <= 1


def test_the_store_benchmark_is_exact_and_measures_nothing_by_a_peer_that_is_left_out() -> None:
    result = run("store", "--short", "--no-prometheus")
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    assert rows["pertoken", "exact"] == 1
    targets = {target["id"]: target for target in result["targets"]}
    assert targets.keys() == {
        "store.query_ratio",
        "store.disk_ratio",
        "store.commit_ratio",
        "store.fleet_ratio",
        "store.fleet_screen_ms",
        "store.host_week_ms",
        "store.fleet_screen_10k_ms",
    }
    assert targets["store.disk_ratio"]["value"] is None
    assert not targets["store.disk_ratio"]["met"]


def test_the_advice_benchmark_runs_the_command_over_two_fleets_and_sees_advice_stored_and_progress_move() -> None:
    result = run("advise", "--deployments", "16", "--days", "1", "--runs", "1")
    assert {target["id"] for target in result["targets"]} == {
        "advise.seconds_1000",
        "advise.growth",
        "advise.progress_gap_s",
    }
    rows = {row["what"]: row["value"] for row in result["rows"]}
    assert rows["stored_16"] >= rows["proposed_16"] > 0
    assert 0 < rows["rules_seconds_16"] < rows["seconds_16"] <= rows["process_seconds_16"]
    assert 0 < rows["progress_gap_16"] < rows["seconds_16"]


def test_the_plan_benchmark_composes_all_advice_on_a_fleet() -> None:
    result = run("plan", "--deployments", "8", "--fleets", "0", "--runs", "1")
    assert {target["id"] for target in result["targets"]} == {"plan.seconds_100", "plan.optimum_share"}
    rows = {row["what"]: row["value"] for row in result["rows"]}
    assert rows["variants_8"] >= rows["recommendations_8"] >= rows["steps_8"] > 0
    assert rows["cpu_seconds_8"] > 0 and rows["cpu_seconds_with_sensitivity_8"] > 0
    assert rows["optimum_share"] is None


def test_the_window_benchmark_reads_two_fleets_and_compares_their_cost_per_device() -> None:
    result = run("window", "--devices", "16", "--days", "1")
    assert {target["id"] for target in result["targets"]} == {"window.seconds", "window.peak_mib", "window.growth"}
    rows = {row["what"]: row["value"] for row in result["rows"]}
    assert {f"{part}_{n}" for part in ("evidence", "fleet_report", "hours", "whole", "peak") for n in (8, 16)} == set(
        rows
    )
    assert all(value > 0 for value in rows.values())


def test_the_proof_benchmark_compares_verdicts_with_known_effects_and_with_a_naive_comparison() -> None:
    result = run("proof", "--runs", "1", "--processes", "1")
    assert {target["id"] for target in result["targets"]} == {
        "proof.coverage",
        "proof.coverage_upper",
        "proof.false_realized",
        "proof.false_realized_upper95",
        "proof.power_10pct",
        "proof.inconclusive",
        "proof.width_10pct",
        "proof.inconclusive_noisy",
        "proof.false_realized_noisy",
        "proof.kinds_false_realized",
        "proof.kinds_false_regressed",
        "proof.kinds_power_10pct",
        "proof.kinds_coverage",
        "proof.kinds_coverage_upper",
    }
    assert "naive before/after" in {row["subject"] for row in result["rows"]}


def test_the_proof_benchmark_goes_on_from_the_parts_that_it_kept(tmp_path: Path) -> None:
    parts, conditions = tmp_path / "parts.jsonl", [Condition(0.08, 0, 0.0), Condition(0.08, 0, -0.1)]
    first = run_proof(1, 1, conditions, 1, parts)
    kept = parts.read_text()
    assert run_proof(1, 1, conditions, 1, parts) == first
    assert parts.read_text() == kept and len(kept.splitlines()) == 2


def test_histories_of_the_proof_benchmark_depend_on_the_seed_alone() -> None:
    one, same, other = (next(histories(np.random.default_rng(seed), 1, Condition(0.08, 1, -0.1))) for seed in (1, 1, 2))
    assert one.deployment.device_s_per_token.tolist() == same.deployment.device_s_per_token.tolist()
    assert one.deployment.device_s_per_token[0] != other.deployment.device_s_per_token[0]
    assert len(one.siblings) == 1


def test_real_noise_is_judged_in_units_of_time_and_of_work_per_time(tmp_path: Path) -> None:
    random, lines = np.random.default_rng(1), ["series,suite,unit,hours,value"]
    for series, unit, power in (("a", "ms", 1), ("b", "Requests Per Second", -1)):
        for run_at in range(0, 7 * 168, 2):
            lines.append(f"{series},made,{unit},{run_at},{(100 * np.exp(random.normal(0, 0.02))) ** power}")
    file = tmp_path / "nulls.csv"
    file.write_text("\n".join([*lines, "c,made,ms,0,1", ""]))
    result = run("proof", "--nulls", str(file))
    assert {target["id"]: target["value"] for target in result["targets"]} == {
        "proof.nulls_false_realized": 0.0,
        "proof.nulls_false_regressed": 0.0,
        "proof.nulls_conclusive": 1.0,
        "proof.nulls_power_20": 1.0,
    }
    assert "real noise, effect -20%, 2 histories" in {row["method"] for row in result["rows"]}


def test_the_upper_bound_of_a_share_is_that_of_clopper_and_pearson() -> None:
    assert upper_95(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert upper_95(5, 100) == pytest.approx(0.1022, abs=1e-4)


def test_the_check_benchmark_finds_its_two_faults_and_no_other() -> None:
    result = run("store_check", "--gpus", "2", "--days", "1")
    rows = {row["what"]: row["value"] for row in result["rows"]}
    assert (rows["faults"], rows["faults_of_two"]) == (0, 2)
    assert result["targets"][0]["value"] is not None


def test_clients_of_a_real_server_see_every_token_they_asked_for(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with LlamaServer(write_model(tmp_path / "tiny.gguf")) as server:
        clients = Clients(server)
        asked = [request(random, 20 + place, 5 + place) for place in range(6)]
        answers = [*clients.closed_loop(asked, 3), *clients.open_loop(asked, [0.0] * len(asked))]
    for question, answer in zip(asked * 2, answers, strict=True):
        assert len(answer.token_s) == question.generated
        assert answer.sent_s <= answer.token_s[0] and list(answer.token_s) == sorted(answer.token_s)


def test_the_clients_clock_stands_while_a_server_with_a_request_does_not_compute(tmp_path: Path) -> None:
    with LlamaServer(write_model(tmp_path / "tiny.gguf")) as server:
        clients = Clients(server)
        os.kill(server.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 30
        while psutil.Process(server.pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline, "the server does not stop"
        with clients.waiting():
            assert clients.now() == clients.now()
        assert clients.now() < clients.now()  # nobody asks: the wall's time counts


def test_requests_come_at_exactly_the_rate_and_with_every_length() -> None:
    random = np.random.default_rng(0)
    assert sum(poisson_gaps(random, 4.0, 200)) == pytest.approx(50)
    drawn = requests(random, fixed(7), Lengths(np.arange(2.0, 18.0)), 32)
    assert sorted(value.generated for value in drawn) == sorted([*range(2, 18)] * 2)
    assert {len(value.prompt) for value in drawn} == {7}


def test_the_queueing_benchmark_compares_the_calibrated_model_with_the_measured_latencies() -> None:
    """A made-up server whose every answer takes 50 ms to the first token and 10 ms to each other."""
    known = queueing.Calibrated(np.full(queueing.SLOTS, 0.01), np.linspace(0.001, 0.1, len(queueing.PROMPTS)), 0.001)
    answers = [Response(float(at), (at + 0.05, at + 0.06, at + 0.07)) for at in range(60)]
    rate, asked = 0.3 * known.capacity(queueing.lengths()), [Prompt((3,) * 100, 3)] * len(answers)
    run = queueing.Run(known.slower(2), rate, asked, answers)
    measured = queueing.Measured([known], [2.0, 2.0], {load: [run] for load in queueing.LOADS})
    result = json.loads(queueing.compared(measured, queueing.lengths(), np.random.default_rng(0)))
    rows = {(row["subject"], row["what"]): row["value"] for row in result["rows"]}
    assert all(np.isfinite(value) for value in rows.values())
    assert rows["llama.cpp", "ttft.p50 at 30% of saturation"] == pytest.approx(50)
    assert rows["llama.cpp", "tpot.p95 at 70% of saturation"] == pytest.approx(10)
    targets = {target["id"]: target["value"] for target in result["targets"]}
    assert {"queueing.saturation", *(f"queueing.{name}" for name in queueing.LIMITS)} == targets.keys()
    assert targets["queueing.saturation"] == pytest.approx(1)
    predicted = under_load(
        known.slower(2).service(queueing.lengths()[0]), np.array([rate]), queueing.lengths()[1], (0.5,)
    )
    assert rows["queueing model", "tpot.p50 at 30% of saturation"] == pytest.approx(
        1000 * predicted.tpot_s[0, 0], abs=0.01
    )


@pytest.mark.parametrize("slower", [1.0, 1.3])
def test_the_pace_of_a_full_server_is_how_much_longer_it_takes_than_it_was_calibrated_to(slower: float) -> None:
    its = queueing.Calibrated(np.linspace(0.004, 0.012, queueing.SLOTS), np.linspace(0.002, 0.2, 5), 0.0)

    class Played(Clients):
        def __init__(self) -> None:
            """There is no server."""

        def closed_loop(self, asked: Iterable[Prompt], clients: int) -> list[Response]:
            todo = list(asked)
            now = its.slower(slower)
            seen = simulate(
                [Request(0.0, len(request.prompt), request.generated) for request in todo],
                clients,
                lambda running: float(now.step_s[running - 1]),
                lambda tokens: float(np.interp(tokens, queueing.PROMPTS, now.prefill_s)),
                settle=0,
            )
            return [
                Response(0.0, tuple(ttft_s + np.arange(request.generated) * tpot_s))
                for request, ttft_s, tpot_s in zip(todo, seen.ttft_s, seen.tpot_s, strict=True)
            ]

    pace = queueing.pace(Played(), np.random.default_rng(0), queueing.lengths(), its)
    assert pace == pytest.approx(slower, rel=0.05)


def test_the_latency_benchmark_compares_later_hours_with_their_forecast() -> None:
    printed = run("latency", "--seeds", "1", "--first-seed", "3")
    targets = {target["id"]: target["value"] for target in printed["targets"]}
    assert set(targets) == {
        *("latency.inside", "latency.high_over_low", "latency.by_hour.inside", "latency.by_hour.high_over_low"),
    }
    assert targets["latency.inside"] > 0.5 and targets["latency.high_over_low"] > 1
    figures = {row["what"].partition(".")[0] for row in printed["rows"]}
    assert figures == {"ttft_p95_ms", "tpot_p95_ms"}


def test_the_recovery_benchmark_counts_planted_found_and_priced_problems() -> None:
    printed = run("recovery", "--seeds", "1", "--first-seed", "3")
    targets = {target["id"]: target["value"] for target in printed["targets"]}
    assert set(targets) == {"recovery.found", "recovery.quiet_on_healthy", "recovery.coverage"}
    assert targets["recovery.found"] > 0.5 and targets["recovery.quiet_on_healthy"] == 1
    assert any(row["what"].startswith("found.") for row in printed["rows"])


def test_no_row_of_a_demo_breaks_a_promise_about_its_money() -> None:
    printed = run("offers", "--seeds", "302", "--hosts", "16", "--days", "3")
    targets = {target["id"]: target["value"] for target in printed["targets"]}
    assert [targets[f"offers.{name}"] for name in ("without_offer", "without_width", "pays_more")] == [0, 0, 0]
    assert 0 < targets["offers.width_over_likely"] <= 0.8
    assert next(row["value"] for row in printed["rows"] if row["what"] == "priced.302") > 0


def test_plans_of_random_fleets_save_nearly_what_an_exhaustive_search_saves() -> None:
    fleets = examples(12)
    printed = run("best_plan", "--fleets", str(fleets), "--traffic", "1")
    targets = {target["id"]: target["value"] for target in printed["targets"]}
    assert targets["best_plan.share"] >= 0.9
    assert targets["best_plan.failing_steps"] == targets["best_plan.unknown_steps"] == 0
    assert next(row["value"] for row in printed["rows"] if row["what"] == "saving") > fleets // 2


def test_proposals_to_confirm_do_not_push_out_those_that_a_plan_of_half_the_load_holds(tmp_path: Path) -> None:
    lines = tmp_path / "fleets.jsonl"
    command = ("best_plan", "--seed", "9043", "--first", "60", "--fleets", "1", "--traffic", "0.5", "--lines")
    first = run(*command, str(lines))
    targets = {target["id"]: target["value"] for target in first["targets"]}
    assert targets["best_plan.not_monotone"] == 0
    assert run(*command, str(lines))["targets"] == first["targets"]
    assert len(lines.read_text(encoding="utf-8").splitlines()) == 1, "a fleet in the file is not compared again"


def test_the_latency_of_a_real_llama_cpp_is_judged_in_later_blocks_at_another_load() -> None:
    rates = {name: None for name in ("attention_flops", "row_flops", "tile_flops", "expert_flops")}
    alone = OperatingPoint(0, 1.0, token_s=0.002, prompt_len=19.0, generated_len=32.0, cached_share=1.0, probed=True)
    many = replace(alone, running=8.0, token_s=0.01)
    blocks = [
        [latency_llama.Request(n / per_s, 100.0, 10.0, 96, 32) for n in range(int(per_s * 60))]
        for per_s in (4, 4, 4, 4, 4, 9)
    ]
    known = {
        "rates": {"int8": {"memory_bytes_per_s": 1e11, "flops": 7e10, **rates}},
        "points": [asdict(alone), asdict(many)],
        "block_s": 60.0,
        "blocks": [[list(asdict(request).values()) for request in block] for block in blocks],
    }
    results, mixed = latency_llama.judged(json.loads(json.dumps(known)))
    assert len(results) == len(mixed)
    assert [result.figure for result in results] == list(latency_llama.SHARES), "one block alone has another load"
    assert all(result.likely_ms > result.measured_ms for result in (*results, *mixed)), "more requests are slower"
