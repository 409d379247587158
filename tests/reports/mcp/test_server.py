import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.cli.builders import NOW, run
from tests.scenario import LOW_BATCH_70B, seed


async def test_a_client_of_the_sdk_gets_the_figures_of_the_commands(tmp_path: Path) -> None:
    db = str(tmp_path / "db")
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=NOW)
    advised = json.loads(run("advise", "--db", db, "--json").stdout)["recommendations"]
    command = ["-P", "-m", "pertoken", "mcp", "--db", db]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        tools = (await client.list_tools()).tools
        costs = await ask(client, "costs", {"hours": 2})
        savings, refusals = await ask(client, "savings", {}), await ask(client, "refusals", {})
        wrong = await client.call_tool("costs", {"hours": 0})
    assert {each.name for each in tools} == {"costs", "savings", "verdicts", "refusals"}
    assert all(each.annotations is not None and each.annotations.read_only_hint for each in tools)
    lines = json.loads(run("costs", "--by", "model", "--hours", "2", "--db", db, "--json").stdout)
    assert [line["usd_per_mtok"] for line in costs["lines"]] == [pytest.approx(line["usd_per_mtok"]) for line in lines]
    known = {each["id"]: each for each in advised}
    assert savings["found"] and {each["id"] for each in savings["found"]} <= set(known)
    refused = {each["id"]: each["reason"] for each in refusals["refusals"]}
    silent = ("REFUSED", "BLOCKED", "FAILED")
    assert refused == {key: each["reason"] for key, each in known.items() if each["state"] in silent}
    assert wrong.is_error


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error
    return result.structured_content
