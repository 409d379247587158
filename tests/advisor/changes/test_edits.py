"""A difference as plain values."""

import json
from dataclasses import asdict

import pytest

from pertoken.advisor.changes.title import edits
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, LEVERS, after


@pytest.mark.parametrize("lever", LEVERS)
def test_every_lever_is_stored_as_json_values_without_its_demand(lever: str) -> None:
    stored = edits(diff(FLEET, after(lever)))
    assert json.loads(json.dumps([asdict(edit) for edit in stored])) == [asdict(edit) for edit in stored]
    assert not any(edit.field.startswith("demand.") for edit in stored)


def test_removed_deployments_and_released_hosts_stop_running() -> None:
    released = edits(diff(FLEET, FLEET.release(FLEET.hosts[-1])))
    assert [(edit.kind, edit.target, edit.field, edit.after) for edit in released if edit.kind == "host"] == [
        ("host", FLEET.hosts[-1].host_id, "running", False)
    ]
