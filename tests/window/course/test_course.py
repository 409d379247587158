"""The course of a host or deployment over a window, from a recorded database."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pertoken.catalog.market import load_market
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.schema.rows import DeploymentSample, DeviceSample
from pertoken.store.write.writer import Writer
from pertoken.window.course import PLOTTED_OF_DEPLOYMENTS, Course, Subject, changes, read_course
from pertoken.window.figures import newest
from pertoken.window.inventory import Inventory
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store, tick
from tests.window.conftest import END, MINUTES
from tests.window.test_evidence import DEPLOYMENT, ENGINE, EPOCH, GPU


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
    assert curve.series["running"][-1] == pytest.approx(LOW_BATCH_70B.running / LOW_BATCH_70B.busy, rel=0.1)
    assert curve.series["kv_use"][-1] == pytest.approx(LOW_BATCH_70B.kv_use / LOW_BATCH_70B.busy, rel=0.1)
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
    first: Any = SimpleNamespace(start_ts=1, served_model="m", knobs='{"tp": 1}', engine_version="0.1")
    second: Any = SimpleNamespace(start_ts=2, served_model="m", knobs='{"tp": 2, "seqs": 9}', engine_version="0.2")
    texts = [mark.text for mark in changes((first, second))]
    assert texts == ["m: first seen", "m: seqs not set → 9, tp 1 → 2, version 0.1 → 0.2"]


def test_a_missing_series_has_an_empty_course(recorded_db: StoreLocation) -> None:
    curve = course(recorded_db, Subject("deployment", 1))
    assert set(curve.series["generated_tok_s"]) == {None}
    assert curve.marks == ()


def test_a_plot_of_a_steady_hour_has_the_figures_of_the_evidence(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END)
    (deployment_id,) = inventory(where).newest
    with open_store(where).read() as connection:
        window = Window(connection, END - 3600, END)
        seen = window.evidence(load_market()).of_deployments([deployment_id])
        deployment, host = (
            read_course(connection, subject, END - 3600, END)
            for subject in (Subject("deployment", deployment_id), Subject("host", *window.inventory.host))
        )
        line_running = newest(window.recent().of(deployment_id), "running")
    assert seen.running.mean == pytest.approx(3.333, abs=0.001)
    for name in (*PLOTTED_OF_DEPLOYMENTS, "power_w", "device_util"):
        measured = seen.peek(name)
        assert measured is not None
        values = [value for value in deployment.series[name] if value is not None]
        assert sum(values) / 60 == pytest.approx(measured.mean)
        assert len(values) == 60 and max(values) == pytest.approx(measured.max)
    for name in PLOTTED_OF_DEPLOYMENTS:
        assert host.series[name] == pytest.approx(list(deployment.series[name]))
    # A table shows the gauge of the newest minute, idle time included, which it labels "now".
    assert line_running == pytest.approx(2.0)


def test_minutes_without_work_are_gaps_of_what_is_taken_while_busy(tmp_path: Path) -> None:
    rows = {"busy_ms": 0, "running_1e2": 0, "waiting_1e2": 0, "generated_tokens": 0, "busy_provenance": 0}
    busy = {**rows, "busy_ms": 30_000, "running_1e2": 200, "generated_tokens": 600}
    values = served_course(tmp_path, [[sample(9, **busy)], [sample(9, **rows)]] * 5)
    assert values["running"] == (4.0, None) * 5
    assert values["waiting"] == (0.0,) * 10
    assert values["generated_tok_s"] == (10.0, 0.0) * 5


def test_a_gpu_that_is_lost_leaves_the_power_of_the_others(tmp_path: Path) -> None:
    both = [DeviceSample(5, 0, 60_000, 60_000, power_mw=300_000), DeviceSample(6, 0, 60_000, 60_000, power_mw=200_000)]
    values = served_course(tmp_path, [both, both, both[:1], both[:1]])
    assert values["power_w"] == (500.0, 500.0, 300.0, 300.0)


def test_a_deployment_without_a_gauge_leaves_that_of_the_others_on_its_host(tmp_path: Path) -> None:
    counts = {"busy_ms": 60_000, "busy_provenance": 0, "generated_tokens": 600}
    values = served_course(tmp_path, [[sample(9, running_1e2=300, **counts), sample(19, **counts)]] * 4)
    assert values["running"] == (3.0,) * 4
    assert values["generated_tok_s"] == (20.0,) * 4
    assert values["kv_use"] == (None,) * 4


def sample(epoch_id: int, **values: int) -> DeploymentSample:
    return DeploymentSample(epoch_id, 0, 60_000, 60_000, True, **values)


def served_course(folder: Path, minutes: Sequence[Sequence[Any]]) -> Mapping[str, Sequence[float | None]]:
    """Return the series of a host with two GPUs and two deployments, after minutes with these samples."""
    where, end = new_store(folder), END // 60 * 60
    engines = (ENGINE, replace(ENGINE, engine_id=17, base_url="http://127.0.0.1:8001", port=8001))
    deployments = (DEPLOYMENT, replace(DEPLOYMENT, deployment_id=18, engine_id=17, served_model="other"))
    epochs = (
        replace(EPOCH, start_ts=end - 3600, device_ids=(5,)),
        replace(EPOCH, epoch_id=19, deployment_id=18, start_ts=end - 3600, device_ids=(6,)),
    )
    devices = (GPU, replace(GPU, device_id=6, uuid="GPU-6", slot=1))
    known = {"engines": engines, "deployments": deployments, "epochs": epochs, "devices": devices}
    with Writer(where) as writer:
        for n, samples in enumerate(minutes, 1):
            ts = end - 60 * (len(minutes) - n)
            stamped = [row._replace(ts=ts) if isinstance(row, DeviceSample) else replace(row, ts=ts) for row in samples]
            writer.commit(tick(ts, *stamped, **known))
        writer.roll_up()
    (host_id,) = inventory(where).host
    return course(where, Subject("host", host_id), 60 * len(minutes), end).series
