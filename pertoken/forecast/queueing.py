"""Steady state of continuous batching under a load: requests running and waiting, TTFT and TPOT with percentiles.

A deployment is a queue with a rate of finished requests that depends on the number running:
`running / (E[output] x step time + running x E[prefill time])`. With Poisson arrivals, the number of requests in it is
a birth-death chain. While all requests run, processor sharing makes it insensitive to the shape of the output lengths
(Cohen 1979). Beyond the batch limit requests wait in order: the wait of an M/M/c queue times (1 + cv²)/2 of the time
that a request keeps its place (Lee and Longton 1959). Prefills are computed in order of arrival: an M/G/1 queue in
front of the batch. All arrays have one row per candidate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Array, Lengths

STATES = 48
"""States that the chain is evaluated at. A small batch has fewer, and all of them are used."""
SPREAD = 6.0
"""Standard deviations of the number of requests that the states cover on either side."""


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Step and prefill times of deployments, one row each. Seconds; requests and rates are of one replica."""

    running: Array
    """Shape (n, points), rising along a row: batch sizes at which `decode_s` is known."""
    decode_s: Array
    """Shape (n, points): seconds of one decode step at each batch size, without any prefill."""
    prefill_s: Array
    """Shape (n, lengths): device seconds of the prefill of each of the equally likely prompt lengths."""
    prefill_steps: Array
    """Shape (n, lengths): engine steps of the prefill of each length: 1, or more with chunked prefill."""
    limit: Array
    """Shape (n,): maximum number of sequences that run at once, at least 1."""

    def step_s(self, running: Array) -> Array:
        """Return the seconds of a decode step at `running` sequences, shape (n, any); linear between known points."""
        points = self.running.shape[1]
        # Points first: adding up whole arrays takes a third of the time of adding up a few values of each.
        below = (self.running.T[:, :, None] <= running).sum(axis=0, dtype=np.int16) - 1
        below = np.minimum(np.maximum(below, 0), points - 2)
        index = below + (np.arange(len(below)) * points)[:, None]
        first, last = self.running.take(index), self.running.take(index + 1)
        low, high = self.decode_s.take(index), self.decode_s.take(index + 1)
        share = np.minimum(np.maximum((running - first) / np.maximum(last - first, 1e-12), 0.0), 1.0)
        seconds: Array = low + share * (high - low)
        return seconds


@dataclass(frozen=True, slots=True)
class ChainStates:
    """Stationary distribution of a chain, one row per load."""

    requests: Array
    """Shape (n, STATES): number of running requests in each state."""
    weight: Array
    """Shape (n, STATES): probability of each state."""
    full: Array
    """Shape (n,): probability that the batch is full when a request arrives."""
    running: Array
    """Shape (n,): mean number of running requests."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Requests that run and finish at replicas, one row each."""

    service: ServiceTimes
    generated: Lengths
    """Output lengths."""
    limit: Array
    """Shape (n,): maximum number of sequences that run at once."""
    prefill_s: Array
    """Shape (n, 1): mean seconds of a prefill."""
    steps: Array
    """Shape (1, 1) or (n, 1): decode steps of a mean output. The prefill gives its first token."""

    @classmethod
    def of(cls, service: ServiceTimes, generated: Lengths, limit: Array) -> Chain:
        """Return the chain of a service; `limit`, shape (n,): maximum number of sequences that run at once."""
        steps = np.maximum(generated.rows.mean(axis=1) - 1, 1e-9)
        return cls(service, generated, limit, service.prefill_s.mean(axis=1)[:, None], steps[:, None])

    def finished_per_s(self, running: Array) -> Array:
        """Return the requests/s that finish at `running` sequences, shape (n, any); below 1 it is proportional."""
        seconds: Array = self.prefill_s * running + self.steps * self.service.step_s(np.maximum(running, 1.0))
        return running / seconds

    def running_at(self, rate: Array) -> Array:
        """Return the number of sequences at which requests finish as fast as they arrive, shape (n,).

        `rate` is below the capacity. The step time is linear between the known points, so the number is the
        solution of a linear equation on the segment that contains it.
        """
        points, step_s = self.service.running, self.service.decode_s
        row, last = np.arange(len(rate)), points.shape[1] - 1
        enough = self.finished_per_s(points) >= rate[:, None]
        above = np.where(enough.any(axis=1), enough.argmax(axis=1), last + 1)
        begin, end = np.maximum(above - 1, 0), np.minimum(above, last)
        width = points[row, end] - points[row, begin]
        slope = np.where(width > 0, (step_s[row, end] - step_s[row, begin]) / np.where(width > 0, width, 1.0), 0.0)
        intercept = step_s[row, begin] - slope * points[row, begin]
        steps_per_s = rate * self.steps[:, 0]
        running: Array = (
            steps_per_s * intercept / np.maximum(1 - rate * self.prefill_s[:, 0] - steps_per_s * slope, 1e-300)
        )
        return np.minimum(np.maximum(running, 0.0), self.limit)

    def residence_cv2(self) -> Array:
        """Return the squared coefficient of variation of the time of a request in a full batch, shape (n,)."""
        step = self.service.step_s(self.limit[:, None])[:, 0]
        prefill = self.service.prefill_s
        variance: Array = prefill.var(axis=1) + step**2 * self.generated.rows.var(axis=1)
        mean: Array = prefill.mean(axis=1) + step * self.steps[:, 0]
        return variance / mean**2

    def states(self, rate: Array, capacity: Array) -> ChainStates:
        """Return the stationary distribution at arrival rates below the capacity, on a grid around its mode."""
        likely = self.running_at(rate)
        near = np.stack([0.95 * likely, likely], axis=1)
        rates = self.finished_per_s(near)
        slope = np.maximum((rates[:, 1] - rates[:, 0]) / np.maximum(near[:, 1] - near[:, 0], 1e-12), 1e-12)
        spread = SPREAD * np.sqrt(rate / slope) + SPREAD
        first = np.floor(np.maximum(likely - spread, 0.0))
        last = np.minimum(np.ceil(likely + spread), np.floor(self.limit))
        first = np.minimum(first, last)
        step = np.maximum(1.0, (last - first) / (STATES - 1))
        requests: Array = first[:, None] + step[:, None] * np.arange(STATES, dtype=float)
        inside = requests <= last[:, None] + 1e-9
        requests = np.minimum(requests, last[:, None])
        arriving = np.log(rate)[:, None]
        gain = arriving - np.log(self.finished_per_s(np.maximum(requests[:, 1:], 1.0)))
        first_gain = arriving - np.log(self.finished_per_s(np.maximum(requests[:, :-1] + 1, 1.0)))
        log = np.concatenate([np.zeros((len(rate), 1)), np.cumsum(step[:, None] * (gain + first_gain) / 2, axis=1)], 1)
        log = np.where(inside, log, -np.inf)
        weight = np.exp(log - log.max(axis=1, keepdims=True)) * step[:, None]
        busiest = np.take_along_axis(weight, (inside.sum(axis=1) - 1)[:, None], axis=1)[:, 0]
        at_limit = last >= np.floor(self.limit)
        beyond = np.where(at_limit, busiest / step * rate / (capacity - rate), 0.0)
        total = weight.sum(axis=1) + beyond
        full = np.where(at_limit, (busiest / step + beyond) / total, 0.0)
        running = ((weight * requests).sum(axis=1) + beyond * self.limit) / total
        weight[np.arange(len(rate)), inside.sum(axis=1) - 1] += beyond
        return ChainStates(requests, weight / total[:, None], np.minimum(full, 1.0), running)


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


def _prefill_queue(service: ServiceTimes, requests_per_s: Array, step_s: Array, wait_share: Array) -> PrefillQueue:
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
    states: ChainStates
    wait_share: Array
    """Share of requests that wait for a place in the batch."""
    wait_s: Array
    """Mean wait of those requests."""
    prefills: PrefillQueue


def steady_state(service: ServiceTimes, requests_per_s: Array, generated: Lengths) -> SteadyState:
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


def capacity_per_s(service: ServiceTimes, generated: Lengths) -> Array:
    """Return the requests/s that a full batch of each candidate finishes, shape (n,)."""
    limit = np.maximum(service.limit, 1.0)
    return Chain.of(service, generated, limit).finished_per_s(limit[:, None])[:, 0]


SPEED_BINS = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0])
"""Edges, as shares of tokens, of the bins for the speed of a step: finer where a 95th percentile lies."""
CELLS = 24
"""Cells for the share of steps with a prefill."""


@dataclass(frozen=True)
class TpotDistribution:
    """Mean time between the tokens of a request, over three discrete variables: the length of its output (all equally
    likely), the speed of its steps (the bins of `SPEED_BINS`) and the share of its steps with a prefill (`CELLS`)."""

    base_s: Array
    """Shape (n, lengths, speed bins): seconds without prefills."""
    stall_share: Array
    """Shape (n,): a prefill in every step lengthens the time by this share."""
    low: Array
    """Shape (n, lengths): share of steps with a prefill at which the first cell begins."""
    width: Array
    """Shape (n, lengths): width of a cell."""
    cumulative: Array
    """Shape (n, lengths, CELLS + 1): probability of the first 0, 1, … cells together."""

    def share_within(self, seconds: Array) -> Array:
        """Return the share of requests within each of `seconds`, shape (n, times) of both."""
        return self._share_in(self._cells_within(seconds))

    def quantiles(self, shares: Array) -> Array:
        """Return the times within which `shares` of the requests are, shape (n, shares).

        Bisects the time until at most one cell of each length and speed bin lies between the bounds. The quantile is
        the time of one of these cells: the first that completes the share.
        """
        max_prefill_share = (self.low + CELLS * self.width).max(axis=1)
        max_s = self.base_s.max(axis=(1, 2)) * (1 + self.stall_share * max_prefill_share)
        low_s = np.repeat(self.base_s.min(axis=(1, 2))[:, None] * (1 - 1e-12), len(shares), axis=1)
        high_s = np.repeat(max_s[:, None], len(shares), axis=1)
        below, above = (self._cells_within(bound) for bound in (low_s, high_s))
        while True:
            middle_s = (low_s + high_s) / 2
            open_rows = (above - below > 1).any(axis=2) & (middle_s > low_s) & (middle_s < high_s)
            if not open_rows.any():
                break
            cells = self._cells_within(middle_s)
            too_short = self._share_in(cells) < shares
            raised, lowered = open_rows & too_short, open_rows & ~too_short
            low_s, high_s = np.where(raised, middle_s, low_s), np.where(lowered, middle_s, high_s)
            below, above = np.where(raised[:, :, None], cells, below), np.where(lowered[:, :, None], cells, above)
        slope, offset = self._cells_by_time
        cell_s = np.where(above > below, (below + 1 + offset) / slope, np.inf)
        order = np.argsort(cell_s, axis=2, kind="stable")
        weight = (self._cumulative_at(np.minimum(below + 1, CELLS)) - self._cumulative_at(below)) * self._probability
        added = np.cumsum(np.take_along_axis(weight, order, axis=2), axis=2)
        missing = shares - self._share_in(below)
        last = np.maximum((above > below).sum(axis=2) - 1, 0)
        index = np.minimum((added < missing[:, :, None]).sum(axis=2), last)[:, :, None]
        quantile_s: Array = np.take_along_axis(np.take_along_axis(cell_s, order, axis=2), index, axis=2)[:, :, 0]
        return np.where(np.isfinite(quantile_s), quantile_s, high_s)

    @cached_property
    def _cells_by_time(self) -> tuple[Array, Array]:
        """Slope and offset, shape (n, 1, lengths x bins): `seconds * slope - offset` cells lie within `seconds`."""
        stall_per_cell = self.stall_share[:, None] * self.width
        slope = 1 / (self.base_s * stall_per_cell[:, :, None])
        offset = (1 + self.stall_share[:, None] * self.low) / stall_per_cell - 0.5
        offset = np.repeat(offset, self.base_s.shape[2], axis=1)
        return slope.reshape(len(slope), 1, -1), offset[:, None, :]

    @cached_property
    def _first_index(self) -> NDArray[np.intp]:
        """Flat index in `cumulative` of the first cell of each length and bin, shape (n, 1, lengths x bins)."""
        n, lengths, bins = self.base_s.shape
        return np.repeat(np.arange(n * lengths) * (CELLS + 1), bins).reshape(n, 1, -1)

    @cached_property
    def _probability(self) -> Array:
        """Probability of each length and bin, shape (lengths x bins,)."""
        lengths = self.base_s.shape[1]
        probability: Array = np.tile(np.diff(SPEED_BINS), lengths) / lengths
        return probability

    def _cells_within(self, seconds: Array) -> NDArray[np.intp]:
        """Return the number of cells of each length and bin within `seconds`, shape (n, times, lengths x bins)."""
        slope, offset = self._cells_by_time
        cells: NDArray[np.intp] = np.clip(seconds[:, :, None] * slope - offset, 0, CELLS).astype(np.intp)
        return cells

    def _cumulative_at(self, cells: NDArray[np.intp]) -> Array:
        """Return the probability of the first `cells` cells of each length and bin."""
        cumulative: Array = self.cumulative.take(cells + self._first_index)
        return cumulative

    def _share_in(self, cells: NDArray[np.intp]) -> Array:
        """Return the share of requests in the first `cells` cells of each length and bin, shape (n, times)."""
        share: Array = (self._cumulative_at(cells) * self._probability).sum(axis=2)
        return share


def tpot_distribution(service: ServiceTimes, state: SteadyState, generated: Lengths) -> TpotDistribution:
    """Return the distribution of a request's mean time between tokens.

    It varies with the batch over the life of the request and with the prefills of other requests. A short output sees
    one state of the batch and of the prefill queue, so it varies most. Over a longer life both variances shrink as
    for a process that forgets exponentially: the batch within a mean residence, the prefill queue within
    `memory_steps`. The share of steps with a prefill is Beta distributed.
    """
    prefills, states = state.prefills, state.states
    step_s = service.step_s(np.maximum(states.requests, 1.0))
    # Weighted by tokens, not by time: a state of slow steps lasts longer but gives no more tokens.
    token_weight = states.weight * states.requests / step_s + 1e-300
    token_weight = token_weight / token_weight.sum(axis=1, keepdims=True)
    bin_s = _bin_means(step_s, token_weight)
    mean_s = (bin_s * np.diff(SPEED_BINS)).sum(axis=1)
    steps = np.maximum(generated.rows - 1, 1.0)
    batch_lives = steps / np.maximum(generated.rows.mean(axis=1) - 1, 1.0)[:, None]
    batch_sd = np.sqrt(_average_variance(batch_lives))
    base_s = mean_s[:, None, None] + batch_sd[:, :, None] * (bin_s - mean_s[:, None])[:, None, :]

    queue_lives = steps / prefills.memory_steps[:, None]
    settling = -np.expm1(-queue_lives) / queue_lives
    prefill_share = prefills.busy_steps[:, None]
    prefill_share = prefill_share + np.maximum(prefills.followed - prefills.busy_steps, 0.0)[:, None] * settling
    prefill_share = prefill_share * (prefills.chunk_s / prefills.stall_s)[:, None]
    spread = np.clip(np.maximum(_average_variance(queue_lives), 1 / steps), 1e-6, 1 - 1e-6)
    low, width, probability = _beta_cells(np.clip(prefill_share, 1e-6, 1 - 1e-6), 1 / spread - 1)
    cumulative = np.zeros((*probability.shape[:2], CELLS + 1))
    np.cumsum(probability, axis=2, out=cumulative[:, :, 1:])
    # A stall is a share of the mean step: the longer a step takes, the more prompts arrive during it.
    return TpotDistribution(base_s, prefills.stall_s / mean_s, low, width, cumulative)


def _bin_means(values: Array, weight: Array) -> Array:
    """Return the weighted mean of `values` in each bin of `SPEED_BINS`, rising, shape (n, bins)."""
    order = np.argsort(values, axis=1)
    rising = np.take_along_axis(values, order, axis=1)
    passed = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    inside = np.diff(
        np.minimum(np.concatenate([np.zeros((len(values), 1)), passed], axis=1)[:, :, None], SPEED_BINS), axis=1
    )
    share = np.diff(inside, axis=2)
    means: Array = (share * rising[:, :, None]).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
    return means


def _average_variance(lives: Array) -> Array:
    """Return the variance of an average over `lives` memory times of a process of variance 1 that forgets
    exponentially."""
    lives = np.maximum(lives, 1e-4)
    return 2 / lives * (1 + np.expm1(-lives) / lives)


def _beta_cells(mean: Array, strength: Array) -> tuple[Array, Array, Array]:
    """Return the cells of Beta(a, b) with this mean and a + b = `strength`.

    The beginning and the width of a cell have shape (n, lengths), its probability has shape (n, lengths, CELLS).
    """
    a, b = (mean * strength)[..., None], ((1 - mean) * strength)[..., None]
    sd = np.sqrt(mean * (1 - mean) / (strength + 1))
    low, high = np.maximum(mean - 4 * sd, 0.0)[..., None], np.minimum(mean + 4 * sd, 1.0)[..., None]
    width = (high - low) / CELLS
    centres = low + width * (np.arange(CELLS) + 0.5)
    log_density = (a - 1) * np.log(centres) + (b - 1) * np.log1p(-np.minimum(centres, 1 - 1e-12))
    # The density may be infinite at 0 and 1. A cell that reaches either takes its integral instead.
    log_density[..., :1] += np.where(low == 0, (a - 1) * np.log(2) - np.log(a), 0.0)
    log_density[..., -1:] += np.where(high == 1, (b - 1) * np.log(2) - np.log(b), 0.0)
    probability = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    return low[..., 0], width[..., 0], probability / probability.sum(axis=-1, keepdims=True)


MAX_STEPS = 100
"""Of a search; it takes a few."""
TOLERANCE = 1e-14
"""Relative tolerance of the result, near rounding error."""


def crossing(rising: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return where functions rise to 0 between `low` and `high`, shape (n,); `low` where they are there already, `high`
    where they are not there yet.

    By false position (Illinois: Dowell and Jarratt, 1971), which ends at once for a straight line.
    """
    at_low, at_high = rising(low), rising(high)
    crossing_at = np.where(at_low >= 0, low, high)
    is_open = (at_low < 0) & (at_high > 0)
    side = np.zeros(len(low))
    for _ in range(MAX_STEPS):
        if not is_open.any():
            break
        apart = np.where(is_open, at_high - at_low, 1.0)
        middle = (low * at_high - high * at_low) / apart
        middle = np.where((middle > low) & (middle < high), middle, (low + high) / 2)
        value = rising(middle)
        converged = np.abs(value) * (high - low) <= TOLERANCE * np.abs(middle) * apart
        below = value < 0
        # An end that stays twice counts half, so that the next point lies beyond what is sought.
        at_high = np.where(below, np.where(side < 0, at_high / 2, at_high), value)
        at_low = np.where(below, value, np.where(side > 0, at_low / 2, at_low))
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        side = np.where(below, -1.0, 1.0)
        crossing_at = np.where(is_open, middle, crossing_at)
        is_open &= ~converged & (high - low > TOLERANCE * np.abs(high))
    return crossing_at


NO_LIMIT_S = 1e9
"""Seconds that stand for no limit: 30 years."""


@dataclass(frozen=True, slots=True)
class TtftDistribution:
    """Time to first token: wait for a place, wait for earlier prefills, half a step, and the request's own prefill
    with the decode steps between its chunks."""

    own_s: Array
    """Shape (n, lengths): seconds of the own prefill by prompt length, rising."""
    place_wait_s: Array
    """Shape (n,): mean wait for a place in the batch, of requests that wait for one."""
    place_wait_share: Array
    """Shape (n,): share of requests that wait for a place."""
    prefill_wait_s: Array
    """Shape (n,): mean wait for earlier prefills, of requests that wait for one."""
    prefill_wait_share: Array
    """Shape (n,): share of requests that wait for earlier prefills."""

    @classmethod
    def of(cls, service: ServiceTimes, state: SteadyState) -> TtftDistribution:
        """Return the distribution in a steady state of the same rows."""
        prefills = state.prefills
        own_s = service.prefill_s + (service.prefill_steps + 0.5) * prefills.step_s[:, None]
        work_s = service.prefill_s * (1 + prefills.step_s / prefills.chunk_s)[:, None]
        prefill_wait_s = np.square(work_s).mean(axis=1) / (2 * work_s.mean(axis=1)) / (1 - prefills.busy)
        return cls(own_s, state.wait_s, state.wait_share, prefill_wait_s, prefills.busy)

    def share_longer_than(self, seconds: Array, possible: Array | None = None) -> Array:
        """Return the share of requests that take longer than each of `seconds`, shape (n, times) of both.

        Both waits are exponential. `possible`, shape (n, times, lengths): prompts that can be done within the time; by
        default all with an own prefill that is not longer.
        """
        a, b = 1 / self.place_wait_s, 1 / self.prefill_wait_s
        b = np.where(np.abs(a - b) < 1e-6 * a, b * (1 + 1e-5), b)  # the sum of two equal ones has another formula
        a, b, p, q = (array[:, None, None] for array in (a, b, self.place_wait_share, self.prefill_wait_share))
        seconds, own_s = seconds[:, :, None], self.own_s[:, None, :]
        left_s = np.maximum(seconds - own_s, 0.0)
        place_tail, prefill_tail = np.exp(-a * left_s), np.exp(-b * left_s)
        sum_tail = (b * place_tail - a * prefill_tail) / (b - a)
        tail = p * (1 - q) * place_tail + (1 - p) * q * prefill_tail + p * q * sum_tail
        shares: Array = np.where(seconds >= own_s if possible is None else possible, tail, 1.0).mean(axis=2)
        return shares

    def quantile(self, share: float) -> Array:
        """Return the time within which a share of requests have their first token, shape (n,)."""
        n, lengths = self.own_s.shape
        rows = np.arange(n)
        # The share that takes longer falls in a step at the own prefill of each length: the search stays between two.
        lengths_within = (self.share_longer_than(self.own_s) > 1 - share).sum(axis=1)
        possible = np.arange(lengths) < lengths_within[:, None]
        low_s = self.own_s[rows, np.maximum(lengths_within - 1, 0)]
        max_s = self.own_s[:, -1] + 60 * (self.place_wait_s + self.prefill_wait_s)
        high_s = np.where(lengths_within < lengths, self.own_s[rows, np.minimum(lengths_within, lengths - 1)], max_s)

        def spare(seconds: Array) -> Array:
            """Return the logarithm of the allowed over the present share: nearly linear for exponential tails."""
            longer = np.maximum(self.share_longer_than(seconds[:, None], possible[:, None, :])[:, 0], 1e-300)
            return np.log((1 - share) / longer)

        return np.where(lengths_within == 0, self.own_s[:, 0], crossing(spare, low_s, high_s))


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """Steady states, one row per candidate. Where a load exceeds the capacity, the queue grows without end: waiting
    and TTFT are infinite, and the other figures are of a full batch."""

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
        return self.utilization >= MAX_UTILIZATION


def under_load(
    service: ServiceTimes, requests_per_s: Array, generated: Lengths, shares: tuple[float, ...] = (0.5, 0.95)
) -> UnderLoad:
    """Return the steady state of each candidate at its arrival rate, shape (n,), requests/s of one replica, above 0.

    `shares`: quantiles of TTFT and TPOT to compute. Raises ValueError for a rate or share that is out of range.
    """
    rate = np.asarray(requests_per_s, dtype=float)
    if not np.all(rate > 0) or not all(0 < share < 1 for share in shares):
        raise ValueError("arrival rates are above 0, and shares of requests between 0 and 1")
    state = steady_state(service, rate, generated)
    ttft = TtftDistribution.of(service, state)
    ttft_s = np.stack([ttft.quantile(share) for share in shares], axis=1)
    return UnderLoad(
        state.capacity_per_s,
        rate / state.capacity_per_s,
        state.states.running,
        np.where(state.stable, state.wait_share * rate * state.wait_s, np.inf),
        np.minimum(rate, state.capacity_per_s) * generated.rows.mean(axis=1),
        np.where(state.stable[:, None], ttft_s, np.inf),
        tpot_distribution(service, state, generated).quantiles(np.array(shares)),
    )


def overrun(
    service: ServiceTimes, requests_per_s: Array, generated: Lengths, limits_s: Array, shares: tuple[float, ...]
) -> NDArray[np.bool_]:
    """Return whether loads exceed the capacity or a quantile of `under_load` exceeds its limit, shape (n,).

    `limits_s`, shape (n, 2 x shares): seconds of TTFT and then of TPOT at each of `shares`; `NO_LIMIT_S` where there is
    none. Cheaper than quantiles: the 95th percentile exceeds a limit exactly where over 5 % of the requests do.
    """
    state = steady_state(service, np.asarray(requests_per_s, dtype=float), generated)
    ttft_s, tpot_s = np.split(limits_s, 2, axis=1)
    exceeds, allowed = ~state.stable, 1 - np.array(shares)
    if (ttft_s < NO_LIMIT_S).any():
        exceeds |= (TtftDistribution.of(service, state).share_longer_than(ttft_s) > allowed).any(axis=1)
    if (tpot_s < NO_LIMIT_S).any():
        exceeds |= (1 - tpot_distribution(service, state, generated).share_within(tpot_s) > allowed).any(axis=1)
    return exceeds
