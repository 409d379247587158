"""Costs per token of two sets of hours at like load: effects that are there are seen, and no others."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.evidence import Comparison
from pertoken.window.like_for_like import MIN_HOURS, HourlyOutcomes, compare

MONDAY = 1_789_948_800
WEEK_H = 168
RUNS = 300


def noise(rng: np.random.Generator, n: int, sd: float, rho: float = 0.6) -> np.ndarray:
    """AR(1) residuals of this standard deviation."""
    shocks = rng.normal(0, sd * math.sqrt(1 - rho**2), n)
    values = np.empty(n)
    values[0] = rng.normal(0, sd)
    for at in range(1, n):
        values[at] = rho * values[at - 1] + shocks[at]
    return values


def hours(
    rng: np.random.Generator, first_h: int, n: int, *, effect: float = 0.0, load: float = 1.0, sd: float = 0.08
) -> HourlyOutcomes:
    """Hours of an engine whose tokens get cheaper the more of them it serves, from an hour after a Monday on."""
    at = first_h + np.arange(n)
    day = 1 + 0.5 * np.sin(2 * np.pi * (at % 24 - 9) / 24)
    weekend = np.where(at % WEEK_H >= 120, 0.6, 1.0)
    tokens_per_s = 900 * load * day * weekend * np.exp(rng.normal(0, 0.08, n))
    generated = np.clip(0.2 + rng.normal(0, 0.01, n), 0.05, 0.9)
    cached = np.clip(0.4 + rng.normal(0, 0.02, n), 0, 1)
    cost = (2e-4 + 0.25 / tokens_per_s) * (0.5 + 2.5 * generated) * (1.3 - 0.7 * cached)
    cost *= (1 + effect) * np.exp(noise(rng, n, sd))
    return HourlyOutcomes((MONDAY + 3600 * at).astype(np.int64), cost, tokens_per_s, generated, cached)


def run(seed: int, *, weeks: tuple[int, int] = (1, 1), **later: float) -> Comparison:
    rng = np.random.default_rng(seed)
    before, since = (WEEK_H * week for week in weeks)
    return compare(hours(rng, 0, before), hours(rng, before, since, **later))


@pytest.mark.parametrize("weeks", [(1, 1), (3, 1), (1, 3)])
def test_without_an_effect_the_interval_holds_1_in_nine_of_ten_runs(weeks: tuple[int, int]) -> None:
    ratios = [comparison.ratio for seed in range(RUNS) if (comparison := run(seed, weeks=weeks)).ratio is not None]
    assert len(ratios) > 0.95 * RUNS
    covered = np.mean([low <= 1 <= high for low, _, high in ratios])
    assert covered >= 0.9


@pytest.mark.parametrize("effect", [0.1, -0.1])
def test_an_effect_of_a_tenth_is_found(effect: float) -> None:
    comparisons = [run(seed, effect=effect) for seed in range(60)]
    assert np.mean([comparison.dearer if effect > 0 else comparison.cheaper for comparison in comparisons]) >= 0.9
    likely = [comparison.ratio[1] for comparison in comparisons if comparison.ratio is not None]
    assert np.mean(likely) == pytest.approx(1 + effect, abs=0.01)


@pytest.mark.parametrize("load", [0.3, 0.7, 0.9, 0.95, 1.05, 1.1, 1.5, 4.0])
def test_a_change_of_load_alone_is_never_an_effect(load: float) -> None:
    comparisons = [run(seed, load=load) for seed in range(100)]
    assert np.mean([comparison.dearer or comparison.cheaper for comparison in comparisons]) <= 0.1
    if not 0.9 <= load <= 1.1:
        assert {comparison.code for comparison in comparisons} == {"load-differs"}


@given(st.integers(0, 10_000), st.floats(0.2, 5.0))
def test_a_change_of_load_without_noise_is_less_than_a_hundredth(seed: int, load: float) -> None:
    rng = np.random.default_rng(seed)
    comparison = compare(hours(rng, 0, WEEK_H, sd=1e-9), hours(rng, WEEK_H, WEEK_H, sd=1e-9, load=load))
    assert comparison.ratio is None or comparison.ratio[1] == pytest.approx(1, abs=0.01)


def test_too_few_hours_are_unknown_with_the_reason() -> None:
    rng = np.random.default_rng(1)
    short = compare(hours(rng, 0, MIN_HOURS - 1), hours(rng, WEEK_H, WEEK_H))
    assert (short.code, short.ratio) == ("few-hours", None)
    assert short.reason == "47 whole hours with tokens before and 168 since: 48 of each are needed"
    apart = compare(hours(rng, 0, 72), hours(rng, 72, 72))  # Monday to Wednesday, then Thursday to Saturday
    assert (apart.code, apart.reason) == ("few-hours", "the epochs share 0 hours of the week: 48 are needed")


def test_a_mix_or_a_cache_level_that_differs_is_unknown_with_the_reason() -> None:
    rng = np.random.default_rng(2)
    before, since = hours(rng, 0, WEEK_H), hours(rng, WEEK_H, WEEK_H)
    mixed = compare(before, replace(since, generated_share=since.generated_share * 1.6))
    assert (mixed.code, mixed.ratio) == ("mix-differs", None)
    assert since.cached_share is not None
    cold = compare(before, replace(since, cached_share=since.cached_share - 0.3))
    assert (cold.code, cold.ratio) == ("cache-differs", None)
    assert compare(before, replace(since, cached_share=None)).code == "cache-differs"


def test_metrics_that_no_engine_exposes_are_not_matched_and_are_named() -> None:
    rng = np.random.default_rng(3)
    before, since = (
        replace(hours(rng, start, WEEK_H), cached_share=None, generated_share=np.full(WEEK_H, 0.2))
        for start in (0, WEEK_H)
    )
    comparison = compare(before, since)
    assert comparison.ratio is not None and comparison.not_matched == ("cached_share",)


def test_both_sides_have_their_cost_at_the_load_of_the_later_one() -> None:
    rng = np.random.default_rng(4)
    before, since = hours(rng, 0, WEEK_H, sd=1e-9), hours(rng, WEEK_H, WEEK_H, sd=1e-9, effect=0.25)
    comparison = compare(before, since)
    assert comparison.later_s_per_mtok is not None and comparison.earlier_s_per_mtok is not None
    assert comparison.later_s_per_mtok / comparison.earlier_s_per_mtok == pytest.approx(1.25, rel=0.01)
    assert comparison.matched_hours > 100


def test_the_same_hours_give_the_same_interval() -> None:
    assert run(7) == run(7)
