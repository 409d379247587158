"""Engines and hosts of a demo played over a stretch of time, step by step."""

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
from pertoken.demo.simulator.devices import Shown, idling, working
from pertoken.demo.simulator.physics import engine
from pertoken.state.deployment import Deployment
from pertoken.store.schema.ids import stable_id

HOUR_S = 3600
DEMAND_SD = 0.06
"""Of the logarithm of an hour's requests about their shape."""
LENGTHS_SD = 0.03
"""Of the logarithm of an hour's mean lengths and cached share."""


@dataclass(frozen=True, slots=True)
class PlayedEpoch:
    """One epoch of an engine in some steps."""

    of: EngineRows
    runs: Deployment
    epoch_id: int
    steps: Steps
    course: Course
    prompt_len: Floats
    generated_len: Floats


@dataclass(frozen=True, slots=True)
class Wandering:
    """What of a service changes from hour to hour for no reason: logarithms by the hour."""

    first_ts: int
    demand: Floats
    prompt: Floats
    generated: Floats
    cached: Floats

    def at(self, ts: Ints) -> Ints:
        """Return the places of instants."""
        return np.asarray(np.clip((ts - self.first_ts) // HOUR_S, 0, len(self.demand) - 1))


def wandering(service: str, seed: int, first_ts: int, hours: int) -> Wandering:
    """Return what wanders of a service, alike for all its engines."""
    of = stable_id("wander", service) & (2**63 - 1)
    spreads = (DEMAND_SD, LENGTHS_SD, LENGTHS_SD, LENGTHS_SD)
    # Each from a generator of its own: what comes later changes nothing of what was.
    return Wandering(
        first_ts,
        *(arrivals.wandering(np.random.default_rng((seed, of, at)), hours, sd) for at, sd in enumerate(spreads)),
    )


def play(
    of: EngineRows, steps: Steps, wanders: Wandering, seed: int, market: Market, *, stuck_ts: int | None = None
) -> Iterator[PlayedEpoch]:
    """Yield what an engine did in these steps, epoch by epoch."""
    drawn = of.drawn
    for runs, row in zip(_runs(drawn), of.epochs, strict=True):
        inside = (steps.ts >= row.start_ts) & (steps.ts < (row.end_ts or 2**62))
        if not inside.any():
            continue
        part = Steps(steps.ts[inside], steps.seconds)
        yield played(of, runs, row.epoch_id, part, wanders, seed, market, stuck_ts=stuck_ts)


def played(
    of: EngineRows,
    runs: Deployment,
    epoch_id: int,
    steps: Steps,
    wanders: Wandering,
    seed: int,
    market: Market,
    *,
    stuck_ts: int | None = None,
) -> PlayedEpoch:
    """Return what an engine does in some steps while it runs so."""
    drawn = of.drawn
    asked = drawn.asked
    rng = np.random.default_rng((seed, of.engine_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
    at = wanders.at(steps.ts)
    prompt_len = asked.prompt_len * np.exp(wanders.prompt[at])
    generated_len = asked.generated_len * np.exp(wanders.generated[at])
    cached = np.clip(asked.cached * np.exp(wanders.cached[at]), 0.0, 0.98)
    requests = arrivals.requests(rng, asked.shape, asked.per_s, steps.ts, steps.seconds, wanders.demand[at])
    one = engine(runs, drawn.truth, market, prompt_len, generated_len, cached)
    noise = np.exp(0.02 * rng.standard_normal(len(steps.ts)))
    one = replace(one, scale=one.scale[None, :] * noise[:, None])
    silent = None if stuck_ts is None else np.clip((steps.ts + steps.seconds - stuck_ts) / steps.seconds, 0.0, 1.0)
    return PlayedEpoch(
        of, runs, epoch_id, steps, course(one, steps.ts, steps.seconds, requests, silent), prompt_len, generated_len
    )


def devices_of(
    host: HostRows, epochs: Sequence[PlayedEpoch], steps: Steps, seed: int
) -> Iterator[tuple[int, Steps, Shown]]:
    """Yield what each device of a host shows: (its id, steps, values), those that nobody holds among them."""
    clock = float(host.drawn.place.clock)
    for slot, row in enumerate(host.devices):
        rng = np.random.default_rng((seed, row.device_id & (2**63 - 1), steps.seconds, int(steps.ts[0])))
        held = [each for each in epochs if slot in each.runs.device_ids]
        for each in held:
            share = each.runs.gpu_memory_utilization or 0.9
            yield (
                row.device_id,
                each.steps,
                working(
                    rng,
                    each.course,
                    host.accelerator,
                    (share + 0.012) * host.accelerator.memory_bytes,
                    len(each.runs.device_ids),
                    clock,
                    each.of.drawn.truth.power,
                ),
            )
        if not held:
            yield row.device_id, steps, idling(rng, len(steps.ts), host.accelerator, clock)


def _runs(drawn: DrawnEngine) -> tuple[Deployment, ...]:
    return (drawn.runs,) if drawn.before is None else (drawn.before, drawn.runs)
