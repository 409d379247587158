import json
from pathlib import Path

import pytest

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed


@pytest.mark.parametrize("kind", ["litellm", "langfuse"])
def test_the_measured_price_is_that_of_costs(kind: str, tmp_path: Path) -> None:
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=3, end_ts=NOW)
    db = ("--db", str(tmp_path / "db"))
    printed = json.loads(run("export", kind, *db).stdout)
    entry = printed[LOW_BATCH_70B.model] if kind == "litellm" else printed[0]
    (line,) = json.loads(run("costs", "--by", "service", "--hours", "2", "--json", *db).stdout)[-1:]
    price = entry.get("input_cost_per_token", entry.get("inputPrice"))
    assert price * 1e6 == pytest.approx(line["usd_per_mtok"], rel=1e-4)
    file = tmp_path / "map.json"
    assert run("export", kind, *db, "--out", str(file)).exit_code == 0 and json.loads(file.read_text())
    assert "leave --table" in run("export", kind, *db, "--table", "host").stderr
