"""EffectVerdict on an effect."""

import math

import pytest

from pertoken.proof.verification.estimate import Effect, EffectVerdict, judge, margin_of
from pertoken.proof.verification.question import Promise

TENTH = Promise(0.08, 0.10, 0.15)


def effect(saving: float, half_width: float) -> Effect:
    """Return an effect whose 90 % interval has about this half-width."""
    return Effect(math.log(1 - saving), half_width / (1 - saving) / 1.645, 1e6)


@pytest.mark.parametrize(
    ("saving", "half_width", "promise", "verdict"),
    [
        (0.10, 0.04, TENTH, EffectVerdict.REALIZED),
        (0.30, 0.04, TENTH, EffectVerdict.REALIZED),
        (0.06, 0.025, TENTH, EffectVerdict.REALIZED),  # its interval reaches what was promised
        (0.05, 0.02, TENTH, EffectVerdict.PARTIAL),
        (0.05, 0.02, None, EffectVerdict.REALIZED),
        (0.10, 0.06, TENTH, EffectVerdict.INCONCLUSIVE),  # excludes 0, too wide
        (0.02, 0.02, TENTH, EffectVerdict.NO_EFFECT),
        (0.02, 0.02, Promise(0.03, 0.04, 0.05), EffectVerdict.INCONCLUSIVE),  # half of 4 % would matter
        (0.0, 0.06, TENTH, EffectVerdict.INCONCLUSIVE),
        (-0.10, 0.04, TENTH, EffectVerdict.REGRESSED),
        (-0.10, 0.06, TENTH, EffectVerdict.INCONCLUSIVE),
        (-0.02, 0.02, None, EffectVerdict.NO_EFFECT),
    ],
)
def test_each_verdict_is_given_where_its_definition_holds(
    saving: float, half_width: float, promise: Promise | None, verdict: EffectVerdict
) -> None:
    assert judge(effect(saving, half_width), promise) is verdict


def test_the_margin_is_never_more_than_five_percent() -> None:
    assert [margin_of(promise) for promise in (None, Promise(0.1, 0.6, 0.7), Promise(0, 0.04, 0.1))] == [
        0.05,
        0.05,
        0.02,
    ]
