"""Calibration of the serving model on what one host itself measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.calibration import Posterior, activity, first_token, per_token, posterior
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import filling_sequences, fitting_sequences
from pertoken.forecast.efficiency import deviation, efficiency, rows_times, transfer
from pertoken.forecast.kinds import kinds_of
from pertoken.forecast.served import Abstained, Load, resolve_each, stack_rows
from pertoken.forecast.steady import steady
from pertoken.state.deployment import Deployment

SOME_WAIT = 0.1
"""Waiting requests from which a measured TTFT says more of the queue than of prefill."""
MUCH_OF_CACHE = 0.3
"""Use of the KV cache from which it tells how many sequences fill it: below, fixed blocks and prefixes blur it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a host's own measurements say of the model: shared by before and after, so that a ratio is honest."""

    origin: Deployment | None = None
    """Where it was measured."""
    mean: tuple[float, ...] = ()
    """Deviations of log times, in the order of `Deviation.names`; empty where nothing was measured."""
    covariance: tuple[tuple[float, ...], ...] = ()
    capacity: float = 1.0
    """Factor on the sequences that fit; at least what was seen running."""
    log_time: float = 0.0
    """Logarithm of the measured step time over the uncalibrated one."""

    @property
    def measured(self) -> bool:
        """Whether anything was measured."""
        return self.origin is not None

    @property
    def posterior(self) -> Posterior:
        """As one row; the prior itself where nothing was measured."""
        prior = deviation()
        if self.origin is None:
            return Posterior(np.zeros((1, len(prior.sd))), np.diag(prior.sd**2)[None])
        return Posterior(np.array([self.mean]), np.array([self.covariance]))

    def kept(self, deployment: Deployment) -> Array:
        """Share of each deviation that holds for a deployment: the further from where it was measured, the less."""
        return transfer(kinds_of(self.origin, deployment) if self.origin is not None else ())

    def shift_for(self, deployment: Deployment) -> Array:
        """What is added to the log times of the terms of a deployment, shape (1, number of `TERMS`)."""
        return rows_times(self.posterior.mean * self.kept(deployment), deviation().groups)


def calibrate(
    deployment: Deployment,
    load: Load,
    market: Market,
    busy_tok_s: float,
    tpot_ms: float | None = None,
    *,
    ttft_ms: float | None = None,
    kv_use: float | None = None,
    memory_active: float | None = None,
    products_active: float | None = None,
) -> Calibration:
    """The deviations from the fitted table that make the model agree with what was measured while busy.

    All at the load's running requests, None where not measured. `busy_tok_s`: generated tokens per second of busy
    time. `tpot_ms`: milliseconds per token after the first. `ttft_ms`: milliseconds to the first token, used only
    where nobody waited. `kv_use`: share of the KV cache in use. `memory_active`, `products_active`: share of the
    listed memory bandwidth and rate of products used, by the driver's counters (DRAM and tensor activity) or the
    engine's bytes and FLOPs. Raises Abstained as `forecast` does, ValueError for one that is not above 0.
    """
    measured = Measured(deployment, load, busy_tok_s, tpot_ms, ttft_ms, kv_use, memory_active, products_active)
    (one,) = calibrate_all([measured], market)
    if isinstance(one, Exception):
        raise one
    return one


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured on a deployment; see `calibrate`."""

    deployment: Deployment
    load: Load
    busy_tok_s: float
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    kv_use: float | None = None
    memory_active: float | None = None
    products_active: float | None = None

    @property
    def possible(self) -> bool:
        """Whether all of it is above 0."""
        figures = self.busy_tok_s, self.tpot_ms, self.ttft_ms, self.kv_use, self.memory_active, self.products_active
        return all(each is None or each > 0 for each in figures)


def calibrate_all(seen: Sequence[Measured], market: Market) -> list[Calibration | Abstained | ValueError]:
    """Calibrate several deployments side by side, each on its own measurements; an error in place of a result."""
    resolved = resolve_each([(each.deployment, each.load) for each in seen], market)
    found: list[Calibration | Abstained | ValueError] = []
    for each, row in zip(seen, resolved, strict=True):
        if not each.possible:
            found.append(ValueError("calibration needs rates, times and shares above 0"))
        else:
            found.append(row if isinstance(row, Abstained) else Calibration())
    rows = [place for place, each in enumerate(found) if isinstance(each, Calibration)]
    if rows:
        candidates = stack_rows([row for place in rows if not isinstance(row := resolved[place], Abstained)])
        for place, one in zip(rows, _calibrated([seen[place] for place in rows], candidates), strict=True):
            found[place] = one
    return found


def _calibrated(seen: Sequence[Measured], c: Candidates) -> list[Calibration]:
    running = np.array([max(1.0, each.load.running) for each in seen])
    token_s = running / np.array([each.busy_tok_s for each in seen])
    prior, table = deviation(), efficiency()
    waits = np.array([each.load.waiting >= SOME_WAIT for each in seen])
    tpot_s, ttft_s = (_known([getattr(each, name) for each in seen]) / 1000 for name in ("tpot_ms", "ttft_ms"))
    observed = [
        per_token(prior, token_s, running),
        per_token(prior, tpot_s, running),
        first_token(prior, c, np.where(waits, np.nan, ttft_s)),
    ]
    for name, terms in (("memory_active", "memory"), ("products_active", "products")):
        share = _known([getattr(each, name) for each in seen])
        observed.append(activity(c, table, token_s, running, share, terms))
    found = posterior(c, table, prior, observed)
    expected = steady(c, table, running).token_s
    explained = steady(c, table, running, rows_times(found.mean, prior.groups)).token_s
    fitting, filling = fitting_sequences(c), filling_sequences(c)
    return [
        Calibration(
            origin=each.deployment,
            mean=tuple(map(float, found.mean[row])),
            covariance=tuple(tuple(map(float, line)) for line in found.covariance[row]),
            capacity=_capacity(float(running[row]), float(fitting[row]), float(filling[row]), each.kv_use),
            log_time=float(np.log(explained[row] / expected[row])),
        )
        for row, each in enumerate(seen)
    ]


def _known(values: Sequence[float | None]) -> Array:
    """Return values with NaN where one was not measured."""
    return np.array([math.nan if each is None else each for each in values])


def _capacity(running: float, fitting: float, filling: float, kv_use: float | None) -> float:
    """Factor on the sequences that fit: a well-used cache tells how many fill it; else at least those seen running."""
    if fitting <= 0:
        return 1.0
    if kv_use is not None and kv_use >= MUCH_OF_CACHE:
        return running / kv_use / filling
    return max(1.0, running / fitting)
