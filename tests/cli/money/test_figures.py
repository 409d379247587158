import json
from pathlib import Path

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed


def test_figures_are_printed_by_model_as_text_and_json_and_have_no_csv(tmp_path: Path) -> None:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=10, end_ts=NOW)
    text = " ".join(run("costs", "--figures", "--db", str(folder)).output.split())
    assert (
        "$/1k req" in text and "J/token, kWh, energy of its servers: the energy of its devices was not measured" in text
    )
    (printed,) = json.loads(run("costs", "--figures", "--db", str(folder), "--json").stdout)
    assert printed["requests"] == 60 and "no SLO is set" in printed["unknown"]["usd_per_goodput_mtok"]
    assert run("costs", "--figures", "--csv", "--db", str(folder)).exit_code == 2
