"""The table of device metrics: one row each, and no two with one name."""

import pytest

from pertoken.metrics import DEVICE, RollUp, rolled


def test_each_device_metric_is_stored_read_and_named_once() -> None:
    for names in ([metric.reading for metric in DEVICE], [metric.label for metric in DEVICE]):
        assert len(names) == len(set(names))


@pytest.mark.parametrize("roll_up", RollUp)
def test_each_way_to_roll_up_has_metrics(roll_up: RollUp) -> None:
    assert all(metric in DEVICE for metric in rolled(roll_up))


def test_only_gauges_of_devices_are_series() -> None:
    assert all(metric in rolled(RollUp.GAUGE) for metric in DEVICE if metric.series)
