"""Choice of the hours that count."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.proof.verification.baseline import MIN_ALIKE_PROCESSES
from pertoken.proof.verification.question import Covariate, EventKind, OtherChange, Question
from pertoken.proof.verification.verify import verify
from pertoken.proof.verification.windows import (
    WAY_OUT,
    NotEstimable,
    Windows,
    baseline_buckets,
    single_restart,
    windows,
)
from tests.proof.histories import CHANGED, HOUR_S, UNTIL, asked, history, restarted
from tests.window.test_like_for_like import WEEK_H

DAY_S = 24 * HOUR_S


def used(question: Question) -> Windows:
    split = windows(question)
    assert isinstance(split, Windows)
    return split


def refused(question: Question) -> NotEstimable:
    split = windows(question)
    assert isinstance(split, NotEstimable)
    return split


def test_the_hours_of_cold_caches_after_the_restart_are_left_out() -> None:
    windows = used(asked(1))
    assert windows.after_start == CHANGED + 6 * HOUR_S
    assert windows.grid.ts[windows.after].min() >= windows.after_start
    assert windows.base.sum() == 6 * (WEEK_H - 6)  # it was started every week


def test_a_change_within_an_hour_leaves_that_hour_out() -> None:
    windows = used(asked(1, changed_at=CHANGED - 10 * HOUR_S + 60))
    assert windows.grid.ts[windows.base].max() == CHANGED - 11 * HOUR_S


def test_hours_before_another_change_are_no_baseline() -> None:
    event = OtherChange(CHANGED - 4 * 7 * DAY_S, EventKind.DRIVER, "driver 570 → 580")
    assert used(asked(1, events=(event,))).base_start == event.ts + 6 * HOUR_S


def test_a_change_of_price_splits_no_window() -> None:
    event = OtherChange(CHANGED - DAY_S, EventKind.PRICE, "its price changed")
    assert used(asked(1, events=(event,))).base.sum() == 6 * (WEEK_H - 6)


def test_another_change_soon_before_is_named() -> None:
    event = OtherChange(CHANGED - DAY_S, EventKind.ENGINE, "engine 0.31 → 0.32")
    refusal = refused(asked(1, events=(event,)))
    assert refusal.code == "other-change"
    assert "engine 0.31 → 0.32" in refusal.reason


def test_hours_after_the_next_change_do_not_count() -> None:
    event = OtherChange(CHANGED + 4 * DAY_S, EventKind.KNOBS, "max_num_seqs 128 → 256")
    windows = used(asked(1, events=(event,)))
    assert windows.after_end == event.ts
    soon = replace(event, ts=CHANGED + DAY_S)
    assert refused(asked(1, events=(soon,))).code == "other-change"


@pytest.mark.parametrize(
    ("changed_at", "until", "code"),
    [(CHANGED - 30 * DAY_S, UNTIL, "short-history"), (CHANGED, CHANGED + DAY_S, "few-hours")],
)
def test_too_few_hours_are_refused(changed_at: int, until: int, code: str) -> None:
    assert refused(asked(1, changed_at=changed_at, until=until)).code == code


def test_no_hour_at_all_is_refused() -> None:
    none = history(1)
    none = none.where(np.zeros(len(none), bool))
    assert refused(asked(1, deployment=none)).code == "short-history"


def test_a_load_that_was_never_seen_before_is_refused() -> None:
    refusal = refused(asked(1, load=6.0))
    assert refusal.code == "load-differs"
    assert "of 162 hours after the change have like hours before it" in refusal.reason


def test_a_cache_level_that_was_never_seen_is_refused_unless_the_change_is_meant_to_alter_it() -> None:
    question = asked(1)
    assert question.deployment.cached_share is not None
    share = np.where(question.deployment.ts >= CHANGED, 0.9, question.deployment.cached_share)
    question = replace(question, deployment=replace(question.deployment, cached_share=share))
    assert refused(question).code == "cache-differs"
    assert used(replace(question, acts_through=frozenset({Covariate.CACHE}))).after.sum() > 150


def test_a_recheck_looks_at_the_last_weeks_alone() -> None:
    assert used(asked(1, after_from=CHANGED + 3 * DAY_S)).after.sum() <= 4 * 24


def test_the_hours_before_are_read_without_any_after() -> None:
    question = asked(1)
    past = question.deployment.ts < CHANGED
    hours_before = baseline_buckets(question, CHANGED + DAY_S)
    assert not isinstance(hours_before, NotEstimable)
    assert (hours_before.base.sum(), len(hours_before.grid)) == (past.sum() - 6 * 6, past.sum() + 24)


@pytest.mark.parametrize("starts", [(), (CHANGED - 10 * HOUR_S,)])
def test_a_change_after_a_single_process_is_not_separable_and_the_way_out_is_named(starts: tuple[int, ...]) -> None:
    first = int(history(1).ts[0])
    alone = used(asked(1, deployment=restarted(history(1), first, *starts)))
    assert alone.not_separable is not None and alone.not_separable.code == "not-separable"
    assert "pertoken trial" in alone.not_separable.reason and "restart the engine twice" in alone.not_separable.reason
    assert Covariate.UPTIME not in alone.grid.columns


@pytest.mark.parametrize("weeks", [(1,), (2, 1), (3, 2, 1)])
def test_a_plain_restart_makes_a_change_separable_and_a_single_one_asks_for_another(weeks: tuple[int, ...]) -> None:
    starts = int(history(1).ts[0]), *(CHANGED - 7 * week * DAY_S for week in weeks)
    question = asked(1, deployment=restarted(history(1), *starts))
    windows = used(question)
    assert windows.not_separable is None
    way_out = single_restart(windows.grid, windows.base, windows.after)
    if len(weeks) > 1:
        assert way_out is None
    else:
        assert way_out is not None and "restart the engine once more as it is, a week before" in way_out
        finding = verify(question)
        assert finding.code == "wide-interval" and str(finding.reason).endswith(way_out)


def test_the_proposed_restarts_are_as_many_as_show_how_starts_scatter() -> None:
    assert max(WAY_OUT) + 1 == MIN_ALIKE_PROCESSES


def test_a_change_without_a_restart_after_a_single_one_asks_for_no_other() -> None:
    starts = int(history(1).ts[0]), CHANGED - 7 * DAY_S
    hours = restarted(history(1), *starts)
    assert hours.started_ts is not None
    running = used(asked(1, deployment=replace(hours, started_ts=np.minimum(hours.started_ts, starts[1]))))
    assert single_restart(running.grid, running.base, running.after) is None


def test_a_change_without_a_restart_needs_none_before_it() -> None:
    hours = replace(history(1), started_ts=np.full(len(history(1)), CHANGED - 60 * DAY_S))
    running = used(asked(1, deployment=hours))
    assert running.not_separable is None
    assert Covariate.UPTIME not in running.grid.columns


def test_starts_that_are_not_recorded_are_not_separable() -> None:
    unknown = used(asked(1, deployment=replace(history(1), started_ts=None)))
    assert unknown.not_separable is not None and "are not recorded" in unknown.not_separable.reason


def test_hours_of_an_age_that_was_never_seen_do_not_count() -> None:
    nightly = range(int(history(1).ts[0]), CHANGED, DAY_S)
    refusal = refused(asked(1, deployment=restarted(history(1), *nightly)))
    assert refusal.code == "uptime-differs" and "time since the engine started" in refusal.reason
    twice_a_week = range(int(history(1).ts[0]), CHANGED, 84 * HOUR_S)
    young = used(asked(1, deployment=restarted(history(1), *twice_a_week)))
    assert young.grid.ts[young.after].max() < CHANGED + 7 * DAY_S - 12 * HOUR_S


@pytest.mark.parametrize("ratio", [0.6, 1.6])
def test_lengths_that_were_never_seen_are_refused_at_the_same_mix(ratio: float) -> None:
    hours = history(1)
    length = 1000 * np.exp(np.random.default_rng(1).normal(0, 0.05, len(hours)))
    hours = replace(hours, tokens_per_request=length * np.where(hours.ts >= CHANGED, ratio, 1.0))
    refusal = refused(asked(1, deployment=hours))
    assert refusal.code == "length-differs" and "tokens per request" in refusal.reason
