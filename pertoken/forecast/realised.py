"""Realised changes of a host: the measured ratio between a configuration before a change and the present one.

It calibrates the forecast as a second configuration of the same host does: the time per token before follows from the
time now and the ratio, and both have the same deviations from the fitted table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.calibration import Observation, per_token
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.efficiency import deviation
from pertoken.forecast.served import Abstained, Load, Row, resolve_each, stack_rows
from pertoken.state.deployment import Deployment

Z95 = 1.6448536269514722
"""95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Realised:
    """One change of a deployment that was verified."""

    before: tuple[tuple[str, Any], ...]
    """Fields of the deployment that changed, with their values before."""
    ratio: tuple[float, float, float]
    """Device-seconds per token now over those before at like load, 90 % interval: low, likely, high."""
    source: str
    """The receipt, for people."""

    def ran(self, now: Deployment) -> Deployment:
        """Return the deployment as it ran before."""
        values: Mapping[str, Any] = dict(self.before)
        return replace(now, **values)

    def slower_before(self, now: Deployment) -> float:
        """Return the seconds per token of one sequence before over those now."""
        return (now.n_devices or 1) / (self.ran(now).n_devices or 1) / self.ratio[1]

    @property
    def log_sd(self) -> float:
        """Standard deviation of the logarithm of the ratio."""
        low, _, high = self.ratio
        return (math.log(high) - math.log(low)) / (2 * Z95)

    @property
    def words(self) -> str:
        """What was measured, for people."""
        low, likely, high = (value - 1 for value in self.ratio)
        changed = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in self.before)
        return f"{likely:+.1%} ({low:+.1%} to {high:+.1%}) device time per token since it ran with {changed}"


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """State of a deployment before a verified change."""

    realised: Realised
    row: Row

    def slower(self, now: Deployment) -> float:
        """Return the ratio of seconds per token, before over now, at which the forecast equals the measured change."""
        return self.realised.slower_before(now)


def earlier(now: Deployment, load: Load, changes: Sequence[Realised], market: Market) -> list[Earlier]:
    """Return how a deployment ran before each verified change, as far as the serving model knows that."""
    before = [realised.ran(now) for realised in changes]
    rows = resolve_each([(deployment, load) for deployment in before], market)
    return [
        Earlier(realised, row) for realised, row in zip(changes, rows, strict=True) if not isinstance(row, Abstained)
    ]


def with_earlier(means: Candidates, counts: Sequence[int], changes: Sequence[Sequence[Earlier]]) -> Candidates:
    """Return each candidate `counts` times, each followed by its states before its changes."""
    if not any(changes):
        return means.take(np.repeat(np.arange(len(means)), counts))
    before = stack_rows([earlier.row for some in changes for earlier in some])
    whole = {
        field.name: np.concatenate([getattr(means, field.name), getattr(before, field.name)])
        for field in fields(Candidates)
    }
    index: list[int] = []
    following = len(means)
    for place, (count, some) in enumerate(zip(counts, changes, strict=True)):
        index += [*[place] * count, *range(following, following + len(some))]
        following += len(some)
    return Candidates(**whole).take(np.array(index))


def before_changes(c: Candidates, running: Array, seconds: Array, changes: Sequence[Sequence[Earlier]]) -> Observation:
    """Return the times per token before each change as an observation of the rows of `c`; NaN in other rows.

    It is as uncertain as the model and the ratio.
    """
    prior = deviation()
    sd = np.full(len(c), prior.noise)
    for at, earlier in zip(
        np.flatnonzero(np.isfinite(seconds)), (one for some in changes for one in some), strict=True
    ):
        sd[at] = math.hypot(prior.noise, earlier.realised.log_sd)
    return replace(per_token(prior, seconds, running), log_sd=sd)
