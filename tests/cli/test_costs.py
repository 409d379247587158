import json
from pathlib import Path

import pytest

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed


def test_costs_are_told_by_model_and_hour_as_text_json_and_csv(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=120, end_ts=NOW // 3600 * 3600)
    # Four hours hold both seeded ones, also when the hour turns between the import of this file and the command.
    text = run("costs", "--hours", "4", "--db", str(folder)).output
    assert "$/Mtok by hour" in text and f"{LOW_BATCH_70B.model[-10:]}  $19.11" in text
    lines = json.loads(run("costs", "--hours", "4", "--db", str(folder), "--json").stdout)
    assert [line["usd_per_mtok"] for line in lines] == [pytest.approx(2 * 6.88 / (3600 * 200) * 1e6, abs=1e-6)] * 2
    assert [line["usd"] for line in lines] == [13.76] * 2
    header, *rows = run("costs", "--hours", "4", "--db", str(folder), "--csv").output.splitlines()
    assert header == "model,hour,usd,tokens,usd_per_mtok,observed,estimated"
    assert [row.split(",")[2:4] for row in rows] == [["13.76", str(3600 * 200)]] * 2
    assert [row.split(",")[5:] for row in rows] == [["1.0", "False"]] * 2
    assert run("costs", "--hours", "0", "--db", str(folder)).exit_code == 2
