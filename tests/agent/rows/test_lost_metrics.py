from dataclasses import replace

from pertoken.agent.readings import DeviceReading, Unavailable
from pertoken.agent.rows.devices import WAIT, metric_events
from tests.agent.values import gpu

WHOLE = gpu(0)._replace(util_1e4=5000, dram_active_1e4=7000)
REFUSED = Unavailable("util_1e4", "unsupported", "this GPU does not offer it")


def kinds(before: DeviceReading | None, now: DeviceReading) -> list[tuple[str, str]]:
    return [(event.kind, event.message) for event in metric_events(before, now, 1)]


def test_a_metric_that_is_lost_is_an_event_with_the_reason_and_so_is_its_return() -> None:
    without = WHOLE._replace(
        util_1e4=None, dram_active_1e4=None, unavailable=(REFUSED, replace(REFUSED, metric="dram_active_1e4"))
    )
    ((kind, message),) = kinds(WHOLE, without)
    assert kind == "metric_lost" and "util_1e4, dram_active_1e4 cannot be read" in message and REFUSED.reason in message
    assert kinds(without, without) == []
    ((kind, message),) = kinds(without, WHOLE)
    assert kind == "metric_back" and "util_1e4, dram_active_1e4" in message


def test_temporary_gaps_and_metrics_that_never_existed_are_no_events() -> None:
    waiting = WHOLE._replace(
        dram_active_1e4=None, unavailable=(replace(REFUSED, metric="dram_active_1e4", remedy=WAIT),)
    )
    assert kinds(WHOLE, waiting) == kinds(waiting, WHOLE) == []
    never = WHOLE._replace(util_1e4=None, unavailable=(REFUSED,))
    assert kinds(None, never) == kinds(never, never) == []


def test_a_lost_device_is_not_reported_metric_by_metric() -> None:
    lost = WHOLE._replace(util_1e4=None, dram_active_1e4=None, lost="gone", unavailable=(REFUSED,))
    assert kinds(WHOLE, lost) == kinds(lost, WHOLE) == []


def test_a_process_list_is_lost_when_it_is_refused_and_not_when_it_is_not_asked_for() -> None:
    listed, between = WHOLE, WHOLE._replace(processes=None)
    refused = between._replace(unavailable=(Unavailable("processes", "failing", "the driver answered error 999"),))
    assert kinds(listed, between) == kinds(between, listed) == []
    ((kind, message),) = kinds(between, refused)
    assert kind == "metric_lost" and "processes" in message
    assert kinds(refused, refused) == []
    assert [kind for kind, _ in kinds(refused, between)] == ["metric_back"]
