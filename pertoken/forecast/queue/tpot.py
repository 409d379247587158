"""Distribution of the time per output token over the requests of one replica."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pertoken.arrivals import Array, Lengths
from pertoken.forecast.queue.chain import Service
from pertoken.forecast.queue.steady_state import SteadyState

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


def tpot_distribution(service: Service, state: SteadyState, generated: Lengths) -> TpotDistribution:
    """Return the distribution of a request's mean time between tokens.

    It varies with the batch over the life of the request and with the prefills of other requests. A short output sees
    one state of the batch and of the prefill queue, so it varies most. Over a longer life both variances shrink as
    those of a process that forgets exponentially: the batch within a mean residence, the prefill queue within
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
