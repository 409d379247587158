"""Hostile names (of models, hosts, devices, notes): no control characters in a terminal, no formulas in a CSV."""

import csv
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.store.connect.location import locate
from pertoken.store.repository import AdviceRepository, add_price
from tests.scenario import LOW_BATCH_70B, seed

EVIL = "evil\x1b[31m\x9b2J\u202e\r\n\t\x7fmodel"
FORMULA = '=HYPERLINK("http://evil.example";"click")'
END_TS = int(time.time()) // 3600 * 3600
COMMANDS = (
    ["top"],
    ["advise"],
    ["advise", "--json"],
    ["costs", "--hours", "4"],
    ["costs", "--hours", "4", "--json"],
    ["costs", "--hours", "4", "--csv"],
    ["prices", "show"],
    ["prices", "show", "--json"],
    ["prices", "set", "1", "--for", "H100"],
    ["db", "info"],
    ["db", "check"],
)


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder whose model, price and note have names that act."""
    folder = tmp_path_factory.mktemp("named") / "db"
    seed(folder, replace(LOW_BATCH_70B, model=EVIL), gpus=2, usd_per_hour=1.0, minutes=60, end_ts=END_TS)
    with AdviceRepository(locate(str(folder))).writing() as connection:
        add_price(
            connection,
            selector=f"H100 {EVIL}",
            nano_usd_per_device_hour=1,
            from_ts=0,
            set_ts=1,
            set_by=EVIL,
            note=EVIL,
        )
    return str(folder)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_output_acts_on_a_terminal(named: str, command: list[str]) -> None:
    done = CliRunner().invoke(main, [*command, "--db", named])
    assert done.exit_code == 0, done.output
    acting = {char for char in done.output if not char.isprintable() and char not in "\n\xa0"}
    assert not acting, done.output
    if "--json" in command:
        json.loads(done.stdout)


def test_a_name_in_csv_starts_no_formula(tmp_path: Path) -> None:
    seed(tmp_path, replace(LOW_BATCH_70B, model=FORMULA), gpus=2, usd_per_hour=1.0, minutes=60, end_ts=END_TS)
    done = CliRunner().invoke(main, ["costs", "--hours", "4", "--csv", "--db", str(tmp_path)])
    cells = [cell for row in csv.reader(done.stdout.splitlines()) for cell in row]
    assert any("HYPERLINK" in cell for cell in cells)
    assert not any(cell.startswith(("=", "+", "@", "-")) for cell in cells)
