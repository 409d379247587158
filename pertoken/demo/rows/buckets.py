"""Roll-ups of a demo: what the simulator computed of each step, as the rows that an agent's ticks add up to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table

from pertoken.agent.rows.engine_ids import bucket_set_id
from pertoken.demo.rows.histograms import Histogram
from pertoken.demo.rows.identities import INTERVAL_S
from pertoken.demo.simulator.arrivals import Floats, Ints
from pertoken.demo.simulator.course import Course
from pertoken.demo.simulator.devices import Shown
from pertoken.provenance import Provenance

Rows = Iterator[tuple[Any, ...]]
Columns = Mapping[str, NDArray[Any] | int | None]
_KEPT = ("ts", "revision", "whole_provenance", "busy_provenance")
"""Columns that are not added up: their first value, or their greatest."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Buckets of one length: where they begin."""

    ts: Ints
    seconds: int

    @property
    def samples(self) -> int:
        """Ticks of each."""
        return self.seconds // INTERVAL_S


def device_columns(steps: Steps, shown: Shown, *, activity: bool) -> Columns:
    """Return the columns of one device's roll-up; without `activity` it is older than its counters."""
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


def deployment_columns(steps: Steps, of: Course) -> Columns:
    """Return the columns of one epoch's roll-up."""
    n, ms = steps.samples, 1000 * steps.seconds
    busy = np.round(of.busy * ms).astype(np.int64)
    return {
        **_span(steps),
        "incomplete_n": 0,
        "busy_ms": busy,
        "prompt_tokens": _whole(of.prompt_tokens),
        "cached_tokens": _whole(of.cached_tokens),
        "computed_tokens": _whole(of.prompt_tokens) - _whole(of.cached_tokens),
        "generated_tokens": _whole(of.generated_tokens),
        "requests_finished": _whole(of.requests),
        "preemptions": _whole(of.preemptions),
        "running_1e2_sum": _whole(of.running * 100 * n),
        "waiting_1e2_sum": _whole(of.waiting * 100 * n),
        "kv_use_1e4_sum": _whole(of.cache_use * 1e4 * n),
        "whole_ms": ms,
        "whole_busy_ms": busy,
        "whole_provenance": int(Provenance.REPORTED),
        "busy_provenance": int(Provenance.COUNTER),
    }


def counter_columns(of: Course, engine: str) -> dict[str, Ints]:
    """Return what further counters of an engine rose by, by their name."""
    found: dict[str, Ints] = {}
    if engine in ("vllm", "sglang"):
        found["prefix_queries"] = _whole(of.prompt_tokens)
        found["prefix_hits"] = _whole(of.cached_tokens)
    if engine in ("vllm", "trtllm"):
        stopped = _whole(of.requests * 0.97)
        found['requests_finished{reason="stop"}'] = stopped
        found['requests_finished{reason="length"}'] = _whole(of.requests) - stopped
    found["requests_failed"] = _whole(of.lost)
    return found


def hourly(columns: Columns, first: int, hours: int) -> Columns:
    """Return columns by the minute as those of whole hours, from the minute `first` on."""
    found: dict[str, NDArray[Any] | int | None] = {}
    for name, value in columns.items():
        if value is None or (isinstance(value, int) and (name in _KEPT or (name.endswith("_n") and value == 0))):
            found[name] = value
        elif isinstance(value, int):
            found[name] = 60 * value
        else:
            by_hour = value[first : first + 60 * hours].reshape(hours, 60)
            found[name] = by_hour[:, 0] if name == "ts" else by_hour.sum(axis=1)
    return found


def table_rows(table: Table, owner: int, columns: Columns) -> Rows:
    """Yield rows of a roll-up table of one owner, with its columns in their order."""
    owner_column = next(iter(table.primary_key)).name
    ts = columns["ts"]
    assert isinstance(ts, np.ndarray)
    n = len(ts)
    values: list[list[Any]] = []
    for column in table.columns:
        value = owner if column.name == owner_column else 1 if column.name == "revision" else columns.get(column.name)
        values.append(value.tolist() if isinstance(value, np.ndarray) else [value] * n)
    return zip(*values, strict=True)


def histogram_rows(epoch_id: int, ts: Ints, found: Sequence[Histogram]) -> Rows:
    """Yield rows of the roll-up of histograms: of buckets in which something was observed."""
    for each in found:
        at, bucket = np.nonzero(each.counts)
        counts = each.counts[at, bucket]
        names, set_id = each.metric, bucket_set_id(each.bounds)
        for step, place, count in zip(ts[at].tolist(), bucket.tolist(), counts.tolist(), strict=True):
            yield epoch_id, step, names, set_id, place, count, 1


def counter_rows(epoch_id: int, ts: Ints, found: Mapping[str, Ints]) -> Rows:
    """Yield rows of the roll-up of further counters: of buckets in which one rose."""
    for name, deltas in found.items():
        some = np.flatnonzero(deltas)
        for step, delta in zip(ts[some].tolist(), deltas[some].tolist(), strict=True):
            yield epoch_id, step, name, delta, 1


def _span(steps: Steps) -> dict[str, NDArray[Any] | int | None]:
    ms = 1000 * steps.seconds
    return {"ts": steps.ts, "duration_ms": ms, "observed_ms": ms, "samples": steps.samples}


def _whole(values: Floats) -> Ints:
    return np.asarray(np.round(values), dtype=np.int64)
