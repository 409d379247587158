"""Measuring once, for a person, on this real host."""

import json

from pertoken.agent.doctor import measure, show
from pertoken.config import load


def test_two_looks_at_this_host_are_a_tick_that_is_shown_as_lines_and_as_json() -> None:
    measured = measure(load(None, {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": ""}))
    look, tick = measured
    assert tick.host.name == look.probe.host.name
    lines = show(measured, as_json=False).splitlines()
    assert lines[0].startswith(f"host     {tick.host.name}: CPU ")
    assert "engine   none found" in lines
    document = json.loads(show(measured, as_json=True))
    assert document["over_ms"] == 1000
    assert {"AgentSample", "DeviceSample", "HostSample"} == set(document["samples"])
    assert [row["kind"] for row in document["devices"]] == ["cpu"]
