"""Simulation of a demo's engines and hosts over a stretch of time, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pertoken.catalog.market import Market
from pertoken.demo.fleet import DrawnEngine
from pertoken.demo.rows.buckets import Steps
from pertoken.demo.rows.identities import EngineRows, HostRows
from pertoken.demo.simulator import arrivals
from pertoken.demo.simulator.arrivals import Floats, Ints
from pertoken.demo.simulator.course import Course, course
from pertoken.demo.simulator.devices import DeviceReadings, idling, working
from pertoken.demo.simulator.physics import engine
from pertoken.state.deployment import Deployment
from pertoken.store.schema.shared import stable_id

HOUR_S = 3600
DEMAND_SD = 0.06
"""Standard deviation of the logarithm of an hour's requests around their shape."""
LENGTHS_SD = 0.03
"""Standard deviation of the logarithm of an hour's mean lengths and cached share."""


@dataclass(frozen=True, slots=True)
class SimulatedEpoch:
    """One epoch of an engine over its steps."""

    of: EngineRows
    runs: Deployment
    epoch_id: int
    steps: Steps
    course: Course
    prompt_len: Floats
    generated_len: Floats


@dataclass(frozen=True, slots=True)
class Drift:
    """Random hourly drift of a service's demand and lengths, as logarithms."""

    first_ts: int
    demand: Floats
    prompt: Floats
    generated: Floats
    cached: Floats

    def at(self, ts: Ints) -> Ints:
        """Return the index of the hour of each instant."""
        return np.asarray(np.clip((ts - self.first_ts) // HOUR_S, 0, len(self.demand) - 1))


def drift(service: str, seed: int, first_ts: int, hours: int) -> Drift:
    """Return the drift of a service, which is the same for all its engines."""
    service_id = stable_id("wander", service) & (2**63 - 1)
    spreads = (DEMAND_SD, LENGTHS_SD, LENGTHS_SD, LENGTHS_SD)
    # One generator for each series, so that more hours do not change the earlier ones.
    return Drift(
        first_ts,
        *(arrivals.drift(np.random.default_rng((seed, service_id, at)), hours, sd) for at, sd in enumerate(spreads)),
    )


def simulate(
    engine_row: EngineRows, steps: Steps, drift: Drift, seed: int, market: Market, *, stuck_ts: int | None = None
) -> Iterator[SimulatedEpoch]:
    """Yield the simulated epochs of an engine over `steps`."""
    drawn = engine_row.drawn
    for runs, row in zip(_runs(drawn), engine_row.epochs, strict=True):
        inside = (steps.ts >= row.start_ts) & (steps.ts < (row.end_ts or 2**62))
        if not inside.any():
            continue
        part = Steps(steps.ts[inside], steps.seconds)
        yield simulate_epoch(engine_row, runs, row.epoch_id, part, drift, seed, market, stuck_ts=stuck_ts)


def simulate_epoch(
    engine_row: EngineRows,
    runs: Deployment,
    epoch_id: int,
    steps: Steps,
    drift: Drift,
    seed: int,
    market: Market,
    *,
    stuck_ts: int | None = None,
) -> SimulatedEpoch:
    """Return one simulated epoch: an engine that runs as `runs` over `steps`."""
    drawn = engine_row.drawn
    load = drawn.client_load
    rng = np.random.default_rng((seed, engine_row.engine_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
    at = drift.at(steps.ts)
    prompt_len = load.prompt_len * np.exp(drift.prompt[at])
    generated_len = load.generated_len * np.exp(drift.generated[at])
    cached = np.clip(load.cached * np.exp(drift.cached[at]), 0.0, 0.98)
    requests = arrivals.requests(rng, load.shape, load.per_s, steps.ts, steps.seconds, drift.demand[at])
    true_engine = engine(runs, drawn.truth, market, prompt_len, generated_len, cached)
    noise = np.exp(0.02 * rng.standard_normal(len(steps.ts)))
    true_engine = replace(true_engine, scale=true_engine.scale[None, :] * noise[:, None])
    silent = None if stuck_ts is None else np.clip((steps.ts + steps.seconds - stuck_ts) / steps.seconds, 0.0, 1.0)
    return SimulatedEpoch(
        engine_row,
        runs,
        epoch_id,
        steps,
        course(true_engine, steps.ts, steps.seconds, requests, silent),
        prompt_len,
        generated_len,
    )


def devices_of(
    host: HostRows, epochs: Sequence[SimulatedEpoch], steps: Steps, seed: int
) -> Iterator[tuple[int, Steps, DeviceReadings]]:
    """Yield (device id, steps, readings) of each device of a host, unallocated devices included."""
    clock = float(host.drawn.host_type.clock)
    for slot, row in enumerate(host.devices):
        rng = np.random.default_rng((seed, row.device_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
        allocated = [epoch for epoch in epochs if slot in epoch.runs.device_ids]
        for epoch in allocated:
            share = epoch.runs.gpu_memory_utilization or 0.9
            yield (
                row.device_id,
                epoch.steps,
                working(
                    rng,
                    epoch.course,
                    host.accelerator,
                    (share + 0.012) * host.accelerator.memory_bytes,
                    len(epoch.runs.device_ids),
                    clock,
                    epoch.of.drawn.truth.power,
                ),
            )
        if not allocated:
            yield row.device_id, steps, idling(rng, len(steps.ts), host.accelerator, clock)


def _runs(drawn: DrawnEngine) -> tuple[Deployment, ...]:
    return (drawn.runs,) if drawn.before is None else (drawn.before, drawn.runs)
