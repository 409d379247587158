"""Difference-in-differences: shared causes go out, strangers add no noise."""

import numpy as np
import pytest

from pertoken.proof.verification.estimate import Siblings, siblings
from pertoken.proof.verification.windows import Windows, windows
from pertoken.window.like_for_like import HourlyOutcomes
from tests.proof.histories import CHANGED, asked, history, scaled
from tests.window.test_like_for_like import noise


def seen(own: HourlyOutcomes, *others: HourlyOutcomes) -> Siblings:
    used = windows(asked(1, deployment=own))
    assert isinstance(used, Windows)
    return siblings(others, used)


def test_variation_that_siblings_share_is_estimated_in_full() -> None:
    own, other = history(1, sd=0.01), history(2, sd=0.01)
    common = np.exp(noise(np.random.default_rng(9), len(own), 0.1, 0.95))
    siblings = seen(scaled(own, common), scaled(other, common))
    assert siblings.count == 1
    assert siblings.weight == pytest.approx(1, abs=0.1)
    after = slice(-160, None)
    assert np.corrcoef(siblings.excess[after], np.log(common)[after])[0, 1] > 0.9


def test_siblings_that_share_nothing_have_little_weight() -> None:
    assert seen(history(1), history(2), history(3)).weight < 0.4


def test_a_sibling_that_was_not_measured_throughout_is_left_out() -> None:
    other = history(2)
    gone = other.where(other.ts < CHANGED)
    assert seen(history(1), gone).count == 0


def test_without_siblings_there_is_none() -> None:
    assert seen(history(1)).count == 0


def jumped(seed: int, factor: float) -> HourlyOutcomes:
    """Return a sibling whose cost jumps at the change."""
    hours = history(seed, sd=0.02)
    return scaled(hours, np.where(hours.ts >= CHANGED, factor, 1.0))


def test_a_sibling_that_alone_jumped_is_left_out() -> None:
    siblings = seen(history(1, sd=0.02), jumped(2, 1.15), jumped(3, 1.0), jumped(4, 1.0))
    assert siblings.dropped == 1 and not siblings.moved


def test_of_two_siblings_that_differ_both_are_left_out() -> None:
    siblings = seen(history(1, sd=0.02), jumped(2, 1.15), jumped(3, 1.0))
    assert (siblings.count, siblings.dropped) == (0, 2)


def test_siblings_that_jump_together_are_kept_and_have_moved() -> None:
    common = np.exp(noise(np.random.default_rng(9), len(history(1)), 0.1, 0.5))
    siblings = seen(*(scaled(jumped(seed, 1.3 if seed > 1 else 1.0), common) for seed in (1, 2, 3)))
    assert (siblings.count, siblings.dropped, siblings.moved) == (2, 0, True)
