"""A difference as plain values."""

import json
from dataclasses import asdict

import pytest

from pertoken.advisor.changes.edits import edits
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, LEVERS, after


@pytest.mark.parametrize("lever", LEVERS)
def test_every_lever_is_stored_as_json_values_without_its_demand(lever: str) -> None:
    found = edits(diff(FLEET, after(lever)))
    assert json.loads(json.dumps([asdict(each) for each in found])) == [asdict(each) for each in found]
    assert not any(each.field.startswith("demand.") for each in found)


def test_what_is_removed_or_released_stops_running() -> None:
    released = edits(diff(FLEET, FLEET.release(FLEET.hosts[-1])))
    assert [(each.kind, each.target, each.field, each.after) for each in released if each.kind == "host"] == [
        ("host", FLEET.hosts[-1].host_id, "running", False)
    ]
