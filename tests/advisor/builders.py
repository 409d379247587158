"""Builders for the tests of this package."""

import json
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pertoken.cli import main
from pertoken.state.fleet import Fleet
from tests.state.fleets import SMALL, fleet
from tests.state.levers import levers

FLEET = fleet()
LEVERS = levers(FLEET, SMALL)


def after(lever: str) -> Fleet:
    return FLEET.edit(LEVERS[lever]())


NOW = int(time.time()) // 60 * 60


def advise(folder: Path, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """Return all advice; the command ends with 2 where a rule file is broken."""
    done = CliRunner().invoke(
        main, ["advise", "--adopt-config", "--db", str(folder), "--json", *options], catch_exceptions=False
    )
    assert done.exit_code == code, done.output
    rows: list[dict[str, Any]] = json.loads(done.stdout)["recommendations"]
    return rows
