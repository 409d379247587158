"""The benchmark of decisions: what changes cost, which are made, and which targets it prints."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast.decisions import (
    KINDS,
    Decisions,
    decided,
    hourly_usd,
    in_both_directions,
    outcome,
    outcomes,
    targets,
)
from benchmarks.forecast.folds import judges
from benchmarks.forecast.performance.measurements import CARRIED, measured, paired, read


def decisions(measured_bill: list[float], claimed_bill: list[float]) -> Decisions:
    bills = (np.log(measured_bill), {"forecast": np.log(claimed_bill), "rule of thumb": np.log(claimed_bill)})
    return Decisions(*bills, np.ones(len(measured_bill)))


def test_regret_is_the_bill_paid_over_the_best_of_both() -> None:
    result = outcome(decisions([0.5, 1.4, 0.8, 1.2], [0.6, 0.5, 1.0, 2.0]), "forecast")
    assert result.regret == pytest.approx((0.4 + 0.2) / 4), "a losing change was made and a saving one was not"
    assert (result.loss, result.made) == (0.5, 0.5)
    assert result.captured == pytest.approx((0.5 - 0.4) / 0.7)
    assert result.claim == pytest.approx(0.1)


def test_never_changing_pays_the_bill_before_and_claims_nothing() -> None:
    result = outcome(decisions([0.5, 1.4], [0.6, 0.5]), None)
    assert (result.regret, result.captured, result.loss, result.claim, result.made) == (0.25, 0.0, None, None, 0.0)


def test_a_forecast_that_abstains_or_claims_next_to_nothing_makes_no_change_and_the_thumb_takes_any_saving() -> None:
    result = outcomes(decisions([0.9, 0.9], [np.nan, 0.95]))
    assert result["forecast"].made == 0.0
    assert result["rule of thumb"].made == 0.5


def row(key: str, gpu: str, tok_s: str, source: str = "", devices_n: str = "1") -> dict[str, str]:
    return {
        "key": key,
        "source": source,
        "model": "meta-llama/Llama-3.1-8B",
        "params_total_b": "8.03",
        "params_active_b": "8.03",
        "gpu": gpu,
        "n_gpus": devices_n,
        "weight_dtype": "bf16",
        "engine": "vllm",
        "mode": "online-closed",
        "batch_or_concurrency": "16",
        "input_tokens": "512",
        "output_tokens": "128",
        "output_tok_s_total": tok_s,
        "trust": "high",
    }


def change(kind: str, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    speed = str(float(after["output_tok_s_total"]) / float(before["output_tok_s_total"]))
    return {
        "kind": kind,
        "before": before["key"],
        "after": after["key"],
        "source": before["source"],
        "model": before["model"],
        "gpu_before": before["gpu"],
        "gpu_after": after["gpu"],
        "ratio_output_tok_s": speed,
        "trust": "high",
    }


def test_moves_and_ranks_are_decided_in_both_directions_and_formats_in_one() -> None:
    rows = [row("small", "L4", "400"), row("large", "H100-SXM", "2000")]
    pairs = in_both_directions(paired(rows, [change("quantize_fp8", *rows), change("move_gpu", *rows)]))
    assert list(pairs.before) == [0, 0, 1] and list(pairs.after) == [1, 1, 0]
    assert pairs.log_ratio[2] == -pairs.log_ratio[1]
    assert (pairs.rows[2]["gpu_before"], pairs.rows[2]["gpu_after"]) == ("H100-SXM", "L4")


def test_a_bill_counts_every_device_of_a_row_and_a_device_without_a_price_is_unknown() -> None:
    measurements = measured([row("two", "L4", "1", devices_n="2"), row("one", "L4", "1"), row("odd", "Foo-9000", "1")])
    usd = hourly_usd(measurements)
    assert usd[0] == 2 * usd[1] > 0 and np.isnan(usd[2])


def test_each_kind_source_model_and_device_weighs_the_same() -> None:
    rows = [row("a", "L4", "400", "one"), row("b", "L4", "800", "one"), row("c", "L4", "200", "two")]
    changes = [change("quantize_fp8", rows[0], rows[1]), change("quantize_fp8", rows[0], rows[1])]
    pairs = paired(rows, [*changes, change("quantize_fp8", rows[2], rows[1])])
    result = decided(pairs, np.zeros(3), {"forecast": np.zeros(3)}, np.ones(3, dtype=bool))
    assert list(result.weights) == [0.5, 0.5, 1.0]
    assert np.exp(result.measured) == pytest.approx([0.5, 0.5, 0.25])


def test_the_regret_of_the_rule_of_thumb_is_held_to_that_of_the_forecast() -> None:
    worse = Decisions(np.log([0.5]), {"forecast": np.log([0.5]), "rule of thumb": np.log([1.5])}, np.ones(1))
    assert {target.id: target.met for target in targets({"all": worse})} == {
        "decisions.regret": True,
        "decisions.regret_thumb": True,
        "decisions.loss": True,
        "decisions.claim": True,
    }
    better = Decisions(np.log([0.5]), {"forecast": np.log([1.5]), "rule of thumb": np.log([0.5])}, np.ones(1))
    assert not any(target.met for target in targets({"all": better}))
    assert not any(target.met for target in targets({}) if target.id != "decisions.regret_thumb")


def test_every_kind_of_the_targets_is_among_the_carried_pairs() -> None:
    _, pairs = read(CARRIED / "measurements.csv", CARRIED / "pairs.csv")
    assert set(KINDS) <= set(pairs.column("kind"))


def test_rows_of_your_own_are_decided_beside_the_rule_of_thumb_and_never_changing(tmp_path: Path) -> None:
    source = next(f"laboratory {number}" for number in range(20) if judges(f"laboratory {number}"))
    rows = [row("a", "A100-80G-SXM", "900", source), row("b", "H100-SXM", "1500", source), row("c", "Foo", "1", source)]
    changes = [change("move_gpu", rows[0], rows[1]), change("move_gpu", rows[0], rows[2])]
    for name, lines in (("m.csv", rows), ("p.csv", changes)):
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, lines[0])
            writer.writeheader()
            writer.writerows(lines)
    command = [sys.executable, "-m", "benchmarks.decisions"]
    command += ["--measurements", str(tmp_path / "m.csv"), "--pairs", str(tmp_path / "p.csv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    figures = {(line["subject"], line["what"]): line for line in report["rows"]}
    assert {name for name, _ in figures} == {"forecast", "rule of thumb", "mean of both", "never change"}
    assert figures["never change", "all.captured"]["value"] == 0.0
    assert "2 decisions" in figures["forecast", "all.regret"]["method"], "the move to an unpriced device is left out"
    assert len(report["targets"]) == 4
