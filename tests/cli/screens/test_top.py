import json

import pytest

from pertoken.cli.screens.top import SCREENS
from tests.cli.builders import run


def test_top_without_a_terminal_prints_the_facts(recorded: str) -> None:
    output = run("top", "--db", recorded).output
    assert "Llama-3.3-70B-Instruct" in output
    assert "pertoken prices set" in output


def test_json_holds_every_screen_and_one_alone_where_asked(recorded: str) -> None:
    printed = json.loads(run("top", "--db", recorded, "--json").output)
    assert tuple(printed) == SCREENS
    assert printed["fleet"]["deployments"][0]["model"] == "meta-llama/Llama-3.3-70B-Instruct"
    assert printed["savings"]["recommendations"] == [] and printed["savings"]["banked"]["changes"] == 0
    assert printed["plan"]["steps"] == []
    assert {"id", "state", "page", "record"} <= set(printed["rules"][0])
    assert {"model", "hour", "usd", "usd_per_mtok"} <= set(printed["hours"][0])
    assert tuple(json.loads(run("top", "--db", recorded, "--json", "--screen", "hours").output)) == ("hours",)


@pytest.mark.parametrize(
    ("screen", "text"),
    [
        ("fleet", "Devices"),
        ("savings", "pertoken, last 1h"),
        ("plan", "pertoken plan, from the last"),
        ("rules", "batch-limit"),
        ("hours", "$ per Mtok"),
    ],
)
def test_each_screen_can_be_printed_alone(recorded: str, screen: str, text: str) -> None:
    assert text in run("top", "--db", recorded, "--once", "--screen", screen).output


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--screen", "plan"], "--screen needs --once or --json"),
        (["--web-writes"], "--web-host and --web-writes are for --web"),
        (["--web-host", "10.0.0.1"], "--web-host and --web-writes are for --web"),
        (["--web", "8123", "--web-host", "0.0.0.0"], "name one address of this host"),
        (["--web", "8123", "--web-host", "example.org"], "is no IPv4 address"),
        (["--web", "8123", "--once"], "--once prints text"),
    ],
)
def test_contradicting_options_are_refused_with_one_line(recorded: str, options: list[str], line: str) -> None:
    result = run("top", "--db", recorded, *options)
    assert result.exit_code != 0 and line in result.output
