"""Roll-ups of a demo: simulated steps as the rows into which an agent's ticks are summed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table

from pertoken.agent.rows.epochs import bucket_set_id
from pertoken.demo.rows.histograms import Histogram
from pertoken.demo.rows.identities import INTERVAL_S
from pertoken.demo.simulator.arrivals import Floats, Ints
from pertoken.demo.simulator.course import Course
from pertoken.demo.simulator.devices import DeviceReadings
from pertoken.provenance import Provenance

Rows = Iterator[tuple[Any, ...]]
Columns = Mapping[str, NDArray[Any] | int | None]
_KEPT = ("ts", "revision", "whole_provenance", "busy_provenance")
"""Columns that are not summed: the first value is kept."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Buckets of one length, by their starts."""

    ts: Ints
    seconds: int

    @property
    def samples(self) -> int:
        """Ticks per bucket."""
        return self.seconds // INTERVAL_S


def device_columns(steps: Steps, shown: DeviceReadings, *, activity: bool) -> Columns:
    """Return the columns of one device's roll-up; without `activity` the device has no activity counters."""
    n, ms = steps.samples, 1000 * steps.seconds
    energy = np.round(shown.power_w * ms).astype(np.int64)
    gauges: dict[str, Floats | None] = {
        "util_1e4": shown.util * 1e4,
        "memory_used_bytes": shown.memory_bytes,
        "power_mw": shown.power_w * 1e3,
        "sm_clock_mhz": shown.sm_clock_mhz,
        "temperature_c": shown.temperature_c,
        "sm_active_1e4": shown.sm_active * 1e4 if activity else None,
        "sm_occupancy_1e4": shown.sm_occupancy * 1e4 if activity else None,
        "tensor_active_1e4": shown.tensor_active * 1e4 if activity else None,
        "dram_active_1e4": shown.dram_active * 1e4 if activity else None,
        "nvlink_rx_mib_s": shown.nvlink_mib_s if activity else None,
        "nvlink_tx_mib_s": shown.nvlink_mib_s if activity else None,
    }
    return {
        **_span(steps),
        "throttled_n": 0,
        "throttled_power_samples": 0,
        "throttled_thermal_samples": 0,
        **{f"{name}_sum": None if values is None else _whole(np.round(values) * n) for name, values in gauges.items()},
        **{f"{name}_n": 0 if values is None else None for name, values in gauges.items()},
        "energy_counter_mj": energy,
        "energy_integral_mj": np.round(energy * 1.002).astype(np.int64),
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
    }


def host_columns(steps: Steps, cpu: Floats, cpus: int, memory_bytes: Floats, tokens_s: Floats) -> Columns:
    """Return the columns of one host's roll-up; `cpu` is the share of its CPUs in use."""
    n = steps.samples
    sent = _whole(tokens_s * steps.seconds * 700)
    return {
        **_span(steps),
        "cpu_util_1e4_sum": _whole(np.round(cpu * 1e4) * n),
        "load_1e2_sum": _whole(np.round(cpu * cpus * 100) * n),
        "memory_used_bytes_sum": _whole(np.round(memory_bytes) * n),
        "network_rx_bytes": sent // 3 + 40_000 * steps.seconds,
        "network_tx_bytes": sent + 60_000 * steps.seconds,
    }


def deployment_columns(steps: Steps, course: Course) -> Columns:
    """Return the columns of one epoch's roll-up."""
    n, ms = steps.samples, 1000 * steps.seconds
    busy = np.round(course.busy * ms).astype(np.int64)
    prefill = np.round(busy * course.prefill_share).astype(np.int64)
    return {
        **_span(steps),
        "incomplete_n": 0,
        "busy_ms": busy,
        "prompt_tokens": _whole(course.prompt_tokens),
        "cached_tokens": _whole(course.cached_tokens),
        "computed_tokens": _whole(course.prompt_tokens) - _whole(course.cached_tokens),
        "generated_tokens": _whole(course.generated_tokens),
        "requests_finished": _whole(course.requests),
        "preemptions": _whole(course.preemptions),
        "running_1e2_sum": _whole(course.running * 100 * n),
        "waiting_1e2_sum": _whole(course.waiting * 100 * n),
        "kv_use_1e4_sum": _whole(course.cache_use * 1e4 * n),
        "whole_ms": ms,
        "whole_busy_ms": busy,
        "whole_provenance": int(Provenance.REPORTED),
        "busy_provenance": int(Provenance.COUNTER),
        "split_ms": busy,
        "prefill_ms": prefill,
        "decode_ms": busy - prefill,
    }


def counter_columns(course: Course, engine: str) -> dict[str, Ints]:
    """Return the increments of an engine's other counters, by name."""
    counters: dict[str, Ints] = {}
    if engine in ("vllm", "sglang"):
        counters["prefix_queries"] = _whole(course.prompt_tokens)
        counters["prefix_hits"] = _whole(course.cached_tokens)
    if engine in ("vllm", "trtllm"):
        stopped = _whole(course.requests * 0.97)
        counters['requests_finished{reason="stop"}'] = stopped
        counters['requests_finished{reason="length"}'] = _whole(course.requests) - stopped
    counters["requests_failed"] = _whole(course.lost)
    return counters


def hourly(columns: Columns, first: int, hours: int) -> Columns:
    """Return columns of minutes summed to whole hours, from the minute `first` on."""
    by_hours: dict[str, NDArray[Any] | int | None] = {}
    for name, value in columns.items():
        if value is None or (isinstance(value, int) and (name in _KEPT or (name.endswith("_n") and value == 0))):
            by_hours[name] = value
        elif isinstance(value, int):
            by_hours[name] = 60 * value
        else:
            by_hour = value[first : first + 60 * hours].reshape(hours, 60)
            by_hours[name] = by_hour[:, 0] if name == "ts" else by_hour.sum(axis=1)
    return by_hours


def table_rows(table: Table, owner: int, columns: Columns) -> Rows:
    """Yield rows of a roll-up table of one owner, in the order of the table's columns."""
    owner_column = next(iter(table.primary_key)).name
    ts = columns["ts"]
    assert isinstance(ts, np.ndarray)
    n = len(ts)
    values: list[list[Any]] = []
    for column in table.columns:
        value = owner if column.name == owner_column else 1 if column.name == "revision" else columns.get(column.name)
        values.append(value.tolist() if isinstance(value, np.ndarray) else [value] * n)
    return zip(*values, strict=True)


def histogram_rows(epoch_id: int, ts: Ints, histograms: Sequence[Histogram]) -> Rows:
    """Yield rows of the roll-up of histograms, without empty buckets."""
    for histogram in histograms:
        at, bucket = np.nonzero(histogram.counts)
        counts = histogram.counts[at, bucket]
        names, set_id = histogram.metric, bucket_set_id(histogram.bounds)
        for step, bucket_index, count in zip(ts[at].tolist(), bucket.tolist(), counts.tolist(), strict=True):
            yield epoch_id, step, names, set_id, bucket_index, count, 1


def counter_rows(epoch_id: int, ts: Ints, counters: Mapping[str, Ints]) -> Rows:
    """Yield rows of the roll-up of other counters, without zero increments."""
    for name, deltas in counters.items():
        some = np.flatnonzero(deltas)
        for step, delta in zip(ts[some].tolist(), deltas[some].tolist(), strict=True):
            yield epoch_id, step, name, delta, 1


def _span(steps: Steps) -> dict[str, NDArray[Any] | int | None]:
    ms = 1000 * steps.seconds
    return {"ts": steps.ts, "duration_ms": ms, "observed_ms": ms, "samples": steps.samples}


def _whole(values: Floats) -> Ints:
    return np.asarray(np.round(values), dtype=np.int64)
