"""From hours to a verdict: effects that are there are proven, and nothing else is."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pertoken.proof.verification.estimate import EffectVerdict, Placebo
from pertoken.proof.verification.question import Covariate, Cycle, EventKind, OtherChange, Promise
from pertoken.proof.verification.verify import VerifiedEffect, verify
from pertoken.window.like_for_like import HourlyOutcomes
from tests.proof.histories import CHANGED, HOUR_S, asked, history, scaled
from tests.window.test_like_for_like import WEEK_H, noise

TENTH = Promise(0.05, 0.10, 0.15)


@cache
def nothing_changed(seed: int) -> VerifiedEffect:
    return verify(asked(seed, sd=0.08))


def test_without_an_effect_the_interval_holds_0_in_most_histories_and_no_saving_is_claimed() -> None:
    findings = [nothing_changed(seed) for seed in range(20)]
    holds = [
        finding.saving_90 is not None and finding.saving_90.low <= 0 <= finding.saving_90.high for finding in findings
    ]
    assert np.mean(holds) >= 0.8
    assert {finding.verdict for finding in findings} <= {EffectVerdict.NO_EFFECT, EffectVerdict.INCONCLUSIVE}


def test_a_saving_of_a_tenth_is_proven_within_a_week() -> None:
    findings = [verify(asked(seed, -0.10, sd=0.08, promise=TENTH)) for seed in range(8)]
    assert [finding.verdict for finding in findings].count(EffectVerdict.REALIZED) >= 7
    likely = [finding.saving_90.likely for finding in findings if finding.saving_90 is not None]
    assert np.mean(likely) == pytest.approx(0.10, abs=0.015)


def test_a_regression_of_an_unrecommended_change_is_detected() -> None:
    assert verify(asked(1, +0.10)).verdict is EffectVerdict.REGRESSED


def test_a_fifth_promised_and_a_tenth_realised_is_partial() -> None:
    assert verify(asked(1, -0.10, promise=Promise(0.18, 0.2, 0.25))).verdict is EffectVerdict.PARTIAL


@given(st.floats(1e-3, 1e3))
@settings(max_examples=5, deadline=None)
def test_the_saving_does_not_depend_on_the_unit_of_cost(unit: float) -> None:
    question = asked(2, -0.05, sd=0.08)
    finding, scaled_finding = verify(question), verify(replace(question, deployment=scaled(question.deployment, unit)))
    assert finding.saving_90 is not None and scaled_finding.saving_90 is not None
    assert scaled_finding.saving_90.likely == pytest.approx(finding.saving_90.likely, abs=1e-6)
    assert scaled_finding.verdict is finding.verdict


@given(st.floats(-0.4, 0.4))
@settings(max_examples=5, deadline=None)
def test_an_effect_moves_the_estimate_by_exactly_its_size(effect: float) -> None:
    question = asked(3, sd=0.08)
    factor = np.where(question.deployment.ts >= CHANGED, 1 + effect, 1.0)
    none, changed = verify(question), verify(replace(question, deployment=scaled(question.deployment, factor)))
    assert none.saving_90 is not None and changed.saving_90 is not None
    assert 1 - changed.saving_90.likely == pytest.approx((1 - none.saving_90.likely) * (1 + effect))


@pytest.mark.parametrize("load", [0.7, 0.85, 1.15, 1.3])
def test_a_change_of_load_is_no_saving_and_is_listed(load: float) -> None:
    finding = verify(asked(4, load=load))
    assert finding.verdict in (EffectVerdict.NO_EFFECT, EffectVerdict.INCONCLUSIVE)
    assert EventKind.LOAD in [event.kind for event in finding.events]
    explained = dict(finding.explained)[Covariate.LOAD]
    assert (explained < 0) == (load > 1)


def test_a_change_of_price_is_listed_and_alters_no_figure() -> None:
    event = OtherChange(CHANGED, EventKind.PRICE, "its price changed")
    without, priced = verify(asked(5, sd=0.08)), verify(asked(5, sd=0.08, events=(event,)))
    assert priced.events == (event,)
    assert replace(priced, events=()) == without


def test_a_drift_of_all_deployments_is_no_saving_where_there_are_siblings() -> None:
    common = np.exp(noise(np.random.default_rng(9), 7 * WEEK_H, 0.10, 0.99))
    question = asked(6, deployment=scaled(history(6, sd=0.02), common))
    alone = verify(question)
    together = verify(replace(question, siblings=tuple(scaled(history(n, sd=0.02), common) for n in (7, 8))))
    assert together.siblings == 2
    assert alone.saving_90 is not None and together.saving_90 is not None
    assert together.saving_90.half_width < alone.saving_90.half_width / 2
    assert abs(together.saving_90.likely) < 0.01


def test_a_baseline_that_fails_its_gate_is_inconclusive_and_has_the_interval_it_would_have_had() -> None:
    question = asked(7)
    dearer = np.where((question.deployment.ts >= CHANGED - WEEK_H * HOUR_S), 1.4, 1.0)
    finding = verify(replace(question, deployment=scaled(question.deployment, dearer)))
    assert (finding.verdict, finding.code) == (EffectVerdict.INCONCLUSIVE, "baseline-fails")
    assert finding.reason is not None and "bias of -" in finding.reason
    assert finding.saving_90 is not None


def test_false_placebo_dates_widen_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked(1, -0.10)
    narrow = verify(question)
    monkeypatch.setattr("pertoken.proof.verification.verify.placebo", lambda *_: Placebo(22, 3, 4.0))
    wide = verify(question)
    assert narrow.saving_90 is not None and wide.saving_90 is not None
    assert wide.saving_90.half_width == pytest.approx(4 * narrow.saving_90.half_width, rel=0.05)
    assert (narrow.verdict, wide.verdict) == (EffectVerdict.REALIZED, EffectVerdict.INCONCLUSIVE)
    assert wide.placebo == Placebo(22, 3, 4.0)


def test_placebo_dates_that_are_too_few_are_a_reason() -> None:
    question = asked(8, sd=0.03)
    recent = question.deployment.ts >= CHANGED - 21 * 24 * HOUR_S
    finding = verify(replace(question, deployment=question.deployment.where(recent)))
    assert finding.placebo is not None and finding.placebo.dates < 20
    assert finding.code == "few-placebos"


def test_a_window_that_cannot_be_compared_has_no_interval_and_keeps_its_events() -> None:
    event = OtherChange(CHANGED - HOUR_S, EventKind.DRIVER, "driver 570 → 580")
    finding = verify(asked(9, events=(event,)))
    assert (finding.verdict, finding.code, finding.saving_90) == (EffectVerdict.INCONCLUSIVE, "other-change", None)
    assert finding.events == (event,)


def test_costs_before_expected_and_after_are_in_device_seconds_per_mtok() -> None:
    finding = verify(asked(1, -0.10, sd=0.02))
    assert finding.earlier_s_per_mtok is not None and finding.later_s_per_mtok is not None
    assert finding.expected_s_per_mtok is not None and finding.saving_90 is not None
    assert finding.expected_s_per_mtok == pytest.approx(finding.earlier_s_per_mtok, rel=0.03)
    assert finding.later_s_per_mtok / finding.expected_s_per_mtok == pytest.approx(1 - finding.saving_90.likely)


def test_an_unmeasured_cache_level_is_named() -> None:
    question = asked(1)
    finding = verify(replace(question, deployment=replace(question.deployment, cached_share=None)))
    assert Covariate.CACHE in finding.not_matched
    assert Covariate.CACHE not in verify(question).not_matched


def test_a_compressed_week_of_28_buckets_proves_a_saving_too() -> None:
    cycle = Cycle(bucket_s=5, buckets=28)
    rng = np.random.default_rng(1)
    at = np.arange(7 * 28)
    changed_at = 5 * 6 * 28
    load = 100 * (1 + 0.4 * np.sin(2 * np.pi * at / 4)) * np.exp(rng.normal(0, 0.05, len(at)))
    cost = 0.01 * (1 + 20 / load) * np.where(at >= 6 * 28, 0.8, 1.0) * np.exp(rng.normal(0, 0.03, len(at)))
    hours = HourlyOutcomes(5 * at, cost, load, np.full(len(at), 0.3), None, started_ts=5 * (at // 28 * 28))
    question = replace(asked(1), deployment=hours, changed_at=changed_at, until=5 * len(at), cycle=cycle)
    finding = verify(question)
    assert finding.verdict is EffectVerdict.REALIZED
    assert finding.placebo is not None and finding.placebo.dates >= 20
    assert finding.saving_90 is not None and finding.saving_90.likely == pytest.approx(0.2, abs=0.03)
