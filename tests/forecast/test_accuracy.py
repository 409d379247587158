"""The accuracy benchmark: what it predicts of rows nobody prepared, and how it scores and refits."""

import csv
import json
import random
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast.accuracy import by_shipped_table
from benchmarks.forecast.accuracy import write as write_predictions
from benchmarks.forecast.baselines import baselines, rule_of_thumb
from benchmarks.forecast.figures import energy_rows, energy_tables
from benchmarks.forecast.fit import LISTED, Evidence, as_efficiency, fit, parameters
from benchmarks.forecast.fit_table import licensed, prior, write_rows
from benchmarks.forecast.fit_table import main as fit_main
from benchmarks.forecast.folds import Predicted, clusters, predict, quantile, score
from benchmarks.forecast.pairs import slow_down
from benchmarks.forecast.performance.devices import device
from benchmarks.forecast.performance.measurements import Measurements, Pairs, measured, paired, read, with_carried
from benchmarks.forecast.power import Watts
from pertoken.forecast.efficiency import deviation, efficiency
from pertoken.forecast.terms import TERMS

DATA = Path(__file__).parents[2] / "benchmarks/data/performance"


@pytest.fixture(scope="module")
def rows() -> tuple[Measurements, Pairs]:
    return read(DATA / "measurements.csv", DATA / "pairs.csv")


def write(path: Path, columns: str, *rows: str) -> Path:
    path.write_text("\n".join([columns, *rows]) + "\n", encoding="utf-8")
    return path


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.forecast", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


COLUMNS = (
    "key,source,model,params_total_b,params_active_b,gpu,n_gpus,weight_dtype,engine,mode,batch_or_concurrency,"
    "input_tokens,output_tokens,output_tok_s_total"
)
PAIRS = "kind,before,after,source,model,gpu_before,gpu_after,ratio_output_tok_s,trust"


def test_rows_on_unknown_devices_and_models_with_blank_cells_are_predicted_or_abstained_and_never_nan(
    tmp_path: Path,
) -> None:
    measurements = write(
        tmp_path / "m.csv",
        COLUMNS,
        "blank,,,,,,,,,,,,,",
        "named,s,acme/Wonder-13B,,,H100-SXM,1,bf16,vllm,online-closed,8,512,128,700",
        "larger,s,acme/Wonder-13B,,,H100-SXM,1,bf16-odd,mystery 3.1,online-closed,64,512,128,",
        "moved,s,acme/Wonder-13B,,,Foo-9000,1,bf16,vllm,online-closed,8,512,128,900",
        "mixture,s,acme/Mix-100B-A10B,100,10,MI300X,8,fp8,sglang 0.5,online-closed,nonsense,,128,900",
        "none,s,unknown,,,L4,1,int4-awq,vLLM,burst,100,,,12",
    )
    pairs = write(
        tmp_path / "p.csv",
        PAIRS,
        "raise_batch_far,named,larger,s,m,H100-SXM,H100-SXM,,high",
        "move_gpu,named,moved,s,m,H100-SXM,Foo-9000,1.3,high",
        "smaller_model,mixture,none,s,m,MI300X,L4,0.1,medium",
        "tp_change,blank,mixture,s,m,,MI300X,2,high",
        "raise_batch,moved,moved,s,m,Foo-9000,Foo-9000,1,low",
        "something_new,named,named,s,m,H100-SXM,H100-SXM,1,high",
    )
    out = tmp_path / "out.csv"
    done = run("--measurements", measurements, "--pairs", pairs, "--out", out)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert list(rows[0]) == ["before", "after", "kind", "predicted", "low80", "high80", "abstained", "reason"]
    for row in rows:
        if row["abstained"] == "1":
            assert row["reason"] and not row["predicted"]
        else:
            low, likely, high = (float(row[name]) for name in ("low80", "predicted", "high80"))
            assert 0 < low < likely < high < np.inf
    assert [row["abstained"] for row in rows] == ["0", "1", "1", "1", "0", "1"]
    assert "Foo-9000" in rows[1]["reason"] and "nothing that differs" in rows[5]["reason"]
    assert float(rows[0]["predicted"]) > 2
    report = json.loads(done.stdout)
    assert report["name"] == "forecast" and report["targets"] == []
    assert [row["value"] for row in report["rows"]] == [2, 4]


RESULTS = ("output_tok_s_total", "total_tok_s", "itl_ms", "ttft_ms", "power_w_per_gpu", "energy_j_per_output_token")


def test_predictions_read_no_result_of_a_row_after_its_change(rows: tuple[Measurements, Pairs], tmp_path: Path) -> None:
    measurements, pairs = rows
    before = set(pairs.before)
    places = [place for place, after in enumerate(pairs.after) if after not in before][::40]
    lines = [dict(measurements.rows[end]) for place in places for end in (pairs.before[place], pairs.after[place])]
    blind = [{**line, **dict.fromkeys(RESULTS, "1e-2")} if n % 2 else line for n, line in enumerate(lines)]
    changes = [dict(pairs.rows[place]) for place in places]
    unknown = [{**change, "ratio_output_tok_s": "", "ratio_energy_per_token": ""} for change in changes]
    predictions = []
    for name, (some, asked) in {"all": (lines, changes), "blind": (blind, unknown)}.items():
        measured_rows = measured(list({line["key"]: line for line in some}.values()))
        ends = paired(measured_rows.rows, asked)
        write_predictions(tmp_path / name, ends, *by_shipped_table(measured_rows, ends, Watts(measured_rows)))
        predictions.append((tmp_path / name).read_text())
    assert len(places) > 20 and predictions[0] == predictions[1]


SLIPS = (
    "",
    "0",
    "-1",
    "nan",
    "inf",
    "1e300",
    "1e-300",
    "abc",
    "None",
    "12,5",
    "8 ",
    "99999999999999999999",
    "π",
    "GPU",
)


@pytest.mark.parametrize("seed", range(4))
def test_cells_with_slips_still_give_every_pair_a_number_or_a_reason(
    rows: tuple[Measurements, Pairs], seed: int
) -> None:
    chance = random.Random(seed)
    places = chance.sample(range(len(rows[1].rows)), 60)
    lines, changes = [], []
    for place in places:
        change = dict(rows[1].rows[place])
        for end in ("before", "after"):
            line = dict(rows[0].rows[getattr(rows[1], end)[place]])
            for column in line:
                if chance.random() < 0.15:
                    line[column] = chance.choice(SLIPS)
            lines.append({**line, "key": f"{end} {place}"})
            change[end] = f"{end} {place}"
        changes.append(change)
    measurements = measured(lines)
    pairs = paired(measurements.rows, changes)
    predicted, half, why = by_shipped_table(measurements, pairs, Watts(measurements))
    predictable = np.array([not reason for reason in why])
    assert predictable.sum() > 20
    assert np.isfinite(predicted.log_ratio[predictable]).all() and (half[predictable] > 0).all()
    assert np.isfinite(predict(measurements, pairs, efficiency(), deviation()).log_ratio[predictable]).all()


@pytest.mark.parametrize(
    ("measurements", "pairs", "message"),
    [
        ("key,model,gpu\na,m,H100", "kind,before,after\nx,a,b", "'b' is not a key"),
        ("key,model,gpu\na,m,H100", "kind,before\nx,a", "no column after"),
        ("key,model\na,m", "kind,before,after\nx,a,a", "no column gpu"),
        ("", "kind,before,after\nx,a,a", "no rows"),
    ],
)
def test_a_file_that_is_no_such_file_is_one_line_and_exit_2(
    tmp_path: Path, measurements: str, pairs: str, message: str
) -> None:
    (tmp_path / "m.csv").write_text(measurements)
    (tmp_path / "p.csv").write_text(pairs)
    done = run("--measurements", tmp_path / "m.csv", "--pairs", tmp_path / "p.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and message in done.stderr


def test_predictions_of_every_carried_pair_are_numbers(rows: tuple[Measurements, Pairs]) -> None:
    predicted = predict(*rows, efficiency(), deviation())
    assert np.isfinite(predicted.log_ratio).all() and (predicted.log_sd > 0).all()
    assert np.abs(predicted.log_ratio).max() < np.log(1000)


def test_the_shipped_table_beats_no_change_and_a_roofline_on_the_carried_pairs(
    rows: tuple[Measurements, Pairs],
) -> None:
    pairs = rows[1]
    ours = predict(*rows, efficiency(), deviation()).log_ratio
    others = baselines(*rows)
    none_abstained = np.zeros(len(pairs.rows), dtype=bool)
    trusted = pairs.column("trust") != "low"
    for kind in ("tp_change", "move_gpu", "raise_batch"):
        chosen = np.flatnonzero(trusted & (pairs.column("kind") == kind))
        figures = [
            score(pairs.log_ratio[chosen], column[chosen], None, clusters(pairs)[chosen], none_abstained[chosen]).median
            for column in (ours, others["no change"], others["additive"], others["naive"])
        ]
        assert figures[0] == min(figures)


def few(rows: tuple[Measurements, Pairs]) -> Evidence:
    """Return every fortieth pair and its rows."""
    measurements, pairs = rows
    evidence = Evidence(measurements, pairs)
    keep = np.zeros(len(pairs.rows), dtype=bool)
    keep[::40] = True
    evidence.pair_weight = evidence.pair_weight * keep
    touched = np.zeros(len(measurements.rows), dtype=bool)
    touched[pairs.before[keep]] = touched[pairs.after[keep]] = True
    evidence.row_weight = evidence.row_weight * touched
    return evidence


def test_a_refit_is_deterministic_and_closer_to_its_rows_than_the_prior(rows: tuple[Measurements, Pairs]) -> None:
    evidence = few(rows)
    values = fit(evidence)
    assert (values == fit(evidence)).all()
    chosen = np.flatnonzero(evidence.row_weight > 0)
    errors = [
        np.median(np.abs(evidence.log_tok_s[chosen] - evidence.predict(array, chosen)[0]))
        for array in (values, parameters().mean)
    ]
    assert errors[0] < errors[1]


def test_a_fit_without_evidence_is_its_prior(rows: tuple[Measurements, Pairs]) -> None:
    evidence = few(rows)
    values = fit(evidence, without=np.ones(len(rows[0].rows), dtype=bool))
    assert values == pytest.approx(parameters().mean)


def test_no_listed_rate_is_fitted_as_exceeded_by_much(rows: tuple[Measurements, Pairs]) -> None:
    evidence = few(rows)
    reached = [fastest(evidence)]
    evidence.log_tok_s = evidence.log_tok_s + np.log(3)
    reached.append(fastest(evidence))
    evidence.scales = {**evidence.scales, "faster_sd": 10.0}
    reached.append(fastest(evidence))
    assert max(reached[:2]) < 0.25 < reached[2], "rows three times as fast are not explained by faster memory"


def fastest(evidence: Evidence) -> float:
    """Return the largest logarithm of a reached rate over the listed one that a fit finds for any row."""
    table = as_efficiency(fit(evidence))
    rows = np.flatnonzero(evidence.row_weight > 0)
    scale = table.log_scale(evidence.candidates.tags[rows])[:, [TERMS.index(term) for term in LISTED]]
    used = evidence.seconds[rows][:, [TERMS.index(term) for term in LISTED]] > 0
    return float(-scale[used].min())


def test_only_rows_that_may_be_copied_are_carried(rows: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = licensed(*rows)
    assert len(measurements.rows) == len(rows[0].rows) and len(pairs.rows) == len(rows[1].rows)
    assert all(row["source"] and row["source_ref"] for row in measurements.rows)


def test_the_design_of_the_fit_and_the_shipped_table_agree() -> None:
    assert prior().names == deviation().names and (prior().groups == deviation().groups).all()
    assert (prior().sd == deviation().sd).all() and prior().noise == deviation().noise
    assert as_efficiency(parameters().mean).by_tag.shape == efficiency().by_tag.shape


def test_a_rule_of_thumb_knows_formats_bandwidths_ranks_and_parameters(rows: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = rows
    ratios, kinds = np.exp(rule_of_thumb(measurements, pairs)), pairs.column("kind")
    c, ranks = measurements.candidates, measurements.candidates.tp * measurements.candidates.pp
    alike = (ranks[pairs.before] == ranks[pairs.after]) & (c.dp[pairs.before] == c.dp[pairs.after])
    assert set(ratios[(kinds == "quantize_fp8") & alike].round(6)) == {1.4}
    doubled = (kinds == "tp_change") & (c.tp[pairs.after] == 2 * c.tp[pairs.before]) & (c.dp == 1)[pairs.after]
    doubled &= (c.dp == 1)[pairs.before] & (c.pp[pairs.after] == c.pp[pairs.before])
    assert doubled.any() and ratios[doubled] == pytest.approx(1.6)
    moved = (kinds == "move_gpu") & alike
    bandwidth = c.memory_bytes_per_s[pairs.after] / c.memory_bytes_per_s[pairs.before]
    assert ratios[moved] == pytest.approx(bandwidth[moved])
    assert (ratios[(kinds == "smaller_model") & alike] > 1).all()


def test_an_abstention_counts_as_no_change_and_clusters_weigh_the_same() -> None:
    measured, predicted = np.log([2.0, 2.0, 2.0, 4.0]), np.log([2.0, 2.0, 2.0, 4.0])
    labels = np.array(["a", "a", "a", "b"])
    silent = np.array([False, False, False, True])
    result = score(measured, predicted, np.full(4, 0.1), labels, silent)
    assert (result.median, result.p90, result.coverage, result.sign) == (0.0, 0.75, 1.0, 1.0)
    assert result.abstained == 0.5
    assert quantile(np.array([1.0, 2.0]), np.array([0.6, 0.4]), 0.5) == 1.0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("A100-80G-PCIe?", "A100 80GB PCIe"),
        ("GB200", "GB200 NVL72"),
        ("H100-NVL", "H100 NVL"),
        ("H100", "H100 SXM5"),
        ("Gaudi3", "Gaudi 3 OAM"),
        ("RTX4090", "RTX 4090"),
        ("RTX-PRO-6000", "RTX PRO 6000 Blackwell Server"),
        ("RTX-6000-Ada", "RTX 6000 Ada"),
        ("Foo-9000", None),
    ],
)
def test_devices_are_known_by_the_names_people_write(written: str, meant: str | None) -> None:
    known = device(written)
    assert (known.name if known else None) == meant


def test_a_refit_sees_the_scored_rows_first_and_every_carried_one_once(rows: tuple[Measurements, Pairs]) -> None:
    measurements, pairs = with_carried(*rows)
    assert [row["key"] for row in measurements.rows] == [row["key"] for row in rows[0].rows]
    assert len(pairs.rows) == len(rows[1].rows) and (pairs.before == rows[1].before).all()
    strange = measured([{"key": "mine", "model": "m", "gpu": "L4", "output_tok_s_total": "5"}])
    more, changes = with_carried(strange, paired(strange.rows, []))
    assert more.rows[0]["key"] == "mine" and len(more.rows) == len(measurements.rows) + 1
    assert more.rows[changes.before[0]]["key"] == changes.rows[0]["before"]


def test_energy_per_token_is_scored_where_measured_and_an_abstention_is_no_change(
    rows: tuple[Measurements, Pairs],
) -> None:
    measurements, pairs = rows
    watts, everything = Watts(measurements), np.ones(len(pairs.before), dtype=bool)
    doubled = replace(pairs, log_energy_ratio=np.full(len(pairs.before), np.log(2.0)))
    tables = energy_tables(watts, doubled, np.zeros(len(pairs.before)), everything)
    assert {round(result.median, 9) for scores in tables.values() for result in scores.values()} == {0.5}
    unknown = replace(pairs, log_energy_ratio=np.full(len(pairs.before), np.nan))
    assert energy_rows(energy_tables(watts, unknown, pairs.log_ratio, ~everything)) == []


def test_a_tighter_power_cap_is_forecast_to_slow_a_device_down_and_other_changes_stay_as_they_were() -> None:
    capped = [
        {
            "key": key,
            "source": "s",
            "model": "meta-llama/Llama-3.1-8B",
            "gpu": "RTX-3090",
            "n_gpus": "1",
            "weight_dtype": "bf16",
            "engine": "vllm",
            "batch_or_concurrency": "32",
            "input_tokens": "512",
            "output_tokens": "128",
            "output_tok_s_total": "900",
            "power_limit_w": watts,
            "power_w_per_gpu": watts,
        }
        for key, watts in (("free", "350"), ("capped", "230"))
    ]
    measurements = measured(capped)
    ends = {"before": "free", "after": "capped", "source": "s", "model": "m", "gpu_before": "g", "gpu_after": "g"}
    pairs = paired(capped, [{**ends, "kind": kind} for kind in ("power_cap", "raise_batch")])
    predicted = Predicted(np.zeros(2), np.full(2, 0.1), np.zeros(2))
    slow_down(Watts(measurements), pairs, predicted)
    assert predicted.log_ratio[0] < -0.02 and predicted.log_ratio[1] == 0


def test_the_fit_writes_a_table_of_every_term_and_the_rows_that_may_be_copied(
    rows: tuple[Measurements, Pairs], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurements, pairs = rows
    chosen = [*range(20), *range(len(pairs.rows) - 10, len(pairs.rows))]
    ends = sorted({end[place] for place in chosen for end in (pairs.before, pairs.after)})
    write_rows(tmp_path / "measurements.csv", [measurements.rows[place] for place in ends])
    write_rows(tmp_path / "pairs.csv", [pairs.rows[place] for place in chosen])
    (tmp_path / "licensed").mkdir()
    fit_main([str(tmp_path), "--out", str(tmp_path / "table.toml"), "--licensed", str(tmp_path / "licensed")])
    table = tomllib.loads((tmp_path / "table.toml").read_text())
    assert set(table["terms"]) == set(TERMS) and table["fit"]["pairs"] <= len(chosen)
    assert table["interval"]["floor"] > 0 and table["paths"]
    assert len(read(tmp_path / "licensed/measurements.csv", tmp_path / "licensed/pairs.csv")[0].rows) == len(ends)
    assert f"licensed rows only ({len(ends)} of {len(ends)})" in capsys.readouterr().out
