"""Cost of a token in one set of hours against another at similar load: the effect of a change alone.

Pairs are two hours of the same hour of the week with similar load, mix and cache level. A regression within each set
removes the remaining differences of load and mix in a pair, so that a change of load alone is no effect
(bias-corrected matching: Abadie and Imbens, J. Bus. Econ. Stat. 29, 2011). Pairs are averaged by hour of the week, and
the interval is that of a circular block bootstrap of those averages (Politis and Romano, 1992). Its variance of a mean
is computed in closed form, without random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from pertoken.evidence import Comparison
from pertoken.window.columns import Floats, Ints, Mask
from pertoken.window.series import hour_of_week

MIN_HOURS = 48
"""Minimum hours of each set, and minimum matched hours of the week, for an interval: two days. A judgement."""
MAX_LOAD_RATIO = 1.25
"""Maximum ratio of the loads of a pair. This and the next three limits are judgements."""
MAX_MIX_RATIO = 1.25
"""Maximum ratio of the shares of generated tokens of a pair."""
MAX_CACHED_DIFFERENCE = 0.1
"""Maximum difference of the shares of cached prompt tokens of a pair."""
MAX_MEAN_LOAD_RATIO = 1.06
"""Maximum ratio of the mean loads of all pairs. Beyond it the load differed as a whole."""
BLOCK_H = 36
"""Hours of the week in a block, because residuals are correlated over some hours. With an AR(1) of 0.6 the interval
contained the truth in 92 % of simulated pairs of epochs, and with blocks of 24 h in 88 to 91 %."""
Z95 = 1.6448536269514722
"""95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlyOutcomes:
    """Whole hours of one deployment with their cost and load. All arrays have the same length."""

    ts: Ints
    """Start of each hour, epoch seconds."""
    device_s_per_token: Floats
    tokens_per_s: Floats
    """Load: prompt and generated tokens."""
    generated_share: Floats
    """Generated tokens over all tokens."""
    cached_share: Floats | None = None
    """Cached over all prompt tokens; None where the engine does not expose it."""
    tokens_per_request: Floats | None = None
    """Mean length: tokens over finished requests; None where the engine does not count these."""
    prompt_spread: Floats | None = None
    """Standard deviation of the logarithm of the prompt length; None where the engine exposes no histogram of it."""
    generated_spread: Floats | None = None
    """The same of the generated length."""
    started_ts: Ints | None = None
    """Start of the engine's process in each hour, epoch seconds; None where restarts are not recorded."""

    def __len__(self) -> int:
        return len(self.ts)

    def where(self, mask: Mask) -> HourlyOutcomes:
        """Return some of the hours."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return HourlyOutcomes(**{name: column[mask] for name, column in columns.items() if column is not None})


def compare(earlier: HourlyOutcomes, later: HourlyOutcomes) -> Comparison:
    """Return device-seconds per token of `later` over `earlier` at similar load with a 90 % interval.

    The logarithm of an hour's cost is compared, so effects are ratios. Without a result, `code` and `reason` are set.
    """
    if min(len(earlier), len(later)) < MIN_HOURS:
        few = f"{len(earlier)} whole hours with tokens before and {len(later)} since"
        return _unknown("few-hours", f"{few}: {MIN_HOURS} of each are needed")
    exposed = earlier.cached_share is not None, later.cached_share is not None
    if exposed[0] != exposed[1]:
        return _unknown("cache-differs", "cached tokens are exposed in one of the two epochs only")
    same_hour = hour_of_week(later.ts)[:, None] == hour_of_week(earlier.ts)[None, :]
    similar = _similar(earlier, later)
    pairs = np.logical_and.reduce([same_hour, *similar.values()])
    weeks = _hours_of_week(pairs, later)
    if len(weeks) < MIN_HOURS:
        return _too_few(same_hour, similar, later)
    load_ratio = _mean_ratio(pairs, np.log(earlier.tokens_per_s), np.log(later.tokens_per_s))
    if max(load_ratio, 1 / load_ratio) > MAX_MEAN_LOAD_RATIO:
        return _unknown(
            "load-differs", f"in its {len(weeks)} matched hours of the week its load is {load_ratio - 1:+.0%}"
        )
    effects = _effects(pairs, earlier, later)
    likely = float(effects.mean())
    margin = _half_width(effects)
    matched = pairs.any(axis=1)
    seconds, tokens = later.device_s_per_token[matched] * later.tokens_per_s[matched], later.tokens_per_s[matched]
    return Comparison(
        ratio=(math.exp(likely - margin), math.exp(likely), math.exp(likely + margin)),
        matched_hours=int(matched.sum()),
        later_s_per_mtok=float(seconds.sum() / tokens.sum()) * 1e6,
        not_matched=() if exposed[0] else ("cached_share",),
    )


def _unknown(code: str, reason: str) -> Comparison:
    return Comparison(code=code, reason=reason)


def _similar(earlier: HourlyOutcomes, later: HourlyOutcomes) -> dict[str, Mask]:
    """Return the (later, earlier) pairs within the limit of each covariate, by the code used where too few remain."""
    calipers: dict[str, tuple[Floats | None, Floats | None, float]] = {
        "load-differs": (np.log(earlier.tokens_per_s), np.log(later.tokens_per_s), math.log(MAX_LOAD_RATIO)),
        "mix-differs": (np.log(earlier.generated_share), np.log(later.generated_share), math.log(MAX_MIX_RATIO)),
        "cache-differs": (earlier.cached_share, later.cached_share, MAX_CACHED_DIFFERENCE),
    }
    return {
        code: np.abs(later_values[:, None] - earlier_values[None, :]) <= limit
        for code, (earlier_values, later_values, limit) in calipers.items()
        if earlier_values is not None and later_values is not None
    }


def _hours_of_week(pairs: Mask, later: HourlyOutcomes) -> Ints:
    return np.unique(hour_of_week(later.ts[pairs.any(axis=1)]))


_DIFFERS = {
    "load-differs": "the load differed",
    "mix-differs": "the share of generated tokens differed",
    "cache-differs": "the share of cached prompt tokens differed",
}


def _too_few(same_hour: Mask, similar: dict[str, Mask], later: HourlyOutcomes) -> Comparison:
    """Return the reason why too few hours match: the first covariate that leaves too few pairs."""
    matched_hours = len(_hours_of_week(same_hour, later))
    if matched_hours < MIN_HOURS:
        return _unknown("few-hours", f"the epochs share {matched_hours} hours of the week: {MIN_HOURS} are needed")
    pairs = same_hour
    hours_by_code = {code: len(_hours_of_week(pairs := pairs & mask, later)) for code, mask in similar.items()}
    code, hours = next((code, hours) for code, hours in hours_by_code.items() if hours < MIN_HOURS)
    return _unknown(code, f"{_DIFFERS[code]}: {hours} of {matched_hours} common hours of the week are alike")


def _mean_ratio(pairs: Mask, earlier: Floats, later: Floats) -> float:
    """Return the geometric mean over later hours of their value over the mean of the earlier hours paired with them.

    The values are logarithms.
    """
    counts = pairs.sum(axis=1)
    paired = counts > 0
    return math.exp(float((later[paired] - (pairs @ earlier)[paired] / counts[paired]).mean()))


def _effects(pairs: Mask, earlier: HourlyOutcomes, later: HourlyOutcomes) -> Floats:
    """Return log cost of `later` over `earlier` by hour of the week, corrected for load, mix and cache level."""
    earlier_covariates, later_covariates = _covariates(earlier), _covariates(later)
    earlier_cost, later_cost = np.log(earlier.device_s_per_token), np.log(later.device_s_per_token)
    earlier_used, later_used = pairs.any(axis=0), pairs.any(axis=1)
    design = np.concatenate([_centred(earlier_covariates[earlier_used]), _centred(later_covariates[later_used])])
    outcome = np.concatenate([_centred(earlier_cost[earlier_used]), _centred(later_cost[later_used])])
    slopes = np.linalg.lstsq(design, outcome, rcond=1e-6)[0]
    earlier_cost, later_cost = earlier_cost - earlier_covariates @ slopes, later_cost - later_covariates @ slopes
    counts = pairs.sum(axis=1)
    differences = later_cost[later_used] - (pairs @ earlier_cost)[later_used] / counts[later_used]
    weeks, week_index = np.unique(hour_of_week(later.ts[later_used]), return_inverse=True)
    means: Floats = np.bincount(week_index, differences, len(weeks)) / np.bincount(week_index, minlength=len(weeks))
    return means


def _covariates(hours: HourlyOutcomes) -> Floats:
    """Return log load and its square (cost per token falls with load at a decreasing rate), mix and cached share."""
    load = np.log(hours.tokens_per_s)
    columns = [load, load**2, np.log(hours.generated_share)]
    columns += [] if hours.cached_share is None else [hours.cached_share]
    return np.column_stack(columns)


def _centred(values: Floats) -> Floats:
    centred: Floats = values - values.mean(axis=0)
    return centred


def _half_width(effects: Floats) -> float:
    """Return half the width of the 90 % interval of the mean of consecutive hours of the week.

    The variance of the mean is that over all circular blocks, the limit of a bootstrap over infinitely many samples.
    Its own uncertainty, from few blocks, is that of Student's t.
    """
    n = len(effects)
    length = min(BLOCK_H, n // 2)
    sums = np.convolve(np.concatenate([effects, effects[: length - 1]]), np.ones(length), "valid")
    block_variance = float(((sums / length - effects.mean()) ** 2).mean()) / (1 - length / n)
    return student_quantile(Z95, max(1.0, n / length - 1)) * math.sqrt(block_variance * length / n)


def student_quantile(z: float, degrees: float) -> float:
    """Return the quantile of Student's t at which the normal distribution has the quantile `z`.

    It is the expansion in 1 / degrees of Abramowitz and Stegun, 26.7.5.
    """
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, 1))
