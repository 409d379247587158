from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pertoken.costs.spend import BY
from pertoken.settings.owners import BASES
from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult

WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("costs", {"hours": 0}, "hours: must be from 1 to 8760"),
    ("costs", {"by": "banana"}, "by: 'banana': Input should be 'model', 'tenant', 'team' or 'gpu', or Input should be"),
    ("costs", {"hours": "soon"}, "hours: 'soon': Input should be a valid integer"),
    ("costs", {"start": 10**6}, "start: 1000000 is behind the last"),
    ("savings", {"which": "all"}, "which"),
    ("verdicts", {"start": -1}, "start: must be from 0"),
    ("refusals", {"rule": "no-such-rule"}, "rule: 'no-such-rule' refused nothing; rules that did:"),
    ("refusals", {"rule": "r" * 100_000}, "refused nothing"),
)
"""Calls with a bad argument, and a part of the reason that the client must get."""


async def test_a_client_of_the_sdk_gets_the_figures_of_the_commands(tmp_path: Path) -> None:
    # Not above: to load it takes 1.5 s, which each worker would spend to collect the tests.
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    db = str(tmp_path / "db")
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    advised = json.loads(run("advise", "--db", db, "--json").stdout)["recommendations"]
    command = ["-P", "-m", "pertoken", "mcp", "--db", db]
    log = tmp_path / "log"
    with log.open("w") as opened:
        server = stdio_client(StdioServerParameters(command=sys.executable, args=command), errlog=opened)
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            costs = await ask(client, "costs", {"hours": 2})
            savings, rules = await ask(client, "savings", {}), (await ask(client, "refusals", {}))["rules"]
            refusals = [await ask(client, "refusals", {"rule": rule["rule"]}) for rule in rules]
            errors = [await client.call_tool(tool, arguments) for tool, arguments, _ in WRONG]
    by = next(tool for tool in tools if tool.name == "costs").input_schema["properties"]["by"]["anyOf"]
    assert {word for part in by for word in part.get("enum", ())} == {*BY, *BASES}
    assert {tool.name for tool in tools} == {"costs", "now", "savings", "verdicts", "refusals"}
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
    lines = json.loads(run("costs", "--by", "model", "--hours", "2", "--db", db, "--json").stdout)
    assert [line["usd_per_mtok"] for line in costs["lines"]] == [pytest.approx(line["usd_per_mtok"]) for line in lines]
    known = {row["id"]: row for row in advised}
    assert savings["found"] and {saving["id"] for saving in savings["found"]} <= set(known)
    refused = {row["id"]: row["state"] for reply in refusals for row in reply["refusals"]}
    silent = ("REFUSED", "BLOCKED", "FAILED")
    assert refused == {key: value["state"] for key, value in known.items() if value["state"] in silent}
    for error, (_, _, reason) in zip(errors, WRONG, strict=True):
        assert error.is_error and reason in text_of(error) and len(text_of(error)) < 2000
        assert "\n" not in text_of(error) and "pydantic" not in text_of(error)
    assert "Traceback" not in log.read_text()


def text_of(result: CallToolResult) -> str:
    return "".join(getattr(content, "text", "") for content in result.content)


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    return result.structured_content
