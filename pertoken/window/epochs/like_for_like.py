"""Cost of a token in one set of hours against another at like load: the effect of a change alone.

Hours are paired within the same hour of the week where load, mix and cache level are alike. The remaining
differences of load and mix within a pair are removed by a regression within each set, so that a change of load alone
is no effect (bias-corrected matching: Abadie and Imbens, J. Bus. Econ. Stat. 29, 2011). Pairs are averaged by hour of
the week, and the interval is that of a circular block bootstrap of those averages (Politis and Romano, 1992), whose
variance of a mean is computed in closed form: no random numbers are drawn.
"""

import math
from dataclasses import dataclass

import numpy as np

from pertoken.evidence import Comparison
from pertoken.window.columns import Floats, Ints, Mask
from pertoken.window.series.points import hour_of_week

MIN_HOURS = 48
"""Hours of each set, and matched hours of the week, from which an interval is computed: two days. A judgement."""
MAX_LOAD_RATIO = 1.25
"""Load of two hours that are alike, one over the other. Calipers and gate are judgements."""
MAX_MIX_RATIO = 1.25
"""The same for generated tokens over all tokens."""
MAX_CACHED_DIFFERENCE = 0.1
"""Shares of cached prompt tokens of two hours that are alike."""
MAX_MEAN_LOAD_RATIO = 1.06
"""Mean load of all pairs, one set over the other; beyond it the load differed, however much one pair may differ."""
BLOCK_H = 36
"""Hours of the week in a block. What is left of an hour's outcome is correlated over some hours. With an AR(1) of 0.6
the interval held the truth in 92 % of simulated pairs of epochs, and with blocks of 24 h in 88 to 91 %."""
Z95 = 1.6448536269514722
"""95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class HourlyOutcomes:
    """Whole hours of one deployment with what each cost and served. All arrays are as long."""

    ts: Ints
    """Start of each hour, epoch seconds."""
    device_s_per_token: Floats
    tokens_per_s: Floats
    """The load: prompt and generated tokens."""
    generated_share: Floats
    """Generated tokens over all tokens."""
    cached_share: Floats | None
    """Cached over all prompt tokens; None where the engine does not expose it."""

    def __len__(self) -> int:
        return len(self.ts)

    def where(self, mask: Mask) -> "HourlyOutcomes":
        """Return some of the hours."""
        cached = None if self.cached_share is None else self.cached_share[mask]
        return HourlyOutcomes(
            self.ts[mask],
            self.device_s_per_token[mask],
            self.tokens_per_s[mask],
            self.generated_share[mask],
            cached,
        )


def compare(earlier: HourlyOutcomes, later: HourlyOutcomes) -> Comparison:
    """Return device-seconds per token of `later` over `earlier` at like load with a 90 % interval, or why not.

    The outcome of an hour enters as its logarithm: effects are ratios.
    """
    if min(len(earlier), len(later)) < MIN_HOURS:
        few = f"{len(earlier)} whole hours with tokens before and {len(later)} since"
        return _unknown("few-hours", f"{few}: {MIN_HOURS} of each are needed")
    exposed = earlier.cached_share is not None, later.cached_share is not None
    if exposed[0] != exposed[1]:
        return _unknown("cache-differs", "cached tokens are exposed in one of the two epochs only")
    same_hour = hour_of_week(later.ts)[:, None] == hour_of_week(earlier.ts)[None, :]
    alike = _alike(earlier, later)
    pairs = np.logical_and.reduce([same_hour, *alike.values()])
    weeks = _hours_of_week(pairs, later)
    if len(weeks) < MIN_HOURS:
        return _too_few(same_hour, alike, later)
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


def _alike(earlier: HourlyOutcomes, later: HourlyOutcomes) -> dict[str, Mask]:
    """Return (later, earlier) pairs of hours that are alike, by the code of what else differs."""
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
    """Return the hours of the week in which there are pairs, in order."""
    return np.unique(hour_of_week(later.ts[pairs.any(axis=1)]))


_DIFFERS = {
    "load-differs": "the load differed",
    "mix-differs": "the share of generated tokens differed",
    "cache-differs": "the share of cached prompt tokens differed",
}


def _too_few(same_hour: Mask, alike: dict[str, Mask], later: HourlyOutcomes) -> Comparison:
    """Return why too few hours match: the first of load, mix and cache level that leaves too few."""
    matched_hours = len(_hours_of_week(same_hour, later))
    if matched_hours < MIN_HOURS:
        return _unknown("few-hours", f"the epochs share {matched_hours} hours of the week: {MIN_HOURS} are needed")
    pairs = same_hour
    left = {code: len(_hours_of_week(pairs := pairs & mask, later)) for code, mask in alike.items()}
    code, hours = next((code, hours) for code, hours in left.items() if hours < MIN_HOURS)
    return _unknown(code, f"{_DIFFERS[code]}: {hours} of {matched_hours} common hours of the week are alike")


def _mean_ratio(pairs: Mask, earlier: Floats, later: Floats) -> float:
    """Return the geometric mean over hours of the later set of its value over those it is paired with."""
    counts = pairs.sum(axis=1)
    some = counts > 0
    return math.exp(float((later[some] - (pairs @ earlier)[some] / counts[some]).mean()))


def _effects(pairs: Mask, earlier: HourlyOutcomes, later: HourlyOutcomes) -> Floats:
    """Return log cost of `later` over `earlier` by hour of the week, without what load, mix and cache level explain."""
    earlier_covariates, later_covariates = _covariates(earlier), _covariates(later)
    y_here, y_there = np.log(earlier.device_s_per_token), np.log(later.device_s_per_token)
    used_here, used_there = pairs.any(axis=0), pairs.any(axis=1)
    design = np.concatenate([_centred(earlier_covariates[used_here]), _centred(later_covariates[used_there])])
    outcome = np.concatenate([_centred(y_here[used_here]), _centred(y_there[used_there])])
    slopes = np.linalg.lstsq(design, outcome, rcond=1e-6)[0]
    y_here, y_there = y_here - earlier_covariates @ slopes, y_there - later_covariates @ slopes
    counts = pairs.sum(axis=1)
    differences = y_there[used_there] - (pairs @ y_here)[used_there] / counts[used_there]
    weeks, which = np.unique(hour_of_week(later.ts[used_there]), return_inverse=True)
    means: Floats = np.bincount(which, differences, len(weeks)) / np.bincount(which, minlength=len(weeks))
    return means


def _covariates(hours: HourlyOutcomes) -> Floats:
    """Return log load and its square (cost per token falls with load ever more slowly), log mix, and cache level."""
    load = np.log(hours.tokens_per_s)
    columns = [load, load**2, np.log(hours.generated_share)]
    columns += [] if hours.cached_share is None else [hours.cached_share]
    return np.column_stack(columns)


def _centred(values: Floats) -> Floats:
    centred: Floats = values - values.mean(axis=0)
    return centred


def _half_width(effects: Floats) -> float:
    """Return half the width of the 90 % interval of a mean of hours of the week that follow one another.

    The variance of the mean is that over all circular blocks, as if it were resampled without end; its own uncertainty,
    from few blocks, is that of Student's t.
    """
    n = len(effects)
    length = min(BLOCK_H, n // 2)
    sums = np.convolve(np.concatenate([effects, effects[: length - 1]]), np.ones(length), "valid")
    of_block = float(((sums / length - effects.mean()) ** 2).mean()) / (1 - length / n)
    return student_quantile(Z95, max(1.0, n / length - 1)) * math.sqrt(of_block * length / n)


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
