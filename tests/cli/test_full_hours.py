"""`--at` on a full hour, a full day, the first recorded second and before it: every command reads the hours before."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.window.reading import first_recorded
from tests.cli.builders import run
from tests.reports.builders import END, HOURS, recorded
from tests.scenario import LOW_BATCH_70B, seed

HOUR, DAY = "2026-11-23T01:00Z", "2026-11-23T00:00Z"
"""The end of what is recorded, and a midnight within."""
BY = ("model", "tenant", "team", "gpu", "host", "service")
COMMANDS = [
    ("costs", "--hours", "1"),
    *(("costs", "--hours", "1", "--by", by) for by in BY),
    ("costs", "--hours", "1", "--figures"),
    ("costs", "--hours", "1", "--fail-on", "usd < 1"),
    ("budget",),
    *(("report", f"--{form}", "--from", "1h") for form in ("html", "md", "csv", "focus")),
    ("report", "--weekly"),
    ("top", "--once"),
    ("top", "--json"),
]
RULES = [("advise", "--since", "1h"), ("plan", "--since", "1h")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = tmp_path_factory.mktemp("hours") / "db"
    recorded(where)
    return str(where)


@pytest.mark.parametrize("at", [HOUR, DAY])
@pytest.mark.parametrize("command", [*COMMANDS, *RULES], ids=" ".join)
def test_every_command_prints_the_hour_that_ends_there(folder: str, command: tuple[str, ...], at: str) -> None:
    done = run(*command, "--db", folder, "--at", at)
    assert done.exit_code == 0 and done.stdout and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("at", [HOUR, DAY])
def test_the_dollars_of_the_hour_are_equal_by_every_dimension(folder: str, at: str) -> None:
    usd = {}
    for by in BY:
        lines = json.loads(run("costs", "--hours", "1", "--by", by, "--json", "--db", folder, "--at", at).stdout)
        usd[by] = sum(line["usd"] for line in lines)
    assert usd["host"] == usd["gpu"] == pytest.approx(4 * 6.88) and usd["tenant"] == usd["team"] == usd["model"]
    assert usd["model"] == pytest.approx(usd["gpu"]) and 0 < usd["service"] < usd["gpu"]


@pytest.mark.parametrize("command", [*COMMANDS, *RULES], ids=" ".join)
def test_from_the_first_minute_on_there_is_an_answer_and_before_it_a_refusal(
    folder: str, command: tuple[str, ...]
) -> None:
    first = first_recorded(open_store(locate(folder)))
    assert first is not None and END - HOURS * 3600 <= first < END
    assert run(*command, "--db", folder, "--at", _iso(first + 60)).exit_code in (0, 1)
    for ts in (first, first - 1, first - 86_400):
        done = run(*command, "--db", folder, "--at", _iso(ts))
        assert done.exit_code == 2 and "nothing was recorded before then" in done.stderr, ts


def test_at_the_first_instant_of_a_month_nothing_is_spent_of_it(tmp_path: Path) -> None:
    start = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=120, end_ts=start + 3600)
    at_start, later = (
        json.loads(run("budget", "--json", "--db", str(tmp_path / "db"), "--at", _iso(ts)).stdout)
        for ts in (start, start + 3600)
    )
    assert at_start["month"] == later["month"] == "2026-11"
    assert not at_start["spent_usd"] and later["spent_usd"] == pytest.approx(2 * 6.88)


def _iso(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).isoformat()
