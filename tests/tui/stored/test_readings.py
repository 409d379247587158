"""Readings of the screens from a database, also while parts of it are missing."""

from pathlib import Path

import pytest

from pertoken.errors import StoreError
from pertoken.migrations import upgrade
from pertoken.store.connect.location import locate
from pertoken.tui.store_source import StoreSource
from tests.scenario import LOW_BATCH_70B, seed

END = 1_800_000_000


def test_the_source_returns_the_fleet_the_hours_and_the_place_as_of_an_instant(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    source = StoreSource(where, as_of=END)
    assert source.describe() == str(tmp_path / "db")
    report = source.fleet(1800)
    assert (report.now_ts, report.window_s, len(report.devices), len(report.deployments)) == (END, 1800, 2, 1)
    (model,) = source.hours()
    assert model.model == LOW_BATCH_70B.model
    assert source.advice() == ()


def test_a_database_that_appears_later_is_opened_then(tmp_path: Path) -> None:
    where = locate(str(tmp_path / "db"))
    source = StoreSource(where)
    with pytest.raises(StoreError):
        source.fleet(3600)
    upgrade(where, "telemetry")
    assert source.fleet(3600).hosts == ()
    assert source.advice() == ()  # there is no database of advice yet
    upgrade(where, "advice")
    assert source.advice() == ()
