"""Steady state of continuous batching under a load: requests running and waiting, TTFT and TPOT with percentiles.

A deployment is a queue whose rate of finished requests depends on how many run: `running / (E[answer] x step time +
running x E[prefill time])`. With Poisson arrivals the number of requests there is a birth-death chain; processor
sharing makes it insensitive to the shape of the answers' lengths (Cohen 1979) while everybody runs. Beyond the batch
limit requests wait in order; the wait of an M/M/c queue is scaled by (1 + cv²)/2 of the time a slot is held
(Lee and Longton 1959). Prefills are computed in order of arrival: an M/G/1 queue in front of the batch. Everything is
an array with one row per candidate.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pertoken.forecast.queue.load import Array, Lengths

STATES = 48
"""Numbers of requests the chain is evaluated at: all of them where a batch is small."""
SPREAD = 6.0
"""Standard deviations of the number of requests that are covered."""
BISECTIONS = 44
MOST_UTILIZED = 1 - 1e-9
"""Utilization from which a load counts as above the capacity: rounding decides no nearer."""
LEVELS = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0])
"""Parts the speeds of a step over the states of the batch are divided into: finer where a 95th percentile lies."""
CELLS = 24
"""Parts the share of steps with a prefill is divided into."""


@dataclass(frozen=True, slots=True)
class Service:
    """What deployments take for their work, one row each. Seconds; requests and rates are of one replica."""

    running: Array
    """Shape (n, points), rising along a row: sequences at which `decode_s` is known."""
    decode_s: Array
    """Shape (n, points): one decode step of so many sequences, without anybody's prefill."""
    prefill_s: Array
    """Shape (n, lengths): device time of each of the prompt's equally likely lengths."""
    prefill_steps: Array
    """Shape (n, lengths): engine steps each prompt is spread over (chunked prefill); 1 if computed at once."""
    limit: Array
    """Shape (n,): most sequences that run at once, at least 1."""

    def step_s(self, running: Array) -> Array:
        """Decode step at `running` sequences, shape (n, any): straight lines between the known points."""
        below = (self.running[:, None, :] <= running[:, :, None]).sum(axis=2) - 1
        below = np.clip(below, 0, self.running.shape[1] - 2)
        left, right = (np.take_along_axis(self.running, below + side, axis=1) for side in (0, 1))
        low, high = (np.take_along_axis(self.decode_s, below + side, axis=1) for side in (0, 1))
        share = np.clip((running - left) / np.maximum(right - left, 1e-12), 0.0, 1.0)
        return low + share * (high - low)


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """Steady states, one row per candidate. Where a load exceeds the capacity, the queue grows without end: waiting
    and TTFT are infinite, and the rest is what a full batch does."""

    capacity_per_s: Array
    """Requests/s of a full batch."""
    utilization: Array
    """Arrivals as a share of that capacity; may exceed 1."""
    running: Array
    """Mean sequences running."""
    waiting: Array
    """Mean requests waiting for a place in the batch."""
    tok_s: Array
    """Generated tokens/s."""
    ttft_s: Array
    """Shape (n, shares): quantiles over requests."""
    tpot_s: Array
    """Shape (n, shares): quantiles over requests of the mean time between their tokens."""

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Whether the load exceeds the capacity."""
        return self.utilization >= MOST_UTILIZED


def under_load(
    service: Service, requests_per_s: Array, generated: Lengths, shares: tuple[float, ...] = (0.5, 0.95)
) -> UnderLoad:
    """The steady state of each candidate at its arrival rate, shape (n,), requests/s of one replica, above 0.

    `shares`: which quantiles of TTFT and TPOT. Raises ValueError for a rate or share that is out of range.
    """
    rate = np.asarray(requests_per_s, dtype=float)
    if not np.all(rate > 0) or not all(0 < share < 1 for share in shares):
        raise ValueError("arrival rates are above 0, and shares of requests between 0 and 1")
    limit = np.maximum(service.limit, 1.0)
    chain = _Chain(service, generated, limit)
    capacity = chain.finished_per_s(limit[:, None])[:, 0]
    stable = rate / capacity < MOST_UTILIZED
    states = chain.states(np.where(stable, rate, 0.5 * capacity), capacity)
    waits = np.where(stable, states.full, 1.0)
    running = np.where(stable, states.running, limit)
    spare = np.maximum(capacity - rate, 1e-9 * capacity)
    wait_s = (1 + chain.held_cv2()) / 2 / spare
    queue = _prefills(
        service, np.minimum(rate, capacity), service.step_s(np.maximum(running, 1.0)[:, None])[:, 0], waits
    )
    ttft = _ttft(service, queue, waits, wait_s, shares)
    here = np.where(stable[:, None], states.there, limit[:, None])
    tpot = _tpot(service, queue, replace(states, there=here, running=running), generated, shares)
    return UnderLoad(
        capacity,
        rate / capacity,
        running,
        np.where(stable, waits * rate * wait_s, np.inf),
        np.minimum(rate, capacity) * generated.mean,
        np.where(stable[:, None], ttft, np.inf),
        tpot,
    )


@dataclass(frozen=True, slots=True)
class _States:
    """The stationary chain. `there` (n, STATES): requests; `weight` (n, STATES): probability that so many run."""

    there: Array
    weight: Array
    full: Array
    """Shape (n,): probability that an arrival finds no place in the batch."""
    running: Array
    """Shape (n,): mean."""


@dataclass(frozen=True, slots=True)
class _Chain:
    service: Service
    generated: Lengths
    limit: Array

    @property
    def steps(self) -> float:
        """Decode steps of a mean answer: its first token comes out of the prefill."""
        return max(self.generated.mean - 1, 1e-9)

    def finished_per_s(self, there: Array) -> Array:
        """Requests/s that finish with so many running, shape (n, any); below one, as a share of one."""
        prefill = self.service.prefill_s.mean(axis=1)[:, None]
        busy: Array = prefill * there + self.steps * self.service.step_s(np.maximum(there, 1.0))
        return there / busy

    def held_cv2(self) -> Array:
        """Squared coefficient of variation of the time a request holds its place in a full batch."""
        step = self.service.step_s(self.limit[:, None])[:, 0]
        prefill = self.service.prefill_s
        spread: Array = prefill.var(axis=1) + step**2 * self.generated.tokens.var()
        held: Array = prefill.mean(axis=1) + step * self.steps
        return spread / held**2

    def states(self, rate: Array, capacity: Array) -> _States:
        """The chain at arrival rates below the capacity, on a grid around its most likely number."""
        low, high = np.zeros(len(rate)), self.limit.copy()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            fewer = self.finished_per_s(middle[:, None])[:, 0] < rate
            low, high = np.where(fewer, middle, low), np.where(fewer, high, middle)
        likely = high
        near = np.stack([0.95 * likely, likely], axis=1)
        rates = self.finished_per_s(near)
        slope = np.maximum((rates[:, 1] - rates[:, 0]) / np.maximum(near[:, 1] - near[:, 0], 1e-12), 1e-12)
        spread = SPREAD * np.sqrt(rate / slope) + SPREAD
        first = np.floor(np.maximum(likely - spread, 0.0))
        last = np.minimum(np.ceil(likely + spread), np.floor(self.limit))
        first = np.minimum(first, last)
        step = np.maximum(1.0, (last - first) / (STATES - 1))
        there: Array = first[:, None] + step[:, None] * np.arange(STATES, dtype=float)
        inside = there <= last[:, None] + 1e-9
        there = np.minimum(there, last[:, None])
        arriving = np.log(rate)[:, None]
        gain = arriving - np.log(self.finished_per_s(np.maximum(there[:, 1:], 1.0)))
        first_gain = arriving - np.log(self.finished_per_s(np.maximum(there[:, :-1] + 1, 1.0)))
        log = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(step[:, None] * (gain + first_gain) / 2, axis=1)], 1)
        log = np.where(inside, log, -np.inf)
        weight = np.exp(log - log.max(axis=1, keepdims=True)) * step[:, None]
        busiest = np.take_along_axis(weight, (inside.sum(axis=1) - 1)[:, None], axis=1)[:, 0]
        at_limit = last >= np.floor(self.limit)
        beyond = np.where(at_limit, busiest / step * rate / (capacity - rate), 0.0)
        total = weight.sum(axis=1) + beyond
        full = np.where(at_limit, (busiest / step + beyond) / total, 0.0)
        running = ((weight * there).sum(axis=1) + beyond * self.limit) / total
        weight[np.arange(len(rate)), inside.sum(axis=1) - 1] += beyond
        return _States(there, weight / total[:, None], np.minimum(full, 1.0), running)


@dataclass(frozen=True, slots=True)
class _Prefills:
    """The queue of prompts in front of the batch; decode steps go on beside it, one with each chunk."""

    step: Array
    """Shape (n,): a decode step alone."""
    chunk: Array
    """Shape (n,): prefill seconds in a step that has any."""
    busy: Array
    """Shape (n,): share of time, and of arrivals that find it so, with a prompt in work."""
    followed: Array
    """Shape (n,): share of prompts after which the next is there already."""
    busy_steps: Array
    """Shape (n,): share of steps."""
    run: Array
    """Shape (n,): steps until busy or calm is forgotten."""
    stall: Array
    """Shape (n,): the chunk that, as often as gives the same mean, varies as the unequal ones do: E[c²] / E[c]."""


def _prefills(service: Service, rate: Array, step: Array, waits: Array) -> _Prefills:
    mean = service.prefill_s.mean(axis=1)
    alone = rate * mean
    lone_chunk = mean / service.prefill_steps.mean(axis=1)
    full_chunk = (service.prefill_s / service.prefill_steps).max(axis=1)
    chunk = np.maximum(lone_chunk + np.clip(alone, 0, 1) * (full_chunk - lone_chunk), 1e-12)
    busy = np.clip(alone * (1 + step / chunk), 1e-9, 0.98)
    busy_rate, calm_rate = busy / (step + chunk), (1 - busy) / step
    # Those who waited for a place come one by one as places become free, not at random.
    followed = busy * (1 - waits)
    in_a_row = service.prefill_steps.mean(axis=1) / (1 - followed)
    between = np.maximum(1 / (rate * step), 1.0)
    unequal = (service.prefill_s**2 / service.prefill_steps).sum(axis=1) / service.prefill_s.sum(axis=1)
    return _Prefills(
        step,
        chunk,
        busy,
        followed,
        busy_rate / (busy_rate + calm_rate),
        1 / (1 / in_a_row + 1 / between),
        np.maximum(unequal, chunk),
    )


def _ttft(service: Service, queue: _Prefills, waits: Array, wait_s: Array, shares: tuple[float, ...]) -> Array:
    """Quantiles of: wait for a place, wait for earlier prefills, half a step, the own prefill beside decode steps."""
    own = service.prefill_s + (service.prefill_steps + 0.5) * queue.step[:, None]
    work = service.prefill_s * (1 + queue.step / queue.chunk)[:, None]
    behind_s = np.square(work).mean(axis=1) / (2 * work.mean(axis=1)) / (1 - queue.busy)
    a, b = 1 / wait_s, 1 / behind_s
    b = np.where(np.abs(a - b) < 1e-6 * a, b * (1 + 1e-5), b)
    p, q = waits[:, None], queue.busy[:, None]

    def above(seconds: Array) -> Array:
        late = np.maximum(seconds[:, None] - own, 0.0)
        first, second = np.exp(-a[:, None] * late), np.exp(-b[:, None] * late)
        both = (b[:, None] * first - a[:, None] * second) / (b - a)[:, None]
        tail = p * (1 - q) * first + (1 - p) * q * second + p * q * both
        found: Array = np.where(seconds[:, None] < own, 1.0, tail).mean(axis=1)
        return found

    most = own.max(axis=1) + 60 * (wait_s + behind_s)
    quantiles = []
    for share in shares:
        low, high = np.zeros_like(most), most.copy()
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            more = above(middle) > 1 - share
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        quantiles.append(high)
    return np.stack(quantiles, axis=1)


def _tpot(service: Service, queue: _Prefills, states: _States, generated: Lengths, shares: tuple[float, ...]) -> Array:
    """Quantiles of a request's mean time between tokens: the batch over its life, and others' prefills in its steps.

    A short answer sees one state of the batch and of the prefill queue, so it varies most. Averaging over a life
    shrinks both variances by that of a process that forgets exponentially: the batch within a mean residence, the
    prefill queue within `run` steps. The share of its steps that carry a prefill is Beta distributed.
    """
    step = service.step_s(np.maximum(states.there, 1.0))
    # By tokens, not by time: a state of slow steps lasts longer but gives no more of them.
    seen = states.weight * states.there / step + 1e-300
    seen = seen / seen.sum(axis=1, keepdims=True)
    level = _levels(step, seen)
    likely = np.diff(LEVELS)
    mean = level @ likely
    steps = np.maximum(generated.tokens - 1, 1.0)
    shrunk = np.sqrt(_averaged(steps / np.maximum(generated.mean - 1, 1.0)))
    base = mean[:, None, None] + shrunk[None, :, None] * (level - mean[:, None])[:, None, :]

    lives = steps[None, :] / queue.run[:, None]
    settling = -np.expm1(-lives) / lives
    middle = queue.busy_steps[:, None] + np.maximum(queue.followed - queue.busy_steps, 0.0)[:, None] * settling
    middle = middle * (queue.chunk / queue.stall)[:, None]
    spread = np.clip(np.maximum(_averaged(lives), 1 / steps[None, :]), 1e-6, 1 - 1e-6)
    cells, share = _beta(np.clip(middle, 1e-6, 1 - 1e-6), 1 / spread - 1)
    # The longer a step takes, the more prompts come in it.
    stalled = (queue.stall[:, None, None] * cells)[:, :, None, :] * (base / mean[:, None, None])[:, :, :, None]
    seconds = base[:, :, :, None] + stalled
    weight = share[:, :, None, :] * likely[:, None] / len(steps)
    seconds, weight = (each.reshape(len(each), -1) for each in (seconds, weight))
    order = np.argsort(seconds, axis=1)
    passed = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    rising = np.take_along_axis(seconds, order, axis=1)
    places = [np.minimum((passed < wanted).sum(axis=1), seconds.shape[1] - 1) for wanted in shares]
    return np.stack([rising[np.arange(len(rising)), place] for place in places], axis=1)


def _levels(values: Array, weight: Array) -> Array:
    """Weighted values, rising, as the mean of each part of `LEVELS`, shape (n, parts)."""
    order = np.argsort(values, axis=1)
    rising = np.take_along_axis(values, order, axis=1)
    passed = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    inside = np.diff(
        np.minimum(np.concatenate([np.zeros((len(values), 1)), passed], axis=1)[:, :, None], LEVELS), axis=1
    )
    share = np.diff(inside, axis=2)
    found: Array = (share * rising[:, :, None]).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
    return found


def _averaged(lives: Array) -> Array:
    """Variance of an average over this many memory times of a process that forgets exponentially, 1 for none."""
    lives = np.maximum(lives, 1e-4)
    return 2 / lives * (1 + np.expm1(-lives) / lives)


def _beta(mean: Array, strength: Array) -> tuple[Array, Array]:
    """Cells of a Beta distribution and their probability, both shape (n, lengths, CELLS): a + b is its strength."""
    a, b = (mean * strength)[..., None], ((1 - mean) * strength)[..., None]
    sd = np.sqrt(mean * (1 - mean) / (strength + 1))
    low, high = np.maximum(mean - 4 * sd, 0.0)[..., None], np.minimum(mean + 4 * sd, 1.0)[..., None]
    width = (high - low) / CELLS
    cells = low + width * (np.arange(CELLS) + 0.5)
    log = (a - 1) * np.log(cells) + (b - 1) * np.log1p(-np.minimum(cells, 1 - 1e-12))
    # The density may be infinite at an end that the cells reach: there the integral over the cell is taken instead.
    ends = np.zeros_like(cells)
    ends[..., :1] = np.where(low == 0, (a - 1) * np.log(2) - np.log(a), 0.0)
    ends[..., -1:] += np.where(high == 1, (b - 1) * np.log(2) - np.log(b), 0.0)
    log = log + ends
    share = np.exp(log - log.max(axis=-1, keepdims=True))
    return cells, share / share.sum(axis=-1, keepdims=True)
