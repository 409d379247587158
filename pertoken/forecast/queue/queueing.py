"""Steady state of continuous batching under a load: requests running and waiting, TTFT and TPOT with percentiles.

A deployment is a queue with a rate of finished requests that depends on the number running:
`running / (E[output] x step time + running x E[prefill time])`. With Poisson arrivals, the number of requests in it is
a birth-death chain. While all requests run, processor sharing makes it insensitive to the shape of the output lengths
(Cohen 1979). Beyond the batch limit requests wait in order: the wait of an M/M/c queue times (1 + cv²)/2 of the time
that a request keeps its place (Lee and Longton 1959). Prefills are computed in order of arrival: an M/G/1 queue in
front of the batch. All arrays have one row per candidate.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Array, Lengths
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.steady_state import MAX_UTILIZATION, SteadyState, steady_state
from pertoken.forecast.queue.tpot import tpot_distribution
from pertoken.forecast.search import crossing

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
    def of(cls, service: Service, state: SteadyState) -> "TtftDistribution":
        """Return the distribution in a steady state of the same rows."""
        prefills = state.prefills
        own_s = service.prefill_s + (service.prefill_steps + 0.5) * prefills.step_s[:, None]
        work_s = service.prefill_s * (1 + prefills.step_s / prefills.chunk_s)[:, None]
        prefill_wait_s = np.square(work_s).mean(axis=1) / (2 * work_s.mean(axis=1)) / (1 - prefills.busy)
        return cls(own_s, state.wait_s, state.wait_share, prefill_wait_s, prefills.busy)

    def share_longer_than(self, seconds: Array, possible: Array | None = None) -> Array:
        """Return the share of requests that take longer than each of `seconds`, shape (n, times) of both.

        Both waits are exponential. `possible`, shape (n, times, lengths): prompts that can be done within the time; by
        default those with an own prefill that is not longer.
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
    and TTFT are infinite, and the other figures are those of a full batch."""

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
    service: Service, requests_per_s: Array, generated: Lengths, limits_s: Array, shares: tuple[float, ...]
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
