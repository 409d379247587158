import json
import shutil
from pathlib import Path

import pytest

from tests.cli.builders import run
from tests.scenario import LOW_BATCH_70B, seed

EXPORTS = Path(__file__).parents[2] / "costs" / "invoice" / "exports"
RECORDED_UNTIL = 1_789_999_200
"""2026-09-21 14:00Z."""


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("billed") / "db"
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=120, end_ts=RECORDED_UNTIL)
    return folder


@pytest.fixture
def db(seeded: Path, tmp_path: Path) -> str:
    shutil.copytree(seeded, tmp_path / "db")
    return str(tmp_path / "db")


def rows(db: str) -> list[dict[str, float]]:
    printed: list[dict[str, float]] = json.loads(
        run("reconcile", str(EXPORTS / "azure.csv"), "--json", "--db", db).stdout
    )["rows"]
    return printed


def test_a_bill_is_compared_and_nothing_is_stored_without_apply(db: str) -> None:
    done = run("reconcile", str(EXPORTS / "azure.csv"), "--db", db)
    assert done.exit_code == 0 and "$180.57  the bill" in done.output and "gpu-1" in done.output
    assert rows(db)[0]["unseen_usd"] == 25 and "billed" not in run("prices", "show", "--db", db).output


def test_billed_prices_lead_once_they_are_applied_and_past_costs_change_as_shown(db: str) -> None:
    asked = run("reconcile", str(EXPORTS / "azure.csv"), "--apply", "--db", db)
    assert asked.exit_code == 2 and "$55.04 → $50.00" in asked.output and "pass --yes" in asked.output
    done = run("reconcile", str(EXPORTS / "azure.csv"), "--apply", "--yes", "--db", db)
    assert done.exit_code == 0 and "Stored 4 billed prices." in done.output
    (row,) = rows(db)
    assert row["computed_usd"] == pytest.approx(50) and row["discount_usd"] + row["price_usd"] == pytest.approx(0)
    shown = run("prices", "show", "--db", db).output
    assert "$6.25 an hour  GPU-0" in shown and "by billed: azure azure.csv, gpu-1" in shown
    again = run("reconcile", str(EXPORTS / "azure.csv"), "--apply", "--db", db)
    assert again.exit_code == 0 and "stored already" in again.output
    # A price set for the name of the device does not take the lead again.
    run("prices", "set", "9.99", "--for", "H100", "--from", "2026-09-21", "--yes", "--db", db)
    assert rows(db)[0]["computed_usd"] == pytest.approx(50)


def test_an_instance_is_named_as_its_bill_does_by_a_setting(db: str, tmp_path: Path) -> None:
    bill = str(EXPORTS / "aws.csv")
    assert "No line belongs to a recorded host" in run("reconcile", bill, "--db", db).output
    refused = run("reconcile", bill, "--apply", "--yes", "--db", db)
    assert refused.exit_code == 2 and "there is no price to store" in refused.output
    config = tmp_path / "pertoken.toml"
    config.write_text('[hosts."gpu-1"]\nresource_id = "i-0abc12"\n')
    named = run("reconcile", bill, "--db", db, "--config", str(config), "--json")
    assert json.loads(named.stdout)["rows"][0]["billed_usd"] == 75
    assert run("reconcile", bill, "--apply", "--json", "--db", db).exit_code == 2


def test_a_folder_of_parts_is_one_bill(db: str, tmp_path: Path) -> None:
    header, *lines = (EXPORTS / "azure.csv").read_text().splitlines(keepends=True)
    folder = tmp_path / "export"
    folder.mkdir()
    for n, line in enumerate(lines):
        (folder / f"part-{n}.csv").write_text(header + line)
    whole = run("reconcile", str(EXPORTS / "azure.csv"), "--json", "--db", db)
    assert json.loads(run("reconcile", str(folder), "--json", "--db", db).stdout) == json.loads(whole.stdout)
    named = run("reconcile", *map(str, sorted(folder.iterdir())), "--db", db)
    assert named.exit_code == 0 and "$180.57  the bill" in named.output
