"""Ticks of a demo: simulated minutes divided into the samples that an agent stores."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pertoken.agent.rows.epochs import bucket_set_id
from pertoken.demo.rows.buckets import Columns
from pertoken.demo.rows.histograms import Histogram
from pertoken.demo.rows.identities import INTERVAL_S, EngineRows, HostRows
from pertoken.demo.simulator.arrivals import Ints
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import (
    AgentSample,
    DeploymentSample,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    HistogramSample,
    HostSample,
    Tick,
)
from pertoken.units import SHARE

PER_MINUTE = 60 // INTERVAL_S
_SPAN_MS = 1000 * INTERVAL_S
_GAUGES = (
    *("util_1e4", "memory_used_bytes", "power_mw", "sm_clock_mhz", "temperature_c", "sm_active_1e4"),
    *("sm_occupancy_1e4", "tensor_active_1e4", "dram_active_1e4", "nvlink_rx_mib_s", "nvlink_tx_mib_s"),
)
_TOKENS = (
    *("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished", "preemptions"),
)


class HostMinutes:
    """Minutes of one host, as columns of their roll-ups."""

    def __init__(self, host: HostRows, engines: Sequence[EngineRows], minutes: Ints) -> None:
        self._of, self._engines, self._minutes = host, engines, minutes
        self.host: Columns = {}
        self.devices: dict[int, Columns] = {}
        self.deployments: dict[int, Columns] = {}
        self.histograms: dict[int, Sequence[Histogram]] = {}
        self.counters: dict[int, Mapping[str, Ints]] = {}

    def ticks(self) -> Iterator[Tick]:
        """Yield the ticks of all minutes, oldest first."""
        known = tuple(engine.row for engine in self._engines)
        sets = {
            bucket_set_id(histogram.bounds): histogram.bounds
            for observed in self.histograms.values()
            for histogram in observed
        }
        for at, minute in enumerate(self._minutes.tolist()):
            for part in range(PER_MINUTE):
                ts = minute + INTERVAL_S * (part + 1)
                yield Tick(
                    ts=ts,
                    host=self._of.row,
                    devices=self._of.devices,
                    engines=known,
                    deployments=tuple(engine.deployment for engine in self._engines),
                    samples=tuple(self._samples(at, part, ts)),
                    bucket_sets=sets,
                )

    def _samples(self, at: int, part: int, ts: int) -> Iterator[Any]:
        host_id = self._of.host_id
        yield HostSample(
            host_id,
            ts,
            _SPAN_MS,
            _SPAN_MS,
            **{name: _mean(self.host, f"{name}_sum", at) for name in ("cpu_util_1e4", "load_1e2", "memory_used_bytes")},
            **{name: _part(self.host, name, at, part) for name in ("network_rx_bytes", "network_tx_bytes")},
        )
        yield AgentSample(host_id, ts, _SPAN_MS, _SPAN_MS, 14 + part, 64_000_000, 11 + part % 3, 0, 63)
        for device_id, columns in self.devices.items():
            energy = _part(columns, "energy_counter_mj", at, part)
            yield DeviceSample(
                device_id,
                ts,
                _SPAN_MS,
                _SPAN_MS,
                **{name: _mean(columns, f"{name}_sum", at) for name in _GAUGES},
                energy_counter_mj=energy,
                energy_integral_mj=_part(columns, "energy_integral_mj", at, part),
                memory_clock_mhz=2619,
                throttle_reasons=0,
                ecc_corrected=0,
                ecc_uncorrected=0,
            )
        for epoch_id, columns in self.deployments.items():
            busy, prefill = (_part(columns, name, at, part) for name in ("busy_ms", "prefill_ms"))
            yield DeploymentSample(
                epoch_id,
                ts,
                _SPAN_MS,
                _SPAN_MS,
                complete=True,
                busy_ms=busy,
                **{name: _part(columns, name, at, part) for name in _TOKENS},
                running_1e2=_mean(columns, "running_1e2_sum", at),
                waiting_1e2=_mean(columns, "waiting_1e2_sum", at),
                kv_use_1e4=_mean(columns, "kv_use_1e4_sum", at),
                busy_provenance=int(Provenance.COUNTER),
                split_ms=busy,
                prefill_ms=prefill,
                decode_ms=None if busy is None or prefill is None else max(0, busy - prefill),
            )
            yield from self._shares(epoch_id, ts, busy or 0)
            for histogram in self.histograms.get(epoch_id, ()):
                for bucket in np.flatnonzero(histogram.counts[at]).tolist():
                    count = _divided(int(histogram.counts[at, bucket]), part)
                    if count:
                        yield HistogramSample(
                            epoch_id, histogram.metric, ts, bucket_set_id(histogram.bounds), bucket, count
                        )
            for name, deltas in self.counters.get(epoch_id, {}).items():
                delta = _divided(int(deltas[at]), part)
                if delta:
                    yield EngineCounterSample(epoch_id, name, ts, delta)

    def _shares(self, epoch_id: int, ts: int, busy_ms: int) -> Iterator[DeviceShare]:
        allocated = next(
            row.device_ids for engine in self._engines for row in engine.epochs if row.epoch_id == epoch_id
        )
        for device_id in allocated:
            yield DeviceShare(device_id, epoch_id, ts, _SPAN_MS, SHARE, busy_ms, Provenance.REPORTED)


def _mean(columns: Columns, name: str, at: int) -> int | None:
    values = columns.get(name)
    return int(values[at]) // PER_MINUTE if isinstance(values, np.ndarray) else None


def _part(columns: Columns, name: str, at: int, part: int) -> int | None:
    values: NDArray[Any] | int | None = columns.get(name)
    return _divided(int(values[at]), part) if isinstance(values, np.ndarray) else None


def _divided(count: int, part: int) -> int:
    """Return one part of a count; the first parts take the remainder."""
    whole, over = divmod(count, PER_MINUTE)
    return whole + (part < over)
