"""The page's table of accuracy by what is known of a host."""

import json
from pathlib import Path

import pytest

from benchmarks.forecast.figures import NESTED
from tools.docs import tiers

MEAN = {"median": 0.1, "p90": 0.3, "coverage": 0.9, "half_width": 1.5, "abstained": 0.02}
ROWS = {(NESTED, f"macro.{figure}"): {"value": value} for figure, value in MEAN.items()}


def write(folder: Path, name: str, targets: dict[str, float | None]) -> None:
    content = {"rows": [], "targets": [{"id": key, "value": value} for key, value in targets.items()]}
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
