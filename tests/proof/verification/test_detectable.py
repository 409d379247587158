"""Smallest saving that a history could prove before anything is changed."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import EventKind, OtherChange, Promise
from pertoken.proof.verification.verify import MAX_DAYS, Detectable, detectable, verify
from tests.proof.histories import CHANGED, HOUR_S, asked, history, restarted, scaled


def test_more_days_prove_smaller_savings_for_some_weeks() -> None:
    smallest = detectable(asked(1, sd=0.08))
    week = smallest.after(7)
    assert week is not None and 0.02 < week < 0.12
    assert list(smallest.smallest[:7]) == sorted(smallest.smallest[:7], reverse=True)
    assert smallest.smallest[0] == 1.0  # of the day of the restart there are too few hours
    assert len(smallest.smallest) == MAX_DAYS


def test_a_promise_has_its_days_to_proof() -> None:
    promised = {
        likely: detectable(asked(1, sd=0.08, promise=Promise(0, likely, 1))).days_to_proof
        for likely in (0.2, 0.07, 0.001)
    }
    assert promised[0.001] is None
    assert promised[0.2] is not None and promised[0.07] is not None
    assert promised[0.2] < promised[0.07]


def test_noise_makes_larger_savings_necessary() -> None:
    quiet, loud = detectable(asked(1, sd=0.02)).after(7), detectable(asked(1, sd=0.08)).after(7)
    assert quiet is not None and loud is not None and quiet < loud * 0.8


def test_hours_after_now_are_not_looked_at() -> None:
    question = asked(1)
    later = np.where(question.deployment.ts >= CHANGED, 3.0, 1.0)
    assert detectable(replace(question, deployment=scaled(question.deployment, later))) == detectable(question)


def test_siblings_lower_what_can_be_detected() -> None:
    common = np.exp(0.08 * np.sin(np.arange(7 * 168) / 60))
    question = asked(6, deployment=scaled(history(6, sd=0.02), common))
    alone = detectable(question).after(7)
    together = detectable(replace(question, siblings=(scaled(history(7, sd=0.02), common),))).after(7)
    assert alone is not None and together is not None and together < alone


def test_the_smallest_saving_is_proven_most_of_the_time() -> None:
    verdicts = []
    for seed in range(8):
        question = asked(seed, sd=0.08)
        smallest = detectable(question).after(7)
        assert smallest is not None
        cheaper = np.where(question.deployment.ts >= CHANGED, 1 - smallest, 1.0)
        verdicts.append(verify(replace(question, deployment=scaled(question.deployment, cheaper))).verdict)
    assert verdicts.count(EffectVerdict.REALIZED) >= 5


@pytest.mark.parametrize(
    ("events", "code"),
    [((), "baseline-fails"), ((OtherChange(CHANGED - HOUR_S, EventKind.DRIVER, "x"),), "other-change")],
)
def test_a_history_that_cannot_prove_anything_has_its_reason(events: tuple[OtherChange, ...], code: str) -> None:
    question = asked(7, events=events)
    dearer = np.where(question.deployment.ts >= CHANGED - 168 * HOUR_S, 1.4, 1.0)
    smallest = detectable(replace(question, deployment=scaled(question.deployment, dearer)))
    assert (smallest.code, smallest.smallest, smallest.days_to_proof) == (code, (), None)
    assert smallest.reason


def test_days_beyond_the_known_ones_are_unknown() -> None:
    assert Detectable().after(7) is None


def test_an_engine_that_was_never_restarted_is_proposed_two_plain_restarts() -> None:
    alone = detectable(asked(1, deployment=restarted(history(1), int(history(1).ts[0]))))
    assert (alone.smallest, alone.code) == ((), "not-separable")
    assert alone.reason is not None and "restart the engine twice as it is" in alone.reason


def test_an_engine_that_was_restarted_once_is_proposed_another_one_unless_the_promise_is_provable() -> None:
    once = asked(1, deployment=restarted(history(1), int(history(1).ts[0]), CHANGED - 7 * 24 * HOUR_S))
    small, large = (detectable(replace(once, promise=Promise(share, share, share))) for share in (0.01, 0.9))
    assert small.days_to_proof is None and small.reason is not None
    assert "restart the engine once more as it is" in small.reason and small.smallest
    assert large.days_to_proof is not None and large.reason is None
