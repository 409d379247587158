"""`pertoken plan`: one plan as text and as JSON, from advice that stands or from a run of its own."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor.plan.plan import LeftOut, Plan, PlanStep
from pertoken.advisor.rules import discovery
from pertoken.advisor.rules.discovery import find_rules
from pertoken.store.connect.location import locate
from pertoken.text.export import plan_values
from pertoken.text.plan import plan_text
from pertoken.units import NANO_USD
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import set_price

AT = "--at", datetime.fromtimestamp(NOW - 120, UTC).isoformat()


RULES = ("quantize-weights", "quantize-kv", "move-accelerator", "response-cache")


@pytest.fixture(scope="module", autouse=True)
def few_rules() -> Iterator[None]:
    """Let some of the installed rules run alone: what a plan makes of all is for `benchmarks.plan`."""

    def find(*arguments: Any) -> list[Any]:
        return [candidate for candidate in find_rules(*arguments) if candidate.name in RULES]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(discovery, "find_rules", find)
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host of four H100s, two of them in use, until two minutes ago, and advice on it."""
    folder = tmp_path_factory.mktemp("plan") / "db"
    seed(folder, LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=30, end_ts=NOW - 120)
    assert run("advise", "--db", str(folder), "--since", "1h").exit_code == 0
    return folder


@pytest.fixture(scope="module")
def dated(served: Path) -> str:
    """The plan as of the last minute that was recorded, which is of a run of its own."""
    done = run("plan", "--db", str(served), "--since", "1h", *AT)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def planned(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run("plan", "--db", str(folder), "--since", "1h", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def money(values: dict[str, float]) -> tuple[float, float, float]:
    assert list(values) == ["low", "likely", "high"]
    return values["low"], values["likely"], values["high"]


def test_json_has_the_spend_the_totals_and_each_step_with_its_price_before_and_after(served: Path) -> None:
    plan = planned(served)
    spend = plan["spend_usd_per_month"]
    assert spend == pytest.approx(4 * 6.88 * 730)
    per_mtok = plan["usd_per_mtok"]
    assert per_mtok["after"] / per_mtok["before"] == pytest.approx(plan["spend_after_usd_per_month"] / spend)
    for name in ("bankable_usd_per_month", "capacity_usd_per_month"):
        low, likely, high = money(plan[name])
        assert 0 <= low <= likely <= high <= spend
    assert plan["steps"]
    for number, step in enumerate(plan["steps"], 1):
        assert step["number"] == number
        assert {"what", "where", "risk", "effort", "commands", "undo", "conflicts", "rule_id", "slo"} <= step.keys()
        assert step["effort"] in ("minutes", "hours", "days") and step["commands"] and step["undo"]
    ends = [spend, *(step["spend_after_usd_per_month"] for step in plan["steps"])]
    assert [step["spend_before_usd_per_month"] for step in plan["steps"]] == ends[:-1]
    assert plan["spend_after_usd_per_month"] == ends[-1]
    assert all(change["reason"] for change in plan["left_out"])


def test_advice_that_is_newer_than_all_telemetry_is_used_and_gives_the_plan_of_a_new_run(
    served: Path, dated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.advisor.planning.advise", _not_again)
    titles = [(step["rule_id"], step["what"]) for step in planned(served)["steps"]]
    assert all(f"  {what}\n" in dated and rule_id in dated for rule_id, what in titles)


def test_advice_of_another_window_or_older_than_telemetry_is_not_used(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.advisor.planning.advise", _not_again)
    with pytest.raises(AssertionError, match="the rules ran"):
        run("plan", "--db", str(served), "--since", "2h")
    shutil.copytree(served, tmp_path / "db")
    with sqlite3.connect(tmp_path / "db" / "advice.db") as db:
        db.execute("UPDATE recommendation SET updated_ts = ?", (NOW - 200,))
    with pytest.raises(AssertionError, match="the rules ran"):
        run("plan", "--db", str(tmp_path / "db"), "--since", "1h")


def _not_again(*_: object, **__: object) -> None:
    raise AssertionError("the rules ran")


def test_a_plan_of_a_past_minute_is_the_same_bytes_at_any_time_and_stores_nothing(
    served: Path, dated: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "db"
    shutil.copytree(served, folder)
    with sqlite3.connect(folder / "advice.db") as db:
        db.execute("DELETE FROM recommendation")
    set_price(locate(str(folder)), "H100", NANO_USD, from_ts=NOW)
    monkeypatch.setattr(time, "time", lambda: NOW + 40 * 86_400.0)
    assert run("plan", "--db", str(folder), "--since", "1h", *AT).stdout == dated
    with sqlite3.connect(folder / "advice.db") as db:
        assert db.execute("SELECT count(*) FROM recommendation").fetchone() == (0,)


def test_a_price_on_the_command_line_is_in_force_for_the_devices_it_names(served: Path) -> None:
    plan = planned(served, "--price", "H100=2.10", "--exclude", "quantize-weights", "--max-effort", "hours")
    assert plan["spend_usd_per_month"] == pytest.approx(4 * 2.10 * 730)
    assert "quantize-weights" not in {step["rule_id"] for step in plan["steps"]}
    assert {step["effort"] for step in plan["steps"]} <= {"minutes", "hours"}
    (excluded,) = {change["reason"] for change in plan["left_out"] if change["rule_id"] == "quantize-weights"}
    assert excluded == "quantize-weights is excluded"


def test_text_fits_80_columns_and_ends_with_0_without_a_terminal(dated: str) -> None:
    assert max(map(len, dated.splitlines())) <= 80
    assert "Bill now, a month" in dated and "Bill after, a month" in dated
    assert "Step 1: " in dated and "Left out" in dated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--slo", "chat"), "write SERVICE:ttft_p95<800ms,tpot_p95<50ms"),
        (("--price", "H100"), "write DEVICE=USD, such as H100=2.10"),
        (("--traffic", "0"), "use a number above 0 and up to 100"),
        (("--max-effort", "weeks"), "'weeks' is not one of 'minutes', 'hours', 'days'"),
        (("--since", "soon"), "is not a duration"),
        (("--at", "2999-01-01"), "lies in the future"),
        (("--slo", "nobody:ttft_p95<1s"), "there is no service 'nobody'; services: "),
        (("--price", "Z9=1"), "it names no accelerator; devices: NVIDIA H100"),
        (("--exclude", "quantise"), "no rule of that id ran; rules: "),
    ],
)
def test_a_bad_value_is_refused_with_exit_2(served: Path, arguments: tuple[str, ...], message: str) -> None:
    since = () if "--since" in arguments else ("--since", "1h")
    done = run("plan", "--db", str(served), *since, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_a_database_without_anything_in_it_gives_an_empty_plan(tmp_path: Path) -> None:
    seed(tmp_path / "db", None, gpus=1, usd_per_hour=None, minutes=1, end_ts=NOW)
    done = run("plan", "--db", str(tmp_path / "db"))
    assert done.exit_code == 0
    assert "No host with a price was seen" in done.stdout


def usd(*dollars: int) -> Any:
    return tuple(amount * NANO_USD for amount in dollars)


STEP = PlanStep(
    rule_id="use-spot",
    recommendation_id=7,
    variant_key="k",
    title="on_demand → spot",
    where="chat",
    risk="availability",
    effort="days",
    spend_before=1000 * NANO_USD,
    spend_after=600 * NANO_USD,
    bankable=usd(300, 400, 450),
    capacity=usd(0, 0, 0),
    slo="pass",
    commands=("move it",),
    undo=("move it back",),
    conflicts=("change-provider, x: both",),
)


def test_the_waterfall_shows_what_each_step_takes_off_one_scale() -> None:
    left = LeftOut("cap-power", 8, "power cap", "chat", "no money is counted for it: not measured")
    plan = Plan(usd(1000)[0], usd(300, 400, 450), usd(0, 0, 0), (STEP,), (left,), ("gpu-9",))
    text = plan_text(plan, 7 * 86_400)
    assert text == GOLDEN


GOLDEN = """\
pertoken plan, from the last 7d

Bill now, a month                                   $1,000  ████████████████████
 1  chat: on_demand → spot                           -$400              ▒▒▒▒▒▒▒▒
Bill after, a month                                   $600  ████████████

Off the bill    $400 ($300 to $450) a month
More capacity   $0 a month, on the same bill
Without a price, and not counted: gpu-9

Step 1: use-spot, chat
  on_demand → spot
  bill      $1,000 → $600 a month
  work      days; risk: availability; SLO: kept
  do        move it
  undo      move it back
  excludes  change-provider, x: both

Left out
  cap-power: chat: no money is counted for it: not measured
"""


def test_a_plan_without_a_step_states_it_and_its_json_is_complete() -> None:
    empty = Plan(usd(10)[0], usd(0, 0, 0), usd(0, 0, 0))
    assert "No steps: no proposal saves dollars that can be counted." in plan_text(empty, 3600)
    values = plan_values(empty, 3600)
    assert (values["spend_usd_per_month"], values["steps"], values["left_out"]) == (10.0, [], [])
