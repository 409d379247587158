"""Distribution of the time to first token over the requests of one replica."""

from dataclasses import dataclass

import numpy as np

from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.load import Array
from pertoken.forecast.queue.steady_state import SteadyState
from pertoken.forecast.search import crossing


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
