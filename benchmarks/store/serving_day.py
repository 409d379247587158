"""A generated day of a host that serves: GPUs, deployments on four of them each, counters that restart once.

The same numbers go to every store measured. Deterministic for a seed.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pertoken.provenance import Provenance
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineRow,
    EpochRow,
    HostRow,
    HostSample,
    SampleValue,
    Tick,
)
from pertoken.store.schema.shared import stable_id
from pertoken.units import SHARE

INTERVAL_S = 10
GPUS_EACH = 4
MODELS = ("llama-70b", "qwen-32b", "mixtral-8x22b", "gemma-27b")
GAUGES = (
    "util_1e4",
    "memory_used_bytes",
    "power_mw",
    "energy_counter_mj",
    "energy_integral_mj",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "throttle_reasons",
    "sm_active_1e4",
    "tensor_active_1e4",
    "dram_active_1e4",
    "nvlink_rx_mib_s",
    "nvlink_tx_mib_s",
)
"""Of a device. The energies are what a counter grew by; Prometheus gets the counter."""
COUNTERS = ("busy_ms", "prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished")
LEVELS = ("running_1e2", "waiting_1e2", "kv_use_1e4")
HOST = stable_id("host", "benchmark")


@dataclass(frozen=True, slots=True)
class Values:
    """Counters and gauges of one tick."""

    ts: int
    devices: list[list[int]]
    """By GPU, in the order of GAUGES."""
    counters: list[list[int]]
    """By deployment, in the order of COUNTERS: what they grew by."""
    levels: list[list[int]]
    restarted: frozenset[int]
    """Deployments whose counters began again at 0 in this tick."""


class Day:
    """A number of GPUs over a number of hours that end at `end_ts` (a whole hour)."""

    def __init__(self, gpus: int, hours: int, end_ts: int, seed: int = 1) -> None:
        self.gpus, self.hours, self.start_ts, self.end_ts = gpus, hours, end_ts - 3600 * hours, end_ts
        self.n = gpus // GPUS_EACH
        self.ticks = hours * 3600 // INTERVAL_S
        self._seed = seed
        chance = random.Random(seed)
        self._restarts = {chance.randrange(1, self.ticks): number for number in range(self.n)}
        ids = [stable_id("device", f"GPU-{i}") for i in range(gpus)]
        self.device_ids = tuple(ids)
        self._host = HostRow(HOST, "gpu-1", "m", "b", 1_000, "Linux", "CPU", 128, 2**40, "benchmark", INTERVAL_S)
        self._devices = tuple(
            DeviceRow(number, HOST, "gpu", f"GPU-{i}", "nvidia", "NVIDIA H100 80GB HBM3", i)
            for i, number in enumerate(ids)
        )
        engine_ids = [stable_id("engine", str(d)) for d in range(self.n)]
        deployment_ids = [stable_id("deployment", str(d)) for d in range(self.n)]
        self._engines = tuple(
            EngineRow(engine_id, HOST, "vllm", f"http://127.0.0.1:{8000 + d}", 8000 + d, 1, 1, "0.32.0", "process")
            for d, engine_id in enumerate(engine_ids)
        )
        self._deployments = tuple(
            DeploymentRow(deployment_id, engine_ids[d], HOST, self.model(d))
            for d, deployment_id in enumerate(deployment_ids)
        )
        self._epochs = tuple(
            EpochRow(
                stable_id("epoch", str(d)),
                deployment_id,
                self.start_ts,
                None,
                "0.32.0",
                json.dumps({"tp": GPUS_EACH}),
                tuple(ids[d * GPUS_EACH : (d + 1) * GPUS_EACH]),
            )
            for d, deployment_id in enumerate(deployment_ids)
        )

    @property
    def samples(self) -> int:
        """Values stored in all: of devices, of deployments, and who holds which device."""
        return self.ticks * (self.gpus * (len(GAUGES) + 1) + self.n * (len(COUNTERS) + len(LEVELS)))

    def model(self, deployment: int) -> str:
        """Return the name of the model that a deployment serves."""
        return MODELS[deployment % len(MODELS)]

    def values(self) -> Iterator[Values]:
        """Tick by tick."""
        noise = np.random.default_rng(self._seed)
        for first in range(1, self.ticks + 1, 360):
            n = min(360, self.ticks + 1 - first)
            util = noise.integers(6000, 9900, (n, self.gpus))
            power = 150_000 + util * 55 + noise.integers(-3000, 3000, (n, self.gpus))
            columns = [
                util,
                77_000_000_000 + noise.integers(0, 40, (n, self.gpus)) * 2**21,
                power,
                power * INTERVAL_S + noise.integers(-900, 900, (n, self.gpus)),
                power * INTERVAL_S,
                1980 - noise.integers(0, 12, (n, self.gpus)) * 15,
                np.full((n, self.gpus), 2619),
                58 + noise.integers(0, 9, (n, self.gpus)),
                np.where(noise.random((n, self.gpus)) < 0.05, 4, 0),
                util - noise.integers(0, 900, (n, self.gpus)),
                util // 3 + noise.integers(0, 300, (n, self.gpus)),
                util // 2 + noise.integers(0, 500, (n, self.gpus)),
                noise.integers(0, 60_000, (n, self.gpus)),
                noise.integers(0, 60_000, (n, self.gpus)),
            ]
            devices = np.stack(columns, axis=2).tolist()
            prompt = noise.integers(4000, 60_000, (n, self.n))
            cached = prompt * noise.integers(0, 60, (n, self.n)) // 100
            counted = [
                noise.integers(6000, 10_000, (n, self.n)),
                prompt,
                cached,
                prompt - cached,
                noise.integers(3000, 30_000, (n, self.n)),
                noise.integers(3, 90, (n, self.n)),
            ]
            counters = np.stack(counted, axis=2).tolist()
            level = [noise.integers(0, top, (n, self.n)) for top in (9600, 3000, 9900)]
            levels = np.stack(level, axis=2).tolist()
            for i in range(n):
                tick = first + i
                restarted = frozenset({self._restarts[tick]} if tick in self._restarts else ())
                yield Values(self.start_ts + INTERVAL_S * tick, devices[i], counters[i], levels[i], restarted)

    def tick(self, values: Values) -> Tick:
        """Return the same, as the agent hands it to the store."""
        ts, interval_ms = values.ts, INTERVAL_S * 1000
        samples: list[SampleValue] = [HostSample(HOST, ts, interval_ms, interval_ms)]
        samples += [
            DeviceSample(self.device_ids[i], ts, interval_ms, interval_ms, **dict(zip(GAUGES, row, strict=True)))
            for i, row in enumerate(values.devices)
        ]
        for d in range(self.n):
            counted = dict(zip(COUNTERS, values.counters[d], strict=True))
            levels = dict(zip(LEVELS, values.levels[d], strict=True))
            samples.append(
                DeploymentSample(self._epochs[d].epoch_id, ts, interval_ms, interval_ms, True, **counted, **levels)
            )
            samples += [
                DeviceShare(
                    device, self._epochs[d].epoch_id, ts, interval_ms, SHARE, counted["busy_ms"], Provenance.REPORTED
                )
                for device in self._epochs[d].device_ids
            ]
        first = ts == self.start_ts + INTERVAL_S
        return Tick(
            ts=ts,
            host=self._host,
            devices=self._devices,
            engines=self._engines,
            deployments=self._deployments,
            epochs=self._epochs if first else (),
            samples=tuple(samples),
        )
