"""The course of a host or deployment over a window, from a recorded database."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.course.course import Course, Subject, changes, read_course
from pertoken.window.inventory import Inventory
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B, seed
from tests.window.conftest import END, MINUTES


def inventory(where: StoreLocation) -> Inventory:
    with open_store(where).read() as connection:
        return Window(connection, END - 1800, END).inventory


def course(
    where: StoreLocation, subject: Subject, window_s: int = 1800, end: int = END, *, dated: bool = False
) -> Course:
    with open_store(where).read() as connection:
        return read_course(connection, subject, end - window_s, end, dated=dated)


def test_a_deployment_has_a_value_for_each_minute_it_was_observed(recorded_db: StoreLocation) -> None:
    (deployment_id,) = inventory(recorded_db).newest
    curve = course(recorded_db, Subject("deployment", deployment_id))
    assert (curve.slice_s, len(curve.series["generated_tok_s"])) == (60, MINUTES)
    assert curve.series["generated_tok_s"][-1] == pytest.approx(LOW_BATCH_70B.generated_tok_s, rel=0.02)
    assert curve.series["running"][-1] == pytest.approx(LOW_BATCH_70B.running, rel=0.1)
    assert curve.series["kv_use"][-1] == pytest.approx(LOW_BATCH_70B.kv_use)
    assert curve.series["power_w"][-1] == pytest.approx(2 * LOW_BATCH_70B.power_w)
    ttft = curve.series["ttft_p95"][-1]
    assert ttft is not None and ttft > 0
    assert curve.models == (LOW_BATCH_70B.model,)
    assert curve.generated_tokens > 0


def test_a_host_has_all_of_its_devices(recorded_db: StoreLocation) -> None:
    (host_id,) = inventory(recorded_db).host
    curve = course(recorded_db, Subject("host", host_id))
    watts = curve.series["power_w"][-1]
    assert watts is not None and watts > 2 * LOW_BATCH_70B.power_w
    assert curve.energy_kwh is None or curve.energy_kwh > 0


def test_a_longer_window_has_longer_slices_and_gaps_before_the_first_row(recorded_db: StoreLocation) -> None:
    (deployment_id,) = inventory(recorded_db).newest
    curve = course(recorded_db, Subject("deployment", deployment_id), 6 * 3600)
    values = curve.series["generated_tok_s"]
    assert (curve.slice_s, len(values)) == (300, 72)
    assert values[0] is None
    assert values[-1] is not None


def test_minutes_without_a_readable_page_are_gaps(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=20, end_ts=END, unread=(10, 11, 12))
    (deployment_id,) = inventory(where).newest
    values = course(where, Subject("deployment", deployment_id), 1200).series["generated_tok_s"]
    assert None in values[8:13]
    assert values[5] is not None and values[15] is not None


def test_nothing_later_than_the_instant_asked_for_is_read(recorded_db: StoreLocation) -> None:
    (deployment_id,) = inventory(recorded_db).newest
    curve = course(recorded_db, Subject("deployment", deployment_id), 600, END - 600, dated=True)
    assert curve.end_ts == END - 600
    assert all(mark.ts <= END - 600 for mark in curve.marks)


def test_the_start_of_an_epoch_is_a_mark(recorded_db: StoreLocation) -> None:
    (deployment_id,) = inventory(recorded_db).newest
    marks = course(recorded_db, Subject("deployment", deployment_id), 7200).marks
    assert [mark.text for mark in marks if mark.kind == "epoch"] == [f"{LOW_BATCH_70B.model}: first seen"]


def test_a_changed_knob_is_named_at_the_start_of_its_epoch() -> None:
    first = SimpleNamespace(start_ts=1, served_model="m", knobs='{"tp": 1}', engine_version="0.1")
    second = SimpleNamespace(start_ts=2, served_model="m", knobs='{"tp": 2, "seqs": 9}', engine_version="0.2")
    texts = [mark.text for mark in changes((first, second))]
    assert texts == ["m: first seen", "m: seqs not set → 9, tp 1 → 2, version 0.1 → 0.2"]


def test_a_missing_series_has_an_empty_course(recorded_db: StoreLocation) -> None:
    curve = course(recorded_db, Subject("deployment", 1))
    assert set(curve.series["generated_tok_s"]) == {None}
    assert curve.marks == ()
