"""Steady state of continuous batching under a load: requests running and waiting, TTFT and TPOT with percentiles.

A deployment is a queue whose rate of finished requests depends on how many run: `running / (E[answer] x step time +
running x E[prefill time])`. With Poisson arrivals the number of requests there is a birth-death chain; processor
sharing makes it insensitive to the shape of the answers' lengths (Cohen 1979) while everybody runs. Beyond the batch
limit requests wait in order; the wait of an M/M/c queue is scaled by (1 + cv²)/2 of the time a slot is held
(Lee and Longton 1959). Prefills are computed in order of arrival: an M/G/1 queue in front of the batch. Everything is
an array with one row per candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pertoken.forecast.queue.chain import Chain, Service, States
from pertoken.forecast.queue.load import Array, Lengths
from pertoken.forecast.search import crossing

MAX_UTILIZATION = 1 - 1e-9
"""Utilization from which a load counts as above the capacity: rounding decides no nearer."""
LEVELS = np.array([0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.87, 0.95, 1.0])
"""Parts the speeds of a step over the states of the batch are divided into: finer where a 95th percentile lies."""
CELLS = 24
"""Parts the share of steps with a prefill is divided into."""


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
    service: Service, requests_per_s: Array, generated: Lengths, shares: tuple[float, ...] = (0.5, 0.95)
) -> UnderLoad:
    """Return the steady state of each candidate at its arrival rate, shape (n,), requests/s of one replica, above 0.

    `shares`: which quantiles of TTFT and TPOT. Raises ValueError for a rate or share that is out of range.
    """
    rate = np.asarray(requests_per_s, dtype=float)
    if not np.all(rate > 0) or not all(0 < share < 1 for share in shares):
        raise ValueError("arrival rates are above 0, and shares of requests between 0 and 1")
    at = _steady(service, rate, generated)
    ttft = _ttft(service, at, shares)
    tpot = _tpot(service, at, generated, shares)
    return UnderLoad(
        at.capacity,
        rate / at.capacity,
        at.states.running,
        np.where(at.stable, at.waits * rate * at.wait_s, np.inf),
        np.minimum(rate, at.capacity) * generated.rows.mean(axis=1),
        np.where(at.stable[:, None], ttft, np.inf),
        tpot,
    )


@dataclass(frozen=True, slots=True)
class Beyond:
    """Shares of requests beyond limits, one row per candidate: cheaper than the quantiles they decide about."""

    saturated: NDArray[np.bool_]
    """Shape (n,): whether the load exceeds the capacity; every TTFT is beyond its limit then."""
    ttft: Array
    """Shape (n, limits)."""
    tpot: Array
    """Shape (n, limits)."""


def beyond(
    service: Service, requests_per_s: Array, generated: Lengths, ttft_s: Sequence[float], tpot_s: Sequence[float]
) -> Beyond:
    """Return how many requests wait longer than limits, as shares: a quantile exceeds a limit where more do.

    Arguments as for `under_load`; the limits are seconds.
    """
    rate = np.asarray(requests_per_s, dtype=float)
    at = _steady(service, rate, generated)
    late = np.ones((len(rate), len(ttft_s)))
    if ttft_s:
        wait = _Wait.of(service, at)
        limits = np.broadcast_to(np.array(ttft_s), late.shape)
        late = np.where(at.stable[:, None], wait.longer_than(limits), 1.0)
    slow = np.ones((len(rate), len(tpot_s)))
    if tpot_s:
        slow = 1 - _between_tokens(service, at, generated).within(np.broadcast_to(np.array(tpot_s), slow.shape))
    return Beyond(~at.stable, late, slow)


def capacity_per_s(service: Service, generated: Lengths) -> Array:
    """Return the requests/s that a full batch of each candidate finishes, shape (n,)."""
    limit = np.maximum(service.limit, 1.0)
    return Chain.of(service, generated, limit).finished_per_s(limit[:, None])[:, 0]


@dataclass(frozen=True, slots=True)
class _Steady:
    """The steady state that all quantiles are computed from, one row per candidate."""

    capacity: Array
    stable: NDArray[np.bool_]
    states: States
    waits: Array
    """Share of requests that wait for a place in the batch."""
    wait_s: Array
    """Mean wait of those."""
    queue: "_Prefills"


def _steady(service: Service, rate: Array, generated: Lengths) -> _Steady:
    limit = np.maximum(service.limit, 1.0)
    chain = Chain.of(service, generated, limit)
    capacity = chain.finished_per_s(limit[:, None])[:, 0]
    stable = rate / capacity < MAX_UTILIZATION
    states = chain.states(np.where(stable, rate, 0.5 * capacity), capacity)
    waits = np.where(stable, states.full, 1.0)
    running = np.where(stable, states.running, limit)
    spare = np.maximum(capacity - rate, 1e-9 * capacity)
    wait_s = (1 + chain.held_cv2()) / 2 / spare
    queue = _prefills(
        service, np.minimum(rate, capacity), service.step_s(np.maximum(running, 1.0)[:, None])[:, 0], waits
    )
    busy = np.where(stable[:, None], states.requests, limit[:, None])
    return _Steady(capacity, stable, replace(states, requests=busy, running=running), waits, wait_s, queue)


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
    """Shape (n,): share of prompts that leave another one waiting."""
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


@dataclass(frozen=True, slots=True)
class _Wait:
    """Time to first token: wait for a place, wait for earlier prefills, half a step, the own prefill beside decode."""

    own: Array
    """Shape (n, lengths): seconds of the own prefill, rising."""
    behind_s: Array
    """Shape (n,): mean wait for earlier prefills, of those who wait for any."""
    wait_s: Array
    """Shape (n,): mean wait for a place, of those who wait for one."""
    waits: Array
    busy: Array
    """Shape (n,): shares of requests that wait for a place, and for earlier prefills."""

    @classmethod
    def of(cls, service: Service, at: _Steady) -> "_Wait":
        queue = at.queue
        own = service.prefill_s + (service.prefill_steps + 0.5) * queue.step[:, None]
        work = service.prefill_s * (1 + queue.step / queue.chunk)[:, None]
        behind_s = np.square(work).mean(axis=1) / (2 * work.mean(axis=1)) / (1 - queue.busy)
        return cls(own, behind_s, at.wait_s, at.waits, queue.busy)

    def longer_than(self, seconds: Array, begun: Array | None = None) -> Array:
        """Return the share of requests that take longer than each of some times, shape (n, times) of both.

        `begun`, shape (n, times, lengths): which prompts could be done by then; by default those whose own prefill is
        not longer.
        """
        a, b = 1 / self.wait_s, 1 / self.behind_s
        b = np.where(np.abs(a - b) < 1e-6 * a, b * (1 + 1e-5), b)
        a, b, p, q = (array[:, None, None] for array in (a, b, self.waits, self.busy))
        seconds, own = seconds[:, :, None], self.own[:, None, :]
        late = np.maximum(seconds - own, 0.0)
        first, second = np.exp(-a * late), np.exp(-b * late)
        both = (b * first - a * second) / (b - a)
        tail = p * (1 - q) * first + (1 - p) * q * second + p * q * both
        shares: Array = np.where(seconds >= own if begun is None else begun, tail, 1.0).mean(axis=2)
        return shares

    def quantile(self, share: float) -> Array:
        """Return the time within which a share of requests have their first token, shape (n,)."""
        n, lengths = self.own.shape
        rows = np.arange(n)
        # Where the own prefill of a length ends, the share that takes longer falls in a step.
        reached = (self.longer_than(self.own) > 1 - share).sum(axis=1)
        begun = np.arange(lengths) < reached[:, None]
        low = self.own[rows, np.maximum(reached - 1, 0)]
        most = self.own[:, -1] + 60 * (self.wait_s + self.behind_s)
        high = np.where(reached < lengths, self.own[rows, np.minimum(reached, lengths - 1)], most)

        def spare(seconds: Array) -> Array:  # by logarithms, in which the tail of a wait is straight
            longer = np.maximum(self.longer_than(seconds[:, None], begun[:, None, :])[:, 0], 1e-300)
            return np.log((1 - share) / longer)

        return np.where(reached == 0, self.own[:, 0], crossing(spare, low, high))


def _ttft(service: Service, at: _Steady, shares: tuple[float, ...]) -> Array:
    """Return quantiles of the time to first token."""
    wait = _Wait.of(service, at)
    return np.stack([wait.quantile(share) for share in shares], axis=1)


def _tpot(service: Service, at: _Steady, generated: Lengths, shares: tuple[float, ...]) -> Array:
    """Return quantiles of a request's mean time between tokens."""
    return _between_tokens(service, at, generated).quantiles(np.array(shares))


@dataclass(frozen=True)
class _BetweenTokens:
    """A request's mean time between tokens: by the length of its answer, by the speed of the steps it sees (its part),
    and by how many of its steps carry a prefill (its cell). Each length is as likely as another."""

    base: Array
    """Shape (n, lengths, parts): seconds without prefills, in parts that are as likely as `LEVELS` has them."""
    stalled: Array
    """Shape (n,): by how much a prefill in each step lengthens it, as a share."""
    low: Array
    width: Array
    """Shape (n, lengths): cells of the share of steps with a prefill."""
    passed: Array
    """Shape (n, lengths, CELLS + 1): probability of each count of the first cells."""

    def within(self, seconds: Array) -> Array:
        """Return the share of requests within each of some times, shape (n, times) of both."""
        return self._passed(self._cells(seconds))

    def quantiles(self, shares: Array) -> Array:
        """Return the times within which shares of requests are, shape (n, shares).

        Halves the time until one cell at most is left of each length and part: the first that makes up the share.
        """
        most = (self.low + CELLS * self.width).max(axis=1)
        longest = self.base.max(axis=(1, 2)) * (1 + self.stalled * most)
        low = np.repeat(self.base.min(axis=(1, 2))[:, None] * (1 - 1e-12), len(shares), axis=1)
        high = np.repeat(longest[:, None], len(shares), axis=1)
        below, above = (self._cells(bound) for bound in (low, high))
        while True:
            middle = (low + high) / 2
            several = (above - below > 1).any(axis=2) & (middle > low) & (middle < high)
            if not several.any():
                break
            cells = self._cells(middle)
            short = self._passed(cells) < shares
            up, down = several & short, several & ~short
            low, high = np.where(up, middle, low), np.where(down, middle, high)
            below, above = np.where(up[:, :, None], cells, below), np.where(down[:, :, None], cells, above)
        seconds = np.where(above > below, (below + 1 + self._lines[1]) / self._lines[0], np.inf)
        order = np.argsort(seconds, axis=2, kind="stable")
        weight = (self._taken(np.minimum(below + 1, CELLS)) - self._taken(below)) * self._likely
        passed = np.cumsum(np.take_along_axis(weight, order, axis=2), axis=2)
        missing = shares - self._passed(below)
        last = np.maximum((above > below).sum(axis=2) - 1, 0)
        place = np.minimum((passed < missing[:, :, None]).sum(axis=2), last)[:, :, None]
        quantile_s: Array = np.take_along_axis(np.take_along_axis(seconds, order, axis=2), place, axis=2)[:, :, 0]
        return np.where(np.isfinite(quantile_s), quantile_s, high)

    @cached_property
    def _lines(self) -> tuple[Array, Array]:
        """Slope and offset of each length and part, shape (n, 1, lengths x parts): cells within a number of seconds."""
        per_cell = self.stalled[:, None] * self.width
        slope = 1 / (self.base * per_cell[:, :, None])
        offset = np.repeat((1 + self.stalled[:, None] * self.low) / per_cell - 0.5, self.base.shape[2], axis=1)
        return slope.reshape(len(slope), 1, -1), offset[:, None, :]

    @cached_property
    def _first(self) -> NDArray[np.intp]:
        """Places of the first cells of each length and part in `passed`, shape (n, 1, lengths x parts)."""
        n, lengths, parts = self.base.shape
        return np.repeat(np.arange(n * lengths) * (CELLS + 1), parts).reshape(n, 1, -1)

    @cached_property
    def _likely(self) -> Array:
        """Probability of each length and part, shape (lengths x parts,)."""
        lengths = self.base.shape[1]
        likely: Array = np.tile(np.diff(LEVELS), lengths) / lengths
        return likely

    def _cells(self, seconds: Array) -> NDArray[np.intp]:
        """Return how many cells of each length and part are within some times, shape (n, times, lengths x parts)."""
        slope, offset = self._lines
        cells: NDArray[np.intp] = np.clip(seconds[:, :, None] * slope - offset, 0, CELLS).astype(np.intp)
        return cells

    def _taken(self, cells: NDArray[np.intp]) -> Array:
        """Return the probability of a count of the first cells, for each length and part."""
        passed: Array = self.passed.take(cells + self._first)
        return passed

    def _passed(self, cells: NDArray[np.intp]) -> Array:
        """Return the share of requests in a count of the first cells, shape (n, times)."""
        passed: Array = (self._taken(cells) * self._likely).sum(axis=2)
        return passed


def _between_tokens(service: Service, at: _Steady, generated: Lengths) -> _BetweenTokens:
    """Return the distribution of a request's mean time between tokens: the batch over its life, and others' prefills.

    A short answer sees one state of the batch and of the prefill queue, so it varies most. Averaging over a life
    shrinks both variances by that of a process that forgets exponentially: the batch within a mean residence, the
    prefill queue within `run` steps. The share of its steps that carry a prefill is Beta distributed.
    """
    queue, states = at.queue, at.states
    step = service.step_s(np.maximum(states.requests, 1.0))
    # By tokens, not by time: a state of slow steps lasts longer but gives no more of them.
    seen = states.weight * states.requests / step + 1e-300
    seen = seen / seen.sum(axis=1, keepdims=True)
    level = _levels(step, seen)
    mean = (level * np.diff(LEVELS)).sum(axis=1)
    steps = np.maximum(generated.rows - 1, 1.0)
    shrunk = np.sqrt(_averaged(steps / np.maximum(generated.rows.mean(axis=1) - 1, 1.0)[:, None]))
    base = mean[:, None, None] + shrunk[:, :, None] * (level - mean[:, None])[:, None, :]

    lives = steps / queue.run[:, None]
    settling = -np.expm1(-lives) / lives
    middle = queue.busy_steps[:, None] + np.maximum(queue.followed - queue.busy_steps, 0.0)[:, None] * settling
    middle = middle * (queue.chunk / queue.stall)[:, None]
    spread = np.clip(np.maximum(_averaged(lives), 1 / steps), 1e-6, 1 - 1e-6)
    low, width, share = _beta(np.clip(middle, 1e-6, 1 - 1e-6), 1 / spread - 1)
    passed = np.zeros((*share.shape[:2], CELLS + 1))
    np.cumsum(share, axis=2, out=passed[:, :, 1:])
    # The longer a step takes, the more prompts come in it.
    return _BetweenTokens(base, queue.stall / mean, low, width, passed)


def _levels(values: Array, weight: Array) -> Array:
    """Weighted values, rising, as the mean of each part of `LEVELS`, shape (n, parts)."""
    order = np.argsort(values, axis=1)
    rising = np.take_along_axis(values, order, axis=1)
    passed = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
    inside = np.diff(
        np.minimum(np.concatenate([np.zeros((len(values), 1)), passed], axis=1)[:, :, None], LEVELS), axis=1
    )
    share = np.diff(inside, axis=2)
    levels: Array = (share * rising[:, :, None]).sum(axis=1) / np.maximum(share.sum(axis=1), 1e-300)
    return levels


def _averaged(lives: Array) -> Array:
    """Variance of an average over this many memory times of a process that forgets exponentially, 1 for none."""
    lives = np.maximum(lives, 1e-4)
    return 2 / lives * (1 + np.expm1(-lives) / lives)


def _beta(mean: Array, strength: Array) -> tuple[Array, Array, Array]:
    """Cells of a Beta distribution: where they begin and how wide each is, shape (n, lengths), and their probability,
    shape (n, lengths, CELLS). a + b is its strength."""
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
    return low[..., 0], width[..., 0], share / share.sum(axis=-1, keepdims=True)
