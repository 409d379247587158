import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.lake.manifest import cell_of
from pertoken.store.connect.location import StoreLocation, locate
from tests.lake.lakes import END, host
from tests.scenario import LOW_BATCH_70B, seed

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
AT = "2026-09-21T02:00Z"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, `db`, and a lake with one cell that the command line published from it, `lake`."""
    folder = tmp_path_factory.mktemp("published")
    host(folder / "db")
    done = run("lake", "publish", str(folder / "lake"), "--cell", "eu-1", "--db", str(folder / "db"))
    assert "2026-09-20  new" in done and "2026-09-21  new" in done
    return folder


@pytest.fixture
def lake(published: Path, tmp_path: Path) -> str:
    """A copy of the lake for one test, with its database beside it."""
    for name in ("db", "lake"):
        shutil.copytree(published / name, tmp_path / name)
    return str(tmp_path / "lake")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_publishing_again_reports_that_nothing_changed(tmp_path: Path, lake: str) -> None:
    assert run("lake", "publish", lake, "--cell", "eu-1", "--db", str(tmp_path / "db")).endswith("unchanged.\n")
    days = json.loads(run("lake", "publish", lake, "--cell", "eu-1", "--db", str(tmp_path / "db"), "--json"))["days"]
    assert {day["outcome"] for day in days} == {"unchanged"}


def test_costs_of_a_lake_are_those_of_its_database(tmp_path: Path, lake: str) -> None:
    assert END == 1_789_956_000
    values = json.loads(run("costs", "--db", f"lake:{lake}", "--hours", "5", "--at", AT, "--by", "model", "--json"))
    own = json.loads(run("costs", "--db", str(tmp_path / "db"), "--hours", "5", "--at", AT, "--by", "model", "--json"))
    (price,) = values["tables"]["Dollars per Mtok by model"]
    line = next(line for line in own if line["tokens"])
    assert price["nano_usd"] / 1e9 == pytest.approx(line["usd"], abs=1e-9)
    assert price["prompt_tokens"] + price["generated_tokens"] == line["tokens"]
    assert values["cells"] == ["eu-1"] and values["left_out"] == []


@pytest.mark.parametrize("by", ["cell", "hour", "day", "provider", "region", "namespace", "workload", "service"])
def test_a_lake_is_grouped_by(by: str, lake: str) -> None:
    values = json.loads(run("costs", "--db", f"lake:{lake}", "--hours", "5", "--at", AT, "--by", by, "--json"))
    assert sum(row["nano_usd"] for row in values["tables"][f"Dollars by {by}"]) == 40_000_000_000
    assert by in run("costs", "--db", f"lake:{lake}", "--hours", "5", "--at", AT, "--by", by, "--csv").splitlines()[0]


@pytest.mark.parametrize(
    ("by", "owners"),
    [
        ("namespace", {"prod", "dev"}),
        ("workload", {"prod/chat", "dev/chat"}),
        ("label:acme.io/team", {"team-prod", "team-dev"}),
        ("job", {"17-prod", "17-dev"}),
        ("job:user", {"ada-prod", "ada-dev"}),
        ("slice", {"prod.slice", "dev.slice"}),
    ],
)
def test_owners_of_a_lake_are_those_of_its_database(tmp_path: Path, by: str, owners: set[str]) -> None:
    where: Path | StoreLocation = tmp_path / "owned"
    for name in ("prod", "dev"):
        owned = {"workload": f"Deployment {name}/chat", "label:acme.io/team": f"team-{name}", "job": f"17-{name}"}
        owned |= {"job:user": f"ada-{name}", "slice": f"{name}.slice"}
        pod = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, **owned})
        where = seed(where, pod, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END, host=name)
    url, asked = str(tmp_path / "lake"), ("--hours", "5", "--at", AT, "--by", by, "--json")
    run("lake", "publish", url, "--cell", "eu-1", "--db", str(tmp_path / "owned"))
    values = json.loads(run("costs", "--db", f"lake:{url}", *asked))
    own = json.loads(run("costs", "--db", str(tmp_path / "owned"), *asked))
    assert {line["name"] for line in own} == owners
    rows = values["tables"][f"Dollars by {by}"]
    assert {row[by]: row["nano_usd"] for row in rows} == {line["name"]: round(line["usd"] * 1e9) for line in own}
    prices = values["tables"][f"Dollars per Mtok by {by}"]
    assert {row["prompt_tokens"] + row["generated_tokens"] for row in prices} == {line["tokens"] for line in own}


def test_reports_and_screens_of_a_lake_hold_all_its_tables(tmp_path: Path, lake: str) -> None:
    text = run("top", "--once", "--db", f"lake:{lake}", "--at", AT)
    markdown = run("report", "--md", "--from", "5h", "--at", AT, "--db", f"lake:{lake}")
    page = run("report", "--html", "--from", "5h", "--at", AT, "--db", f"lake:{lake}")
    for title in ("Dollars per Mtok by model", "computed $/Mtok", "Dollars by cell", "Spend by month", "Open recom"):
        assert title in text and title in markdown and title in page
    assert "<script" not in page and "eu-1" in page
    assert json.loads(run("top", "--json", "--db", f"lake:{lake}", "--at", AT))["cells"] == ["eu-1"]


def test_a_budget_stands_beside_the_month(tmp_path: Path, lake: str) -> None:
    settings = tmp_path / "own.toml"
    settings.write_text("[budget]\nusd_per_month = 80\n")
    text = run("top", "--once", "--db", f"lake:{lake}", "--at", AT, "--config", str(settings))
    assert "2026-09: $40 of a budget of $80 (50%)" in text


def test_files_are_listed_verified_pruned_and_forgotten(lake: str) -> None:
    assert "eu-1  2 days, to 2026-09-22 00:00Z" in run("lake", "list", lake)
    assert json.loads(run("lake", "list", lake, "--json"))[0]["days"] == 2
    assert "2 days as published, 0 days damaged." in run("lake", "verify", lake)
    assert "0 files of 0 days deleted" in run("lake", "prune", lake)
    assert "deleted" in run("lake", "forget", lake, "model", "meta-llama/Llama-3.3-70B-Instruct", "--yes")
    assert "0 files of 0 days" in run("lake", "forget", lake, "label:team", "nobody", "--yes")
    assert "is not one of" in run("lake", "forget", lake, "colour", "x", "--yes", code=2)
    file = next(Path(lake).rglob("costs-*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    assert "has" in run("lake", "verify", lake, code=1)


def test_nothing_is_deleted_without_an_answer(lake: str) -> None:
    before = sorted(Path(lake).rglob("*"))
    run("lake", "prune", lake, "--before", "2027-01-01", code=1)
    run("lake", "forget", lake, "model", "x", code=1)
    assert sorted(Path(lake).rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("costs", "--by", "host"), "a lake is grouped by"),
        (("costs", "--by", "label:"), "is not one of"),
        (("costs", "--figures"), "a lake is grouped by"),
        (("report", "--csv"), "--html and --md"),
        (("top", "--web", "8000"), "in a terminal"),
    ],
)
def test_options_that_a_lake_does_not_have_are_refused(arguments: tuple[str, ...], reason: str, lake: str) -> None:
    assert reason in run(*arguments, "--db", f"lake:{lake}", code=2)


def test_groups_that_only_a_lake_has_are_refused_elsewhere(tmp_path: Path, lake: str) -> None:
    assert "are for a lake" in run("costs", "--by", "cell", "--db", str(tmp_path / "db"), code=2)
    assert "are for a lake" in run("costs", "--engine", "duckdb", "--db", str(tmp_path / "db"), code=2)


def test_a_cell_is_named_by_its_host_or_server() -> None:
    assert cell_of(locate("postgresql://user:secret@db.example/fleet")) == "db.example-fleet"
    assert cell_of(locate("/nowhere"))
