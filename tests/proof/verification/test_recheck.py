"""Second checks of a proven saving."""

import pytest

from pertoken.proof.verification.estimate import Interval, Verdict
from pertoken.proof.verification.verify import Finding, recheck, verify
from tests.proof.histories import asked

PROVEN = Finding(Verdict.REALIZED, saving_90=Interval(0.08, 0.10, 0.12))


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        (Finding(Verdict.REALIZED, saving_90=Interval(0.07, 0.09, 0.11)), Verdict.REALIZED),
        (Finding(Verdict.NO_EFFECT, saving_90=Interval(-0.02, 0.01, 0.03)), Verdict.DECAYED),
        (Finding(Verdict.REGRESSED, saving_90=Interval(-0.2, -0.1, -0.05)), Verdict.DECAYED),
        (Finding(Verdict.PARTIAL, saving_90=Interval(0.03, 0.05, 0.07)), Verdict.DECAYED),
        (Finding(Verdict.INCONCLUSIVE, "wide-interval", saving_90=Interval(-0.05, 0.02, 0.07)), Verdict.DECAYED),
        (Finding(Verdict.INCONCLUSIVE, "wide-interval", saving_90=Interval(-0.05, 0.05, 0.10)), Verdict.REALIZED),
        (Finding(Verdict.INCONCLUSIVE, "baseline-fails", saving_90=Interval(-0.05, 0.02, 0.07)), Verdict.REALIZED),
        (Finding(Verdict.INCONCLUSIVE, "few-hours"), Verdict.REALIZED),
    ],
)
def test_a_saving_that_is_gone_or_clearly_smaller_has_decayed(later: Finding, verdict: Verdict) -> None:
    assert recheck(PROVEN, later) is verdict


def test_an_unproven_saving_cannot_decay() -> None:
    never = Finding(Verdict.NO_EFFECT, saving_90=Interval(-0.02, 0.0, 0.02))
    assert recheck(never, Finding(Verdict.REGRESSED)) is Verdict.NO_EFFECT


def test_a_saving_that_lasts_stands() -> None:
    assert recheck(verify(asked(1, -0.2)), verify(asked(2, -0.2))) is Verdict.REALIZED
