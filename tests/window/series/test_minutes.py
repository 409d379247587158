"""Minutes that a forecast is calibrated on: steady ones, spread over loads."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pertoken.evidence import OperatingPoint
from pertoken.metrics import SERIES
from pertoken.provenance import Provenance
from pertoken.store.query.buckets import NULL, SEPARATOR
from pertoken.window.columns import Columns, columns
from pertoken.window.evidence import MAX_POINTS, operating_points
from pertoken.window.series import GroupedRows, Needed, Points, observe

NAMES = (
    *("epoch_id", "ts", "observed_ms", "busy_ms", "busy_provenance", "prompt_tokens", "cached_tokens"),
    *("generated_tokens", "requests_finished", "running_1e2_sum", "running_1e2_n"),
)


def minutes(*given: dict[str, Any]) -> Columns:
    usual = {
        **{"epoch_id": 1, "observed_ms": 60_000, "busy_ms": 60_000, "busy_provenance": int(Provenance.COUNTER)},
        **{"prompt_tokens": 8_000, "cached_tokens": 2_000, "generated_tokens": 2_000, "requests_finished": 20},
        **{"running_1e2_sum": 2_400, "running_1e2_n": 6},
    }
    rows = [{**usual, "ts": 60 * n, **columns} for n, columns in enumerate(given)]
    texts = [SEPARATOR.join(str(NULL if row[name] is None else row[name]) for row in rows) for name in NAMES]
    return columns(NAMES, [texts])


def points_of(
    rows: Columns, activity: Mapping[str, Points | None], generated_len: float | None
) -> tuple[OperatingPoint, ...]:
    """Return the operating points of rows, with their running requests as observations."""
    timed = np.column_stack((rows.values, np.full(len(rows), 60_000)))
    columns_by_name = {**rows.index, "duration_ms": len(rows.index)}
    grouped = GroupedRows(Columns(columns_by_name, timed), [(1,)], Needed.RUNNING)
    running = observe(SERIES["running"].computation, grouped).points(0)
    return operating_points(rows, {**activity, "running": running}, generated_len)


def test_a_minute_gives_its_batch_its_time_per_token_and_its_lengths() -> None:
    (point,) = points_of(minutes({}), {}, None)
    assert point.running == 4 and point.token_s == pytest.approx(4 * 60 / 2_000)
    assert (point.prompt_len, point.generated_len, point.cached_share) == (400, 100, 0.25)
    assert point.ttft_s is None and not point.probed


def test_running_requests_are_averaged_over_busy_time_alone() -> None:
    (point,) = points_of(minutes({"busy_ms": 30_000, "running_1e2_sum": 1_200}), {}, None)
    assert point.running == 4 and point.token_s == pytest.approx(4 * 30 / 2_000)


def test_minutes_that_show_no_steady_load_are_left_out() -> None:
    odd: list[dict[str, Any]] = [
        {"busy_ms": 20_000},
        {"generated_tokens": 40},
        {"generated_tokens": None},
        {"running_1e2_sum": None, "running_1e2_n": 0},
        {"observed_ms": 3_600_000, "busy_ms": 3_600_000},
        {"busy_provenance": int(Provenance.BOUND), "running_1e2_sum": 300},
    ]
    assert points_of(minutes(*odd), {}, 100) == ()
    assert points_of(minutes({"requests_finished": 0}), {}, None) == ()


def test_a_rare_load_is_kept_among_many_like_minutes() -> None:
    rare: dict[str, Any] = {"running_1e2_sum": 60 * 2_400, "generated_tokens": 40_000}
    points = points_of(minutes(rare, *({} for _ in range(300))), {}, None)
    assert len(points) == MAX_POINTS
    assert points[0].ts == 0 and points[0].running == 240
    assert [point.ts for point in points] == sorted(point.ts for point in points)
    assert points[1].ts == 60 * (300 - MAX_POINTS + 2)


def test_activity_of_the_devices_is_that_of_the_busy_time_and_unknown_where_it_was_not_read() -> None:
    dram = Points(np.array([0]), np.array([0.3]), np.array([60.0]), Provenance.REPORTED)
    both = points_of(minutes({"busy_ms": 30_000}, {}), {"dram_active": dram, "tensor_active": None}, None)
    assert [point.memory_active for point in both] == [pytest.approx(0.6), None]
    assert both[0].gemm_active is None
