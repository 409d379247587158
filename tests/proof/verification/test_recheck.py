"""Second checks of a proven saving."""

import pytest

from pertoken.proof.verification.estimate import EffectVerdict, Interval
from pertoken.proof.verification.verify import VerifiedEffect, recheck, verify
from tests.proof.histories import asked

PROVEN = VerifiedEffect(EffectVerdict.REALIZED, saving_90=Interval(0.08, 0.10, 0.12))


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        (VerifiedEffect(EffectVerdict.REALIZED, saving_90=Interval(0.07, 0.09, 0.11)), EffectVerdict.REALIZED),
        (VerifiedEffect(EffectVerdict.NO_EFFECT, saving_90=Interval(-0.02, 0.01, 0.03)), EffectVerdict.DECAYED),
        (VerifiedEffect(EffectVerdict.REGRESSED, saving_90=Interval(-0.2, -0.1, -0.05)), EffectVerdict.DECAYED),
        (VerifiedEffect(EffectVerdict.PARTIAL, saving_90=Interval(0.03, 0.05, 0.07)), EffectVerdict.DECAYED),
        (
            VerifiedEffect(EffectVerdict.INCONCLUSIVE, "wide-interval", saving_90=Interval(-0.05, 0.02, 0.07)),
            EffectVerdict.DECAYED,
        ),
        (
            VerifiedEffect(EffectVerdict.INCONCLUSIVE, "wide-interval", saving_90=Interval(-0.05, 0.05, 0.10)),
            EffectVerdict.REALIZED,
        ),
        (
            VerifiedEffect(EffectVerdict.INCONCLUSIVE, "baseline-fails", saving_90=Interval(-0.05, 0.02, 0.07)),
            EffectVerdict.REALIZED,
        ),
        (VerifiedEffect(EffectVerdict.INCONCLUSIVE, "few-hours"), EffectVerdict.REALIZED),
    ],
)
def test_a_saving_that_is_gone_or_clearly_smaller_has_decayed(later: VerifiedEffect, verdict: EffectVerdict) -> None:
    assert recheck(PROVEN, later) is verdict


def test_an_unproven_saving_cannot_decay() -> None:
    never = VerifiedEffect(EffectVerdict.NO_EFFECT, saving_90=Interval(-0.02, 0.0, 0.02))
    assert recheck(never, VerifiedEffect(EffectVerdict.REGRESSED)) is EffectVerdict.NO_EFFECT


def test_a_saving_that_lasts_stands() -> None:
    assert recheck(verify(asked(1, -0.2)), verify(asked(2, -0.2))) is EffectVerdict.REALIZED
