from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed

if TYPE_CHECKING:
    from mcp import Client


async def test_a_client_of_the_sdk_gets_the_figures_of_the_commands(tmp_path: Path) -> None:
    # Not above: to load it takes 1.5 s, which each worker would spend to collect the tests.
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    db = str(tmp_path / "db")
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    advised = json.loads(run("advise", "--db", db, "--json").stdout)["recommendations"]
    command = ["-P", "-m", "pertoken", "mcp", "--db", db]
    assert sys.__stderr__ is not None
    # Its default is the standard error at the first import, which may be that of an earlier test's command.
    server = stdio_client(StdioServerParameters(command=sys.executable, args=command), errlog=sys.__stderr__)
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        costs = await ask(client, "costs", {"hours": 2})
        savings, refusals = await ask(client, "savings", {}), await ask(client, "refusals", {})
        wrong = await client.call_tool("costs", {"hours": 0})
    assert {tool.name for tool in tools} == {"costs", "savings", "verdicts", "refusals"}
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
    lines = json.loads(run("costs", "--by", "model", "--hours", "2", "--db", db, "--json").stdout)
    assert [line["usd_per_mtok"] for line in costs["lines"]] == [pytest.approx(line["usd_per_mtok"]) for line in lines]
    known = {row["id"]: row for row in advised}
    assert savings["found"] and {saving["id"] for saving in savings["found"]} <= set(known)
    refused = {refusal["id"]: refusal["reason"] for refusal in refusals["refusals"]}
    silent = ("REFUSED", "BLOCKED", "FAILED")
    assert refused == {key: value["reason"] for key, value in known.items() if value["state"] in silent}
    assert wrong.is_error


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    return result.structured_content
