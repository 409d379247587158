"""The page's table of accuracy by what is known of a host."""

import json
from pathlib import Path

import pytest

from benchmarks.forecast.figures import NESTED
from tools.docs import tiers

MEAN = {"median": 0.1, "p90": 0.3, "coverage": 0.9, "half_width": 1.5, "abstained": 0.02}
ROWS = {(NESTED, f"macro.{figure}"): {"value": value} for figure, value in MEAN.items()}


def write(folder: Path, name: str, targets: dict[str, float | None], rows: dict[str, float] | None = None) -> None:
    listed = [{"what": what, "value": value} for what, value in (rows or {}).items()]
    content = {"rows": listed, "targets": [{"id": key, "value": value} for key, value in targets.items()]}
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_a_tier_without_a_committed_result_is_named_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "RESULTS", tmp_path)
    table = [line for line in tiers.lines(ROWS) if line.startswith("| ")]
    assert "| no host data | 10.0 / 30.0 % | 90 % | 1.50 | 2 % |" in table
    assert table[-1] == "| probe | not committed yet | | | |"


def test_the_probe_s_tier_is_of_the_newest_result_and_an_unknown_figure_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "RESULTS", tmp_path)
    newest: dict[str, float | None] = {"site.load_median": 0.05, "site.load_p90": 0.2, "site.coverage": 0.85}
    write(tmp_path, "site-2026-11-22-x.json", {"site.load_median": 0.5, "site.load_p90": 0.6})
    write(tmp_path, "site-2026-11-23-x.json", {**newest, "site.format_median": None, "site.width": None})
    probed = [line for line in tiers.lines(ROWS) if line.startswith("| probe")]
    assert probed == ["| probe, changes of load | 5.0 / 20.0 % | | | |", "| probe, all | | 85 % | unknown | |"]


def test_runs_with_long_rounds_and_with_vllm_have_rows_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "RESULTS", tmp_path)
    figures: dict[str, float | None] = {"site.load_median": 0.05, "site.load_p90": 0.2, "site.coverage": 0.85}
    write(tmp_path, "site-2026-11-23-x.json", {**figures, "site.width": 1.2})
    beside = {"load: a round beside the others, median": 0.06, "load: a round beside the others, p90": 0.14}
    write(tmp_path, "site-long-2026-11-24-x.json", {**figures, "site.load_median": 0.04, "site.width": 1.3}, beside)
    assert "*Probe, vLLM*" not in "".join(tiers.lines(ROWS))
    write(tmp_path, "site_vllm-2026-11-24-x.json", {**figures, "site.load_median": 0.07, "site.width": 1.4})
    text = tiers.lines(ROWS)
    probed = [line for line in text if line.startswith("| probe") and "changes of load" in line]
    assert probed == [
        "| probe, changes of load | 5.0 / 20.0 % | | | |",
        "| probe, long rounds, changes of load | 4.0 / 20.0 % | | | |",
        "| probe, vLLM, changes of load | 7.0 / 20.0 % | | | |",
    ]
    introduction = " ".join("".join(text).split())
    assert "off by 6 / 14 % from the median of the other rounds" in introduction
    assert "*Probe, vLLM* is the same with a vLLM for CPUs" in introduction
