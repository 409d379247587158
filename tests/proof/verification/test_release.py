"""Released devices: the bill falls in any case, so the service is what is tested."""

import numpy as np
import pytest

from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.verify import Release, ReleaseFinding, ReleaseQuestion, ServiceTokens, verify_release
from tests.proof.histories import CHANGED, UNTIL, history


def served(demand: float = 1.0, seed: int = 1) -> ServiceTokens:
    hours = history(seed)
    return ServiceTokens(hours.ts, hours.tokens_per_s * np.where(hours.ts >= CHANGED, demand, 1.0))


def found_of(release: Release, served: ServiceTokens | None) -> ReleaseFinding:
    return verify_release(ReleaseQuestion(release, served, CHANGED, UNTIL, 1))


def test_devices_without_requests_are_released_without_a_test_of_demand() -> None:
    finding = found_of(Release(2, 2, None), None)
    assert (finding.verdict, finding.served) == (EffectVerdict.REALIZED, None)


@pytest.mark.parametrize(
    ("release", "demand", "verdict", "code"),
    [
        (Release(2, 2, True), 1.0, EffectVerdict.REALIZED, None),
        (Release(2, 3, None), 1.1, EffectVerdict.REALIZED, None),
        (Release(2, 1, True), 1.0, EffectVerdict.PARTIAL, None),
        (Release(2, 0, True), 1.0, EffectVerdict.NO_EFFECT, None),
        (Release(2, 2, False), 1.0, EffectVerdict.REGRESSED, "objective-missed"),
        (Release(2, 2, True), 0.6, EffectVerdict.INCONCLUSIVE, "demand-fell"),
    ],
)
def test_a_release_is_realised_while_the_service_goes_on(
    release: Release, demand: float, verdict: EffectVerdict, code: str | None
) -> None:
    finding = found_of(release, served(demand))
    assert (finding.verdict, finding.code) == (verdict, code)


def test_the_tokens_served_are_compared_with_the_same_hours_of_the_weeks_before() -> None:
    interval = found_of(Release(1, 1, True), served(0.95)).served
    assert interval is not None
    assert interval.low < 0.95 < interval.high
    assert interval.half_width < 0.05


@pytest.mark.parametrize("hours", [slice(0, 0), slice(-200, None), slice(0, -150)])
def test_too_few_hours_give_no_verdict(hours: slice) -> None:
    whole = served()
    finding = found_of(Release(1, 1, True), ServiceTokens(whole.ts[hours], whole.tokens_per_s[hours]))
    assert (finding.verdict, finding.code) == (EffectVerdict.INCONCLUSIVE, "few-hours")
