"""Steady state of one replica: the chain of running requests, the wait for a place, and the queue of prefills."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Array, Lengths
from pertoken.forecast.queue.chain import Chain, Service, States

MAX_UTILIZATION = 1 - 1e-9
"""Utilization from which a load counts as above the capacity; nearer to 1, rounding errors would decide."""


@dataclass(frozen=True, slots=True)
class PrefillQueue:
    """Queue of prompts in front of the batch. Decoding continues: one decode step runs with each chunk of a prompt."""

    step_s: Array
    """Shape (n,): seconds of a decode step without a prefill."""
    chunk_s: Array
    """Shape (n,): mean prefill seconds in a step with a prefill."""
    busy: Array
    """Shape (n,): share of time with a prompt in work; also the share of arrivals that wait for one."""
    followed: Array
    """Shape (n,): share of prompts that leave another one waiting."""
    busy_steps: Array
    """Shape (n,): share of steps with a prefill."""
    memory_steps: Array
    """Shape (n,): steps after which the state of this queue, busy or idle, is independent of the present one."""
    stall_s: Array
    """Shape (n,): E[c²] / E[c] of the chunks c. Chunks of this equal size give the variance of the real ones, when
    they come less often so that the mean per step is the same."""


def _prefill_queue(service: Service, requests_per_s: Array, step_s: Array, wait_share: Array) -> PrefillQueue:
    """Return the queue of prompts; `wait_share`, shape (n,): share of requests that wait for a place in the batch."""
    mean_s = service.prefill_s.mean(axis=1)
    device_share = requests_per_s * mean_s
    lone_chunk_s = mean_s / service.prefill_steps.mean(axis=1)
    full_chunk_s = (service.prefill_s / service.prefill_steps).max(axis=1)
    chunk_s = np.maximum(lone_chunk_s + np.clip(device_share, 0, 1) * (full_chunk_s - lone_chunk_s), 1e-12)
    busy = np.clip(device_share * (1 + step_s / chunk_s), 1e-9, 0.98)
    busy_steps_per_s, idle_steps_per_s = busy / (step_s + chunk_s), (1 - busy) / step_s
    # Requests that waited for a place enter one by one as places become free, not at random.
    followed = busy * (1 - wait_share)
    steps_in_a_row = service.prefill_steps.mean(axis=1) / (1 - followed)
    steps_between = np.maximum(1 / (requests_per_s * step_s), 1.0)
    stall_s = (service.prefill_s**2 / service.prefill_steps).sum(axis=1) / service.prefill_s.sum(axis=1)
    return PrefillQueue(
        step_s,
        chunk_s,
        busy,
        followed,
        busy_steps_per_s / (busy_steps_per_s + idle_steps_per_s),
        1 / (1 / steps_in_a_row + 1 / steps_between),
        np.maximum(stall_s, chunk_s),
    )


@dataclass(frozen=True, slots=True)
class SteadyState:
    """State that all quantiles are computed from, one row per candidate. Above the capacity it is a full batch."""

    capacity_per_s: Array
    """Requests/s of a full batch."""
    stable: NDArray[np.bool_]
    """Whether the load is below the capacity."""
    states: States
    wait_share: Array
    """Share of requests that wait for a place in the batch."""
    wait_s: Array
    """Mean wait of those requests."""
    prefills: PrefillQueue


def steady_state(service: Service, requests_per_s: Array, generated: Lengths) -> SteadyState:
    """Return the steady state of each candidate at its arrival rate, shape (n,), requests/s of one replica, above 0."""
    limit = np.maximum(service.limit, 1.0)
    chain = Chain.of(service, generated, limit)
    capacity = chain.finished_per_s(limit[:, None])[:, 0]
    stable = requests_per_s / capacity < MAX_UTILIZATION
    states = chain.states(np.where(stable, requests_per_s, 0.5 * capacity), capacity)
    wait_share = np.where(stable, states.full, 1.0)
    running = np.where(stable, states.running, limit)
    spare_per_s = np.maximum(capacity - requests_per_s, 1e-9 * capacity)
    wait_s = (1 + chain.residence_cv2()) / 2 / spare_per_s
    step_s = service.step_s(np.maximum(running, 1.0)[:, None])[:, 0]
    prefills = _prefill_queue(service, np.minimum(requests_per_s, capacity), step_s, wait_share)
    requests = np.where(stable[:, None], states.requests, limit[:, None])
    return SteadyState(
        capacity, stable, replace(states, requests=requests, running=running), wait_share, wait_s, prefills
    )


def capacity_per_s(service: Service, generated: Lengths) -> Array:
    """Return the requests/s that a full batch of each candidate finishes, shape (n,)."""
    limit = np.maximum(service.limit, 1.0)
    return Chain.of(service, generated, limit).finished_per_s(limit[:, None])[:, 0]
