"""Order of the lines that move servers."""

from pertoken.advisor.changes.commands import commands
from pertoken.advisor.changes.servers import can_run_beside
from pertoken.advisor.changes.title import PricingChoices
from pertoken.state.diff import diff
from tests.advisor.builders import FLEET, after
from tests.advisor.changes.test_commands import WHERE


def test_a_server_runs_beside_the_old_one_on_other_whole_devices_only() -> None:
    assert can_run_beside((1, 2), (3, 4))
    assert not can_run_beside((1, 2), (2,)), "a device is shared"
    assert not can_run_beside((1,), (-5,)), "a MIG instance is made once the device is empty"
    assert not can_run_beside((1,), ())


def test_a_move_to_free_devices_starts_there_before_it_stops_here() -> None:
    step = commands(diff(FLEET, after("consolidate")), FLEET, WHERE, PricingChoices())
    start, check, traffic, stop = step.apply[:4]
    assert start == "start the server on devices GPU-40" and check.startswith("curl ")
    assert traffic == "move the traffic to it" and stop == "stop what ran on devices GPU-30"


def test_a_serverless_api_is_tried_before_the_servers_stop() -> None:
    step = commands(diff(FLEET, after("serverless")), FLEET, WHERE, PricingChoices())
    assert ["sample" in line for line in step.apply] == [True, False, False]
    assert step.apply[-1].startswith("stop ")
