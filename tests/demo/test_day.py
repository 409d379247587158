"""A day with pertoken in one script: demo, screens, a decision, the change, its receipt, the report, the ledger."""

import csv
import json
import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.cli.screens.up import screen_source
from pertoken.config import load
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.demo.making import SETTINGS_FILE, Demo, make
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.tui.app import PertokenApp
from pertoken.units import NANO_USD, first_hour, format_utc
from tests.browser import CHROMIUM, DRIVER, chromium
from tests.demo.continued import advance
from tests.demo.made import END, seed_with
from tests.tui.screens import text_of, until, until_gone, until_shown

HOSTS, DAYS, AFTER_S = 4, 29, 9 * 86_400
RULE = "right-size-parallelism"
ROWS = 12
"""Of advice that are looked at for it."""


class Day:
    """A demo on a clock of its own, and the commands of a person who looks at it."""

    def __init__(self, folder: Path, clock: SimpleNamespace) -> None:
        self.clock, self.folder = clock, folder
        self.place: StoreLocation = locate(str(folder))
        self.made: Demo = make(self.place, seed_with("tp-too-wide", HOSTS, DAYS), HOSTS, DAYS, END)
        problem = next(problem for problem in self.made.fleet.problems if problem.scene.kind == "tp-too-wide")
        self.service = str(problem.service)

    def run(self, *arguments: str) -> str:
        """Run a command on the demo with its settings; return what it printed."""
        options = ("--db", str(self.folder), "--config", str(self.folder / SETTINGS_FILE))
        done = CliRunner().invoke(main, [*arguments, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    def go_on(self, knobs: dict[str, object]) -> None:
        """Let more than a week pass with the change made."""
        self.made = advance(self.place, self.made, AFTER_S, {self.service: knobs})
        self.clock.now = self.made.interval.end_ts + 20.0


@pytest.fixture
def day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Day:
    clock = SimpleNamespace(now=END + 20.0)
    monkeypatch.setattr(time, "time", lambda: clock.now)
    return Day(tmp_path / "demo", clock)


async def test_a_problem_is_found_accepted_in_the_screens_mended_and_proven_to_the_dollar(day: Day) -> None:
    advice = json.loads(day.run("advise", "--json"))["recommendations"]
    row = next(row for row in advice if (row["target"], row["rule_id"]) == (day.service, RULE))
    best = row["variants"][0]
    assert row["state"] == "OPEN" and best["saving"]["capacity"][1] > 0

    await _accept_in_the_screens(day)
    accepted = json.loads(day.run("advise", "show", row["id"], "--json"))
    assert accepted["state"] == "ACCEPTED" and accepted["variant"] == best["key"]

    day.go_on({edit["field"]: edit["after"] for edit in best["edits"] if edit["kind"] == "deployment"})
    day.run("advise")
    receipt = day.run("receipt")
    assert "REALIZED" in receipt and day.service in receipt

    _report_opens_in_a_browser_that_asks_nobody(day)
    _totals_equal_the_ledger(day)


async def _accept_in_the_screens(day: Day) -> None:
    """Open the screens over the demo, walk to the advice and accept it, as a person does."""
    settings = load(str(day.folder / SETTINGS_FILE), db=str(day.folder))
    app = PertokenApp(screen_source(day.place, settings), refresh_s=3600.0, clock=lambda: day.clock.now)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "generated demo")
        await pilot.press("2")
        await until_shown(pilot, "tp 2 →")
        for _ in range(ROWS):
            await pilot.press("a")
            await until_shown(pilot, "Accept this recommendation?")
            if f"{day.service}" in text_of(pilot) and "tp 2 → 1" in text_of(pilot):
                break
            await pilot.press("escape")
            await until_gone(pilot, "Accept this recommendation?")
            await pilot.press("down")
        await pilot.press("enter")
        await until_gone(pilot, "Accept this recommendation?")
        await until(
            pilot,
            lambda: "accept" in " ".join(notification.message for notification in app._notifications),
            "the decision",
        )


def _report_opens_in_a_browser_that_asks_nobody(day: Day) -> None:
    """Assert that the HTML report shows the proven saving, requests only itself, and logs nothing."""
    file = day.folder / "report.html"
    day.run("report", "--html", "--from", "30d", "--out", str(file))
    if CHROMIUM is None or DRIVER is None:
        assert day.service in file.read_text(encoding="utf-8")
        return
    with chromium(day.folder / "profile", logged=True) as window:
        window.open("about:blank")  # instead of the browser's own first page
        assert window.requested() and window.messages() == []
        window.open(file.as_uri())
        shown = window.run("return document.body.innerText")
        assert day.service in shown and "tp 2 → 1" in shown
        assert window.run("return document.querySelectorAll('svg').length") >= 4
        assert window.requested() == [file.as_uri()] and window.messages() == []


def _totals_equal_the_ledger(day: Day) -> None:
    """Assert that the bill of 48 hours is the same by device, model, host and in FOCUS rows.

    It also equals the hosts' prices times their time.
    """
    bills = [json.loads(day.run("costs", "--by", by, "--hours", "48", "--json")) for by in ("gpu", "model", "host")]
    by_gpu, by_model, by_host = (sum(line["usd"] for line in lines) for lines in bills)
    assert by_gpu == pytest.approx(by_model, abs=1e-6) and by_gpu == pytest.approx(by_host, abs=1e-6)
    start = format_utc(first_hour(48, int(day.clock.now))).replace(" ", "T")
    rows = csv.DictReader(day.run("report", "--focus", "--from", start).splitlines())
    focus_nano_usd = sum(Decimal(row["BilledCost"]) for row in rows) * NANO_USD
    assert focus_nano_usd == sum(round(line["usd"] * NANO_USD) for line in bills[0]), "to the nano-dollar"
    report = fleet_report(open_store(day.place), 3600, day.made.interval.end_ts)
    assert report.nano_usd_per_hour is not None
    hours = 47 + (day.made.interval.end_ts % 3600) / 3600
    assert by_gpu == pytest.approx(report.nano_usd_per_hour / NANO_USD * hours, rel=0.001)
