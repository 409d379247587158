"""Columns of the fleet: stale, unpriced and bounded figures are marked."""

from dataclasses import replace

import pytest

from pertoken.text.columns import Column, arranged
from pertoken.text.fleet import (
    advice_counts,
    deployment_columns,
    device_columns,
    host_columns,
    host_use_columns,
    label,
    staleness,
)
from tests.tui.reports import BARE, CHAT, RESTARTED, RICH, SILENT


def cells(columns: tuple[Column[object], ...], line: object) -> dict[str, str]:
    return {column.name: column.text(line) for column in columns}


def of_deployment(line: object) -> dict[str, str]:
    return cells(deployment_columns(RICH), line)  # type: ignore[arg-type]


def test_a_line_is_stale_after_two_ticks_of_its_host() -> None:
    stale = staleness(RICH)
    assert not stale(replace(CHAT, age_s=20)) and stale(replace(CHAT, age_s=21)) and stale(replace(CHAT, age_s=None))
    assert staleness(RICH, older_s=16.5)(replace(CHAT, age_s=4)), "a report ages until the next one is read"
    unknown = replace(CHAT, host="not in the report")
    assert not stale(replace(unknown, age_s=120)) and stale(replace(unknown, age_s=121))


def test_a_price_that_is_an_upper_bound_and_a_part_of_the_window_are_marked() -> None:
    assert (of_deployment(CHAT)["$/Mtok"], of_deployment(RESTARTED)["$/Mtok"]) == ("$0.230", "$8.11*")
    assert (of_deployment(CHAT)["seen"], of_deployment(RESTARTED)["seen"]) == ("99%", "61%")
    assert of_deployment(replace(CHAT, coverage=1.0))["seen"] == ""
    assert of_deployment(replace(CHAT, busy_provenance="bound"))["busy"] == "≤87%"


def test_a_value_that_an_engine_does_not_report_is_a_dash_with_the_fault_named() -> None:
    silent = of_deployment(SILENT)
    assert (silent["run/wait now"], silent["state"]) == ("–", "fault, stale 3m")


@pytest.mark.parametrize(("report", "named"), [(RICH, True), (BARE, False)])
def test_hosts_are_named_where_there_is_more_than_one(report: object, named: bool) -> None:
    for columns in (deployment_columns(report), device_columns(report)):  # type: ignore[arg-type]
        assert ("host" in {column.name for column in columns}) is named


def test_an_unused_device_is_used_by_nothing_and_unknown_use_is_a_dash() -> None:
    device = RICH.devices[1]
    assert label(device).endswith("#1")
    columns = device_columns(RICH)
    assert cells(columns, replace(device, held_by=()))["used by"] == "nothing"  # type: ignore[arg-type]
    assert cells(columns, replace(device, held_by=None))["used by"] == "–"  # type: ignore[arg-type]


def test_a_stale_row_has_no_present_figure_in_any_table_and_keeps_those_of_the_window() -> None:
    deployment = cells(deployment_columns(RICH, older_s=60.0), CHAT)  # type: ignore[arg-type]
    assert {deployment[name] for name in ("tok/s", "run/wait now", "power")} == {"–"}
    assert (deployment["state"], deployment["$/Mtok"], deployment["busy"]) == ("stale 64s", "$0.230", "87%")
    device = cells(device_columns(RICH, older_s=60.0), RICH.devices[0])  # type: ignore[arg-type]
    assert {device[name] for name in ("util", "SM", "mem BW", "power", "memory", "$/hour")} == {"–"}
    assert device["used by"] == CHAT.model
    host = cells(host_use_columns(RICH, advice_counts((), RICH), older_s=60.0), RICH.uses[0])  # type: ignore[arg-type]
    assert {host[name] for name in ("util", "SM", "mem BW", "power", "tok/s", "$/hour", "CPU")} == {"–"}
    assert host["$/Mtok"] == "$0.230"


def test_stale_rows_are_sorted_last_whatever_they_last_used() -> None:
    columns = device_columns(RICH)
    stale, fresh = replace(RICH.devices[0], age_s=190, util=0.99), replace(RICH.devices[1], util=0.1)
    assert arranged([stale, fresh], columns, "util", turned=False) == [fresh, stale]


def test_details_keep_the_figures_of_the_last_reading() -> None:
    device = cells(device_columns(RICH, older_s=60.0, last=True), RICH.devices[0])  # type: ignore[arg-type]
    assert (device["state"], device["util"], device["power"]) == ("stale 64s", "83%", "512 W")
    host = cells(host_columns(RICH, older_s=60.0, last=True), RICH.hosts[0])  # type: ignore[arg-type]
    assert (host["CPU"], host["agent memory"]) == ("12%", "61 MiB")
