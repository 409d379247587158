"""Rows of a demo, as an agent would have stored them: identities, roll-ups of the past, and the newest ticks.

- `histograms`: counts by bucket of each engine's histograms.
- `host_rows` and `engine_rows`: hosts, devices, engines, deployments and epochs.
- `BucketSteps` and the functions after it: roll-ups by the minute and by the hour.
- `HostColumns`: all columns of one host, as rows of its roll-ups, or as ticks, which the store rolls up itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from sqlalchemy import Table

from pertoken import __version__
from pertoken.agent.rows.epochs import bucket_set_id
from pertoken.catalog.market import Accelerator, Market
from pertoken.demo.fleet import DrawnEngine, DrawnFleet, DrawnHost
from pertoken.demo.simulator import DeviceReadings, EngineCourse, Floats, Ints, traces
from pertoken.metrics import DEVICE
from pertoken.provenance import Provenance
from pertoken.state.deployment import Deployment
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import (
    AgentSample,
    Capability,
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    HistogramSample,
    HostRow,
    HostSample,
    Tick,
)
from pertoken.store.schema.shared import DEMO_MACHINE, stable_id
from pertoken.units import SHARE

Bounds = tuple[float, ...]
_TTFT: Bounds = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TPOT: Bounds = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_LONG: Bounds = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0),
    *(1920.0, 7680.0),
)
_TOKEN_BOUNDS: Bounds = (
    *(1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0),
)
"""Bounds of vLLM 0.32, from a captured page of a model with a context of 32k tokens."""
OF_ENGINE: Mapping[str, tuple[str, ...]] = {
    "vllm": ("ttft_s", "tpot_s", "e2e_s", "queue_s", "prompt_len", "generated_len", "max_tokens"),
    "sglang": ("ttft_s", "tpot_s", "e2e_s", "queue_s", "prompt_len", "generated_len"),
    "trtllm": ("ttft_s", "tpot_s", "e2e_s", "queue_s"),
}
"""Histograms that each engine exposes."""
STEEP, FLAT = 5.0, 3.0
"""Exponents of the log-logistic distributions of times: per token, and per request."""
ALLOWED = 1.25
"""Output limit that clients set, as a multiple of the p99 of a trace's outputs."""


@dataclass(frozen=True, slots=True)
class SimulatedHistogram:
    """Counts of one metric, shape (steps, buckets); the last bucket is above all bounds."""

    metric: str
    bounds: Bounds
    counts: Ints


def histograms(
    engine: str, course: EngineCourse, trace: str, prompt_len: Floats, generated_len: Floats
) -> list[SimulatedHistogram]:
    """Return the histograms that an engine exposes, for each step."""
    n, tokens = course.requests, course.generated_tokens
    lengths = traces()[trace]
    makers = {
        "ttft_s": lambda: _times("ttft_s", _TTFT, course.ttft_s, n, FLAT),
        "tpot_s": lambda: _times("tpot_s", _TPOT, course.tpot_s, tokens, STEEP),
        "e2e_s": lambda: _times("e2e_s", _LONG, course.e2e_s, n, FLAT),
        "queue_s": lambda: _times("queue_s", _LONG, np.maximum(course.queue_s, 1e-3), n, FLAT),
        "prompt_len": lambda: _lengths("prompt_len", lengths.prompt_len, prompt_len, n),
        "generated_len": lambda: _lengths("generated_len", lengths.generated_len, generated_len, n),
        "max_tokens": lambda: _lengths(
            "max_tokens", np.full(2, ALLOWED * float(np.quantile(lengths.generated_len, 0.99))), generated_len, n
        ),
    }
    return [makers[name]() for name in OF_ENGINE.get(engine, ())]


def _times(metric: str, bounds: Bounds, mean: Floats, n: Floats, steep: float) -> SimulatedHistogram:
    """Return log-logistically distributed observations with a given mean."""
    median = mean * np.sin(np.pi / steep) / (np.pi / steep)
    below = 1 / (1 + (np.array(bounds)[None, :] / median[:, None]) ** -steep)
    return SimulatedHistogram(metric, bounds, _counts(below, n))


def _lengths(metric: str, quantiles: Floats, mean: Floats, n: Floats) -> SimulatedHistogram:
    """Return lengths distributed as in a trace, scaled to a mean."""
    ends = np.linspace(0, 1, len(quantiles))
    below = np.interp(np.array(_TOKEN_BOUNDS)[None, :] / mean[:, None], np.sort(quantiles), ends, left=0.0, right=1.0)
    return SimulatedHistogram(metric, _TOKEN_BOUNDS, _counts(below, n))


def _counts(below: Floats, n: Floats) -> Ints:
    """Return counts by bucket with the sum `n`, from the share below each bound."""
    rounded = np.round(below * n[:, None]).astype(np.int64)
    edges = np.column_stack((np.zeros(len(n), np.int64), rounded, n.astype(np.int64)))
    return np.diff(edges, axis=1)


def machine_id(host: str) -> str:
    """Return the machine id of a generated host."""
    return DEMO_MACHINE + host


def is_demo(machine_id: str | None) -> bool:
    """Return whether a host's machine id is that of a generated host."""
    return (machine_id or "").startswith(DEMO_MACHINE)


INTERVAL_S = 10
DRIVER_VERSION = "580.95.05"
_KNOBS = (
    *("tp", "pp", "dp", "weight_dtype", "kv_dtype", "max_num_seqs", "max_num_batched_tokens", "max_model_len"),
    *("gpu_memory_utilization", "enable_chunked_prefill", "enable_prefix_caching", "enforce_eager"),
    *("num_speculative_tokens",),
)
_SINCE_HOPPER = frozenset(("Hopper", "Blackwell"))
_ACTIVITY = tuple(row.stored for row in DEVICE if "GPM" in row.remedy)


@dataclass(frozen=True)
class HostRows:
    """Rows of one host of the fleet."""

    drawn: DrawnHost
    accelerator: Accelerator
    boot_ms: int

    @cached_property
    def host_id(self) -> int:
        """Stable id of the host."""
        return stable_id("host", machine_id(self.drawn.name))

    @cached_property
    def row(self) -> HostRow:
        """Row of the identity table."""
        host_type = self.drawn.host_type
        return HostRow(
            host_id=self.host_id,
            name=self.drawn.name,
            machine_id=machine_id(self.drawn.name),
            boot_id=f"{stable_id('boot', self.drawn.name) & (2**64 - 1):016x}",
            boot_ms=self.boot_ms,
            os="Ubuntu 24.04.3 LTS",
            cpu_name="AMD EPYC 9354 32-Core Processor" if host_type.owned else "AMD EPYC 7R13 Processor",
            cpu_count=host_type.cpus,
            memory_bytes=host_type.memory_gib * 2**30,
            agent_version=__version__,
            interval_s=INTERVAL_S,
            dmi_vendor="Supermicro" if host_type.owned else "Amazon EC2",
            dmi_product="AS-4125GS" if host_type.owned else host_type.instance_type,
            cloud=host_type.provider,
            instance_type=host_type.instance_type,
            region=host_type.region,
            purchase=host_type.purchase,
        )

    @cached_property
    def devices(self) -> tuple[DeviceRow, ...]:
        """Its accelerators, by slot."""
        name = self.accelerator.reported_names[0]
        uuids = [f"GPU-{_uuid(self.drawn.name, slot)}" for slot in range(self.drawn.host_type.devices)]
        links = _links(self.accelerator, uuids)
        return tuple(
            DeviceRow(
                device_id=stable_id("device", uuid),
                host_id=self.host_id,
                kind="gpu",
                uuid=uuid,
                vendor=self.accelerator.vendor,
                name=name,
                slot=slot,
                memory_bytes=self.accelerator.memory_bytes,
                power_limit_mw=round(1000 * (self.accelerator.tdp_w or 300)),
                driver_version=DRIVER_VERSION,
                pci_bus_id=f"00000000:{0x11 + 0x10 * slot:02X}:00.0",
                power_source="average, gpu",
                energy_source="gpu",
                links=links.get(uuid),
            )
            for slot, uuid in enumerate(uuids)
        )

    @property
    def shows_activity(self) -> bool:
        """Whether its devices have the activity counters of Hopper and later GPUs."""
        return self.accelerator.arch.split("+")[0] in _SINCE_HOPPER

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        """Metrics that its devices do not have, with the reason."""
        if self.shows_activity:
            return ()
        reason, remedy = "this GPU has no GPM (it needs Hopper or newer)", "use DCGM's profiling fields instead"
        return tuple(
            Capability(device.device_id, metric, "unsupported", reason, remedy)
            for device in self.devices
            for metric in (*_ACTIVITY, "nvlink_rx_mib_s", "nvlink_tx_mib_s")
        )


@dataclass(frozen=True)
class EngineRows:
    """Rows of one engine and its epochs."""

    host: HostRows
    drawn: DrawnEngine
    start_ts: int
    changed_ts: int | None = None
    """Start of the present epoch; None without an earlier one."""

    @cached_property
    def engine_id(self) -> int:
        """Stable id of the engine."""
        return stable_id("engine", self.host.host_id, self.drawn.runs.engine, self.drawn.port)

    @property
    def row(self) -> EngineRow:
        """Row of the identity table."""
        runs = self.drawn.runs
        began = 1000 * (self.changed_ts or self.start_ts) - self.host.boot_ms
        life = stable_id("process", str(self.host.row.boot_id), began) & (2**62 - 1)
        return EngineRow(
            engine_id=self.engine_id,
            host_id=self.host.host_id,
            kind=runs.engine,
            base_url=f"http://127.0.0.1:{self.drawn.port}",
            port=self.drawn.port,
            pid=2000 + self.drawn.port % 1000,
            process_start_ms=began,
            version=runs.engine_version,
            found_by="process",
            life=life,
        )

    @cached_property
    def deployment_id(self) -> int:
        """Id of its one deployment."""
        return stable_id("deployment", self.engine_id, self.drawn.runs.served_model)

    @property
    def deployment(self) -> DeploymentRow:
        """Row of its deployment."""
        runs = self.drawn.runs
        return DeploymentRow(self.deployment_id, self.engine_id, self.host.host_id, runs.served_model, runs.model.name)

    @cached_property
    def epochs(self) -> tuple[EpochRow, ...]:
        """Its epochs, oldest first."""
        deployment = self.drawn.runs
        if self.drawn.previous_runs is None or self.changed_ts is None:
            return (self.epoch(deployment, self.start_ts),)
        earlier = self.epoch(self.drawn.previous_runs, self.start_ts, self.changed_ts)
        return earlier, self.epoch(deployment, self.changed_ts)

    def epoch(self, runs: Deployment, start_ts: int, end_ts: int | None = None) -> EpochRow:
        """Return the row of an epoch with the knobs and devices of `runs`."""
        knobs = {name: value for name in _KNOBS if (value := getattr(runs, name)) is not None}
        text = json.dumps({**knobs, "driver_version": DRIVER_VERSION}, sort_keys=True)
        allocated = tuple(self.host.devices[device_index].device_id for device_index in runs.device_ids)
        version = runs.engine_version
        epoch_id = stable_id("epoch", self.deployment_id, start_ts, text, version or "", *allocated)
        return EpochRow(epoch_id, self.deployment_id, start_ts, end_ts, version, text, allocated)


def host_rows(fleet: DrawnFleet, market: Market, start_ts: int) -> dict[str, HostRows]:
    """Return the rows of each host, by its name."""
    rows = {}
    for index, drawn in enumerate(fleet.hosts):
        accelerator = market.accelerator(drawn.host_type.accelerator)
        if accelerator is None:
            raise ValueError(f"fleet.toml: the catalog has no accelerator {drawn.host_type.accelerator}")
        rows[drawn.name] = HostRows(drawn, accelerator, 1000 * (start_ts - 86_400 * (2 + index % 40)))
    return rows


def engine_rows(fleet: DrawnFleet, hosts: dict[str, HostRows], start_ts: int, end_ts: int) -> list[EngineRows]:
    """Return the rows of each engine, in the order of the fleet."""
    rows = []
    for drawn in fleet.engines:
        changed = start_ts + round(drawn.changed_share * (end_ts - start_ts)) // 3600 * 3600
        rows.append(
            EngineRows(hosts[drawn.host], drawn, start_ts, changed if drawn.previous_runs is not None else None)
        )
    return rows


def _uuid(host: str, slot: int) -> str:
    text = "".join(f"{stable_id('uuid', host, slot, part) & (2**64 - 1):016x}" for part in range(2))
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:32]))


def _links(accelerator: Accelerator, uuids: list[str]) -> dict[str, str]:
    """Return the links between devices by UUID, as the agent stores them."""
    if len(uuids) < 2:
        return {}
    kind = "nvlink" if "NVLink" in accelerator.interconnect else "pcie"
    return {uuid: json.dumps({kind: [peer for peer in uuids if peer != uuid]}) for uuid in uuids}


HistogramIncrement = tuple[int, int, str, int, int, int, int]
"""(epoch, time, metric, set of buckets, bucket, count, revision), in the order of the table's columns."""
Columns = Mapping[str, Ints | int | None]
_KEPT = ("ts", "revision", "whole_provenance", "busy_provenance")
"""Columns that are not summed: the first value is kept."""


@dataclass(frozen=True, slots=True)
class BucketSteps:
    """Buckets of one length, by their starts."""

    ts: Ints
    seconds: int

    @property
    def samples(self) -> int:
        """Ticks per bucket."""
        return self.seconds // INTERVAL_S


def device_columns(steps: BucketSteps, shown: DeviceReadings, *, activity: bool) -> Columns:
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
        **_interval_columns(steps),
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


def host_columns(steps: BucketSteps, cpu: Floats, cpus: int, memory_bytes: Floats, tokens_s: Floats) -> Columns:
    """Return the columns of one host's roll-up; `cpu` is the share of its CPUs in use."""
    n = steps.samples
    sent = _whole(tokens_s * steps.seconds * 700)
    return {
        **_interval_columns(steps),
        "cpu_util_1e4_sum": _whole(np.round(cpu * 1e4) * n),
        "load_1e2_sum": _whole(np.round(cpu * cpus * 100) * n),
        "memory_used_bytes_sum": _whole(np.round(memory_bytes) * n),
        "network_rx_bytes": sent // 3 + 40_000 * steps.seconds,
        "network_tx_bytes": sent + 60_000 * steps.seconds,
    }


def deployment_columns(steps: BucketSteps, course: EngineCourse) -> Columns:
    """Return the columns of one epoch's roll-up."""
    n, ms = steps.samples, 1000 * steps.seconds
    busy = np.round(course.busy * ms).astype(np.int64)
    prefill = np.round(busy * course.prefill_share).astype(np.int64)
    return {
        **_interval_columns(steps),
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


def counter_columns(course: EngineCourse, engine: str) -> dict[str, Ints]:
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


def hourly(columns: Columns) -> Columns:
    """Return columns of the minutes of whole hours summed by hour."""
    by_hours: dict[str, Ints | int | None] = {}
    for name, value in columns.items():
        if value is None or (isinstance(value, int) and (name in _KEPT or (name.endswith("_n") and value == 0))):
            by_hours[name] = value
        elif isinstance(value, int):
            by_hours[name] = 60 * value
        else:
            by_hours[name] = value[::60] if name == "ts" else _by_hour(value)
    return by_hours


def _by_hour(minutes: Ints) -> Ints:
    """Return the sums of each 60 rows."""
    return np.asarray(minutes.reshape(-1, 60, *minutes.shape[1:]).sum(axis=1))


def table_rows(table: Table, owner: int, columns: Columns) -> Iterator[tuple[object, ...]]:
    """Yield rows of a roll-up table of one owner, in the order of the table's columns."""
    owner_column, n = next(iter(table.primary_key)).name, len(ts_of(columns))
    values: list[Sequence[object]] = []
    for column in table.columns:
        value = owner if column.name == owner_column else 1 if column.name == "revision" else columns.get(column.name)
        values.append(value.tolist() if isinstance(value, np.ndarray) else [value] * n)
    return zip(*values, strict=True)


def ts_of(columns: Columns) -> Ints:
    """Return the starts of the buckets of columns."""
    ts = columns["ts"]
    assert isinstance(ts, np.ndarray)
    return ts


def histogram_rows(epoch_id: int, ts: Ints, histograms: Sequence[SimulatedHistogram]) -> Iterator[HistogramIncrement]:
    """Yield rows of the roll-up of histograms, without empty buckets."""
    for histogram in histograms:
        step_index, bucket = np.nonzero(histogram.counts)
        counts = histogram.counts[step_index, bucket]
        metric, set_id = histogram.metric, bucket_set_id(histogram.bounds)
        for step, bucket_index, count in zip(ts[step_index].tolist(), bucket.tolist(), counts.tolist(), strict=True):
            yield epoch_id, step, metric, set_id, bucket_index, count, 1


def counter_rows(epoch_id: int, ts: Ints, counters: Mapping[str, Ints]) -> Iterator[tuple[int, int, str, int, int]]:
    """Yield rows of the roll-up of other counters, without zero increments."""
    for name, deltas in counters.items():
        nonzero = np.flatnonzero(deltas)
        for step, delta in zip(ts[nonzero].tolist(), deltas[nonzero].tolist(), strict=True):
            yield epoch_id, step, name, delta, 1


def _interval_columns(steps: BucketSteps) -> Columns:
    ms = 1000 * steps.seconds
    return {"ts": steps.ts, "duration_ms": ms, "observed_ms": ms, "samples": steps.samples}


def _whole(values: Floats) -> Ints:
    return np.asarray(np.round(values), dtype=np.int64)


Sample = (
    HostSample | AgentSample | DeviceSample | DeploymentSample | DeviceShare | HistogramSample | EngineCounterSample
)
PER_MINUTE = 60 // INTERVAL_S
_INTERVAL_MS = 1000 * INTERVAL_S
_GAUGES = (
    *("util_1e4", "memory_used_bytes", "power_mw", "sm_clock_mhz", "temperature_c", "sm_active_1e4"),
    *("sm_occupancy_1e4", "tensor_active_1e4", "dram_active_1e4", "nvlink_rx_mib_s", "nvlink_tx_mib_s"),
)
_TOKENS = (
    *("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished", "preemptions"),
)


@dataclass(frozen=True, slots=True)
class HostColumns:
    """Columns of all roll-ups of one host."""

    host_rows: HostRows
    host: Columns
    devices: Mapping[int, Sequence[Columns]]
    """By device id, one for each epoch that held it."""
    deployments: Mapping[int, Columns]
    """By epoch id, as histograms and counters are."""
    histograms: Mapping[int, Sequence[SimulatedHistogram]]
    counters: Mapping[int, Mapping[str, Ints]]

    def within(self, start: int, end: int) -> HostColumns:
        """Return the buckets that begin in [start, end)."""

        def kept(ts: Ints, values: Ints) -> Ints:
            return values[(ts >= start) & (ts < end)]

        def cut(columns: Columns) -> Columns:
            ts = ts_of(columns)
            return {
                name: kept(ts, value) if isinstance(value, np.ndarray) else value for name, value in columns.items()
            }

        return self._mapped(cut, kept)

    def hourly(self) -> HostColumns:
        """Return the minutes of whole hours summed by hour."""
        return self._mapped(hourly, lambda _, counts: _by_hour(counts))

    def _mapped(self, of_columns: Callable[[Columns], Columns], of_counts: Callable[[Ints, Ints], Ints]) -> HostColumns:
        """Return changed columns; `of_counts` gets the starts of the buckets and one row of counts for each."""
        ts = {epoch_id: ts_of(columns) for epoch_id, columns in self.deployments.items()}
        return HostColumns(
            self.host_rows,
            of_columns(self.host),
            {device_id: list(map(of_columns, parts)) for device_id, parts in self.devices.items()},
            {epoch_id: of_columns(columns) for epoch_id, columns in self.deployments.items()},
            {
                epoch_id: [
                    replace(histogram, counts=of_counts(ts[epoch_id], histogram.counts)) for histogram in observed
                ]
                for epoch_id, observed in self.histograms.items()
            },
            {
                epoch_id: {name: of_counts(ts[epoch_id], deltas) for name, deltas in counted.items()}
                for epoch_id, counted in self.counters.items()
            },
        )

    def rows(self, seconds: int) -> Iterator[tuple[Table, Iterable[tuple[object, ...]]]]:
        """Yield the rows of the roll-ups of `seconds`."""
        host, device, deployment = (table[seconds] for table in (t.host_rollup, t.device_rollup, t.deployment_rollup))
        yield host, table_rows(host, self.host_rows.host_id, self.host)
        for device_id, parts in self.devices.items():
            for part in parts:
                yield device, table_rows(device, device_id, part)
        for epoch_id, columns in self.deployments.items():
            yield deployment, table_rows(deployment, epoch_id, columns)
            ts = ts_of(columns)
            yield t.histogram_rollup[seconds], histogram_rows(epoch_id, ts, self.histograms[epoch_id])
            yield t.engine_counter_rollup[seconds], counter_rows(epoch_id, ts, self.counters[epoch_id])

    def ticks(self, engines: Sequence[EngineRows]) -> Iterator[Tick]:
        """Yield the ticks of all minutes, oldest first."""
        engine_rows = tuple(engine.row for engine in engines)
        device_ids = {row.epoch_id: row.device_ids for engine in engines for row in engine.epochs}
        sets = {
            bucket_set_id(histogram.bounds): histogram.bounds
            for observed in self.histograms.values()
            for histogram in observed
        }
        for minute_index, minute in enumerate(ts_of(self.host).tolist()):
            for part in range(PER_MINUTE):
                ts = minute + INTERVAL_S * (part + 1)
                yield Tick(
                    ts=ts,
                    host=self.host_rows.row,
                    devices=self.host_rows.devices,
                    engines=engine_rows,
                    deployments=tuple(engine.deployment for engine in engines),
                    samples=tuple(self._samples(minute_index, part, ts, device_ids)),
                    bucket_sets=sets,
                )

    def _samples(
        self, minute_index: int, part: int, ts: int, allocated: Mapping[int, Sequence[int]]
    ) -> Iterator[Sample]:
        """Yield the samples of one tick; `allocated`: ids of the devices of each epoch."""
        host_id = self.host_rows.host_id
        yield HostSample(
            host_id,
            ts,
            _INTERVAL_MS,
            _INTERVAL_MS,
            **{
                name: _mean(self.host, f"{name}_sum", minute_index)
                for name in ("cpu_util_1e4", "load_1e2", "memory_used_bytes")
            },
            **{name: _part(self.host, name, minute_index, part) for name in ("network_rx_bytes", "network_tx_bytes")},
        )
        yield AgentSample(host_id, ts, _INTERVAL_MS, _INTERVAL_MS, 14 + part, 64_000_000, 11 + part % 3, 0, 63)
        for device_id, (*_, columns) in self.devices.items():
            energy = _part(columns, "energy_counter_mj", minute_index, part)
            yield DeviceSample(
                device_id,
                ts,
                _INTERVAL_MS,
                _INTERVAL_MS,
                **{name: _mean(columns, f"{name}_sum", minute_index) for name in _GAUGES},
                energy_counter_mj=energy,
                energy_integral_mj=_part(columns, "energy_integral_mj", minute_index, part),
                memory_clock_mhz=2619,
                throttle_reasons=0,
                ecc_corrected=0,
                ecc_uncorrected=0,
            )
        for epoch_id, columns in self.deployments.items():
            busy, prefill = (_part(columns, name, minute_index, part) for name in ("busy_ms", "prefill_ms"))
            yield DeploymentSample(
                epoch_id,
                ts,
                _INTERVAL_MS,
                _INTERVAL_MS,
                complete=True,
                busy_ms=busy,
                **{name: _part(columns, name, minute_index, part) for name in _TOKENS},
                running_1e2=_mean(columns, "running_1e2_sum", minute_index),
                waiting_1e2=_mean(columns, "waiting_1e2_sum", minute_index),
                kv_use_1e4=_mean(columns, "kv_use_1e4_sum", minute_index),
                busy_provenance=int(Provenance.COUNTER),
                split_ms=busy,
                prefill_ms=prefill,
                decode_ms=None if busy is None or prefill is None else max(0, busy - prefill),
            )
            for device_id in allocated[epoch_id]:
                yield DeviceShare(device_id, epoch_id, ts, _INTERVAL_MS, SHARE, busy or 0, Provenance.REPORTED)
            for histogram in self.histograms.get(epoch_id, ()):
                for bucket in np.flatnonzero(histogram.counts[minute_index]).tolist():
                    count = _divided(int(histogram.counts[minute_index, bucket]), part)
                    if count:
                        yield HistogramSample(
                            epoch_id, histogram.metric, ts, bucket_set_id(histogram.bounds), bucket, count
                        )
            for name, deltas in self.counters.get(epoch_id, {}).items():
                delta = _divided(int(deltas[minute_index]), part)
                if delta:
                    yield EngineCounterSample(epoch_id, name, ts, delta)


def _mean(columns: Columns, name: str, minute_index: int) -> int | None:
    values = columns.get(name)
    return int(values[minute_index]) // PER_MINUTE if isinstance(values, np.ndarray) else None


def _part(columns: Columns, name: str, minute_index: int, part: int) -> int | None:
    values = columns.get(name)
    return _divided(int(values[minute_index]), part) if isinstance(values, np.ndarray) else None


def _divided(count: int, part: int) -> int:
    """Return one part of a count; the first parts take the remainder."""
    quotient, remainder = divmod(count, PER_MINUTE)
    return quotient + (part < remainder)
