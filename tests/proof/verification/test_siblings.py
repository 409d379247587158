"""Difference-in-differences: shared causes go out, strangers add no noise."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.proof.verification.siblings import NONE, Siblings, siblings
from pertoken.proof.verification.windows import Windows, windows
from pertoken.window.epochs.like_for_like import HourlyOutcomes
from tests.proof.histories import CHANGED, asked, history, scaled
from tests.window.epochs.test_like_for_like import noise


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
    half = other.ts < CHANGED
    gone = replace(
        other,
        ts=other.ts[half],
        device_s_per_token=other.device_s_per_token[half],
        tokens_per_s=other.tokens_per_s[half],
        generated_share=other.generated_share[half],
        cached_share=None,
    )
    assert seen(history(1), gone) is NONE


def test_without_siblings_there_is_none() -> None:
    assert seen(history(1)) is NONE
