"""Values that a driver cannot mean are unknown; the tests of the probes have the rest."""

from dataclasses import replace

import pytest

from pertoken.agent.readings import DEVICE_BOUNDS, MAX_PID, DeviceProcess, bounded, scrambled
from tests.agent.values import gpu, probe


@pytest.mark.parametrize("metric", sorted(DEVICE_BOUNDS))
def test_a_value_outside_its_range_is_unknown_with_a_gap_and_one_at_its_edges_is_kept(metric: str) -> None:
    bound = DEVICE_BOUNDS[metric]
    limit = {} if bound.limited_by is None else {bound.limited_by: None}
    for value, kept in ((bound.low, True), (bound.high, True), (bound.low - 1, False), (bound.high + 1, False)):
        reading = bounded(probe(gpu(0)._replace(**{metric: value}, **limit)), {})
        device = reading.devices[0]
        assert (getattr(device, metric) == value) is kept, value
        assert (metric in {missing.metric for missing in device.unavailable}) is not kept


def test_a_second_device_of_one_uuid_is_a_gap() -> None:
    reading = bounded(probe(gpu(0), gpu(0)._replace(slot=1)), {})
    assert len(reading.devices) == 2  # with the CPU
    assert any("GPU-0" in missing.reason for missing in reading.unavailable)


def test_a_host_value_that_cannot_be_true_costs_only_itself() -> None:
    whole = probe(gpu(0))
    reading = bounded(replace(whole, host=replace(whole.host, load_1e2=-1)), {})
    assert reading.host == replace(whole.host, load_1e2=None)


@pytest.mark.parametrize(
    ("process", "wrong"),
    [
        (DeviceProcess(1, 10), False),
        (DeviceProcess(MAX_PID, None), False),
        (DeviceProcess(0, 10), True),
        (DeviceProcess(MAX_PID + 1, 10), True),
        (DeviceProcess(1, 101), True),
    ],
)
def test_a_process_list_is_scrambled_by_a_pid_or_a_size_that_cannot_be(process: DeviceProcess, wrong: bool) -> None:
    assert scrambled([process], 100) is wrong
