"""The table of metrics: one row each, and no two that mean the same."""

import re

import pytest

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.metrics import DEVICE, ENGINE_TOKENS, PER_REQUEST_TPOT, SERIES, RollUp, label_of, rolled
from pertoken.store.schema import telemetry as t


def test_each_device_metric_is_stored_read_and_named_once() -> None:
    for names in ([metric.reading for metric in DEVICE], [metric.label for metric in DEVICE]):
        assert len(names) == len(set(names))


def test_each_stored_metric_has_its_column() -> None:
    columns = set(t.deployment_sample.c.keys())
    assert set(ENGINE_TOKENS) <= columns


@pytest.mark.parametrize("roll_up", RollUp)
def test_each_way_to_roll_up_has_metrics(roll_up: RollUp) -> None:
    assert all(metric in DEVICE for metric in rolled(roll_up))


def test_only_gauges_of_devices_are_series() -> None:
    assert all(metric in rolled(RollUp.GAUGE) for metric in DEVICE if metric.series)


def test_each_series_has_a_unit_and_a_remedy_for_when_it_was_not_measured() -> None:
    assert all(series.unit and series.remedy for series in SERIES.values())


def test_a_metric_without_a_label_is_shown_by_its_name_in_words() -> None:
    assert label_of("no_such_metric") == "no such metric"


def test_engines_whose_tpot_is_of_whole_requests_are_those_that_measure_no_single_token() -> None:
    names = {
        kind: metric.engine_names[0]
        for kind, adapter in ADAPTERS.items()
        for metric in adapter.histograms
        if metric.name == "tpot_s"
    }
    assert {kind for kind, name in names.items() if not re.search("inter_token|iter_token", name)} == PER_REQUEST_TPOT
