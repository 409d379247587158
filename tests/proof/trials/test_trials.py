"""Trials from two replicas, or from one switched on and off, to their stored results."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof import recommendation
from pertoken.proof.detection import journal
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import store_acts, stored
from pertoken.proof.trials.endpoint import Block, PromptOutput, paired, switched
from pertoken.proof.trials.look import Observed, begin, look, quality_check, stop, warm_up_s
from pertoken.proof.trials.trial import Design, Status, Trial, put, read_trials
from pertoken.proof.verdicts import VerdictResult
from pertoken.proof.verification.estimate import Effect
from pertoken.proof.verification.windows import NotEstimable
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceChanged, AdviceRepository
from pertoken.window.like_for_like import HourlyOutcomes
from tests.postgres import server_url
from tests.proof.looks import detect_at
from tests.proof.trials.minutes import (
    BEGUN,
    BF16,
    CANARY,
    CHANGED,
    CONTROL,
    END,
    FP8_KNOBS,
    HALF_HOUR,
    RESTARTED,
    before,
    proposed,
    recorded,
)
from tests.window.test_like_for_like import noise

MARKET = load_market()
UNCHECKED = Settings()


class Tried:
    """A database in which a recommendation is tried."""

    def __init__(self, where: StoreLocation, settings: Settings = UNCHECKED) -> None:
        self.where, self.settings, self.target = where, settings, AdviceRepository(where)
        self.row = proposed(where)

    def begin(self, *, waived: bool = True, row: Recommendation | None = None, now_ts: int = BEGUN) -> Trial:
        row = row or self.row
        store = open_store(self.where)
        self.row, trial = begin(store, self.target, row, self.settings, now_ts, "ann", quality_waived=waived)
        return trial

    def look(self, trial: Trial, now_ts: int, check: object = None) -> tuple[Trial, Observed]:
        return look(open_store(self.where), self.target, trial, self.row, MARKET, self.settings, now_ts, check)  # type: ignore[arg-type]

    def state(self) -> State:
        with self.target.writing() as connection:
            return stored(connection)[0].state

    def trials(self) -> tuple[Trial, ...]:
        with self.target.writing() as connection:
            return read_trials(connection)

    def detect(self, now_ts: int) -> None:
        detect_at(self.where, self.target, MARKET, self.settings, now_ts)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | StoreLocation]:
    if request.param == "sqlite":
        yield tmp_path
        return
    with server_url(tmp_path / "postgres") as url:
        yield locate(url)


def test_a_canary_is_compared_with_its_control_over_the_same_minutes_once_both_were_restarted(
    place: Path | StoreLocation,
) -> None:
    tried = Tried(before(place, CANARY, CONTROL))
    trial = tried.begin()
    recorded(tried.where, CANARY, CHANGED, CONTROL)
    assert (trial.design, trial.warm_up_s, trial.minutes) == (Design.REPLICAS, HALF_HOUR, 120)
    assert trial.control is not None and trial.control.url == "http://127.0.0.1:8001"
    assert tried.state() is State.ACCEPTED and tried.row.estimate is not None
    warm = RESTARTED + 30 + HALF_HOUR
    under_way, seen = tried.look(trial, warm + 60 * 60)
    assert (seen.canary_ts, seen.control_ts) == (RESTARTED, RESTARTED + 30)
    assert under_way == trial and 55 < seen.minutes < 61
    tried.detect(warm + 60 * 60)
    assert tried.state() is State.ACCEPTED  # within the trial nothing is applied
    done, _ = tried.look(trial, END)
    assert done.status is Status.DONE and tried.trials() == (done,)
    assert done.result is not None and done.result.result is VerdictResult.CHEAPER
    low, likely, high = done.result.effect or (0.0, 0.0, 0.0)
    assert low < likely < high < -0.1 and likely == pytest.approx(-0.2, abs=0.02)
    assert (done.result.minutes, done.result.baseline_minutes) == (124, 90)
    with tried.target.writing() as connection:
        entries = [(entry.what, entry.ts) for entry in journal(connection, tried.row.recommendation_id)]
    assert ("trial begun", BEGUN) in entries and ("trial done", END) in entries
    tried.detect(END)
    assert tried.state() is State.APPLIED  # what stayed after it is


def test_a_trial_waits_until_both_replicas_were_restarted(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    begun = tried.begin()
    recorded(tried.where, CANARY, CHANGED, CONTROL, restarts=())
    trial, seen = tried.look(begun, END)
    assert trial.status is Status.RUNNING
    assert (seen.canary_ts, seen.control_ts, seen.minutes) == (RESTARTED, None, 0)


def test_a_control_that_is_changed_within_the_trial_ends_it_without_a_result(tmp_path: Path) -> None:
    other = replace(CONTROL, epoch_id=20, start_ts=RESTARTED, knobs='{"weight_dtype": "bf16", "max_num_seqs": 8}')
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    trial = tried.begin()
    recorded(tried.where, CANARY, CHANGED, replace(CONTROL, end_ts=RESTARTED), other)
    done, _ = tried.look(trial, END)
    assert done.status is Status.STOPPED and done.result is not None
    assert done.result.reason == "the control, tiny on gpu-1, was changed"


def test_one_replica_is_switched_back_and_every_block_is_longer_than_its_warm_up(tmp_path: Path) -> None:
    length = 2 * HALF_HOUR
    epochs, start = [replace(CANARY, end_ts=BEGUN + length)], BEGUN + length
    for n in range(7):
        knobs = BF16 if n % 2 else FP8_KNOBS
        ended = None if n == 6 else start + length
        epochs.append(replace(CHANGED, epoch_id=30 + n, start_ts=start, end_ts=ended, knobs=knobs))
        start += length
    tried = Tried(before(tmp_path, CANARY))
    trial = tried.begin()
    recorded(tried.where, *epochs, end=start + 60, restarts=())
    assert (trial.design, trial.blocks, trial.block_s) == (Design.SWITCHBACK, 8, length)
    _, seen = tried.look(trial, BEGUN + 2 * length + 600)
    assert ([block.changed for block in seen.blocks], seen.block_is_changed) == ([False, True], False)
    assert seen.block_end_ts == BEGUN + 3 * length
    tried.detect(BEGUN + 2 * length + 600)
    assert tried.state() is State.ACCEPTED  # switching off rolls nothing back
    done, _ = tried.look(trial, start)
    assert done.status is Status.DONE and done.result is not None and done.result.result is VerdictResult.CHEAPER
    assert done.result.effect is not None and done.result.effect[1] == pytest.approx(-0.2, abs=0.03)


def test_a_change_that_can_alter_outputs_is_not_tried_without_a_quality_check(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    with pytest.raises(BadInput, match=r"advisor\.quality_check"):
        tried.begin(waived=False)
    assert tried.state() is State.OPEN and tried.trials() == ()


def test_the_quality_check_of_a_person_finds_both_engines_and_its_exit_status_ends_the_trial(tmp_path: Path) -> None:
    script, out = tmp_path / "check.py", tmp_path / "urls"
    script.write_text(
        "import os, sys\n"
        f"open({str(out)!r}, 'w').write(os.environ['PERTOKEN_CANARY_URL'] + ' ' + os.environ['PERTOKEN_CONTROL_URL'])\n"
        "sys.exit(3)\n"
    )
    settings = Settings(advisor_quality_check=(sys.executable, str(script)))
    tried = Tried(before(tmp_path / "db", CANARY, CONTROL), settings)
    trial = tried.begin(waived=False)
    recorded(tried.where, CANARY, CHANGED, CONTROL)
    done, _ = tried.look(trial, RESTARTED + 60, quality_check(trial, settings))
    assert (done.status, done.quality_exit, done.result) == (Status.QUALITY_FAILED, 3, None)
    assert out.read_text() == "http://127.0.0.1:8000 http://127.0.0.1:8001"
    missing = quality_check(trial, Settings(advisor_quality_check=(str(tmp_path / "absent"),)))
    assert missing is not None
    with pytest.raises(BadInput, match="no such file or directory; give a command that can be run"):
        missing(trial)


def test_of_two_who_begin_or_end_a_trial_at_once_one_is_refused(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    proposal = tried.row
    trial = tried.begin()
    with pytest.raises(AdviceChanged):
        tried.begin(row=proposal)
    assert stop(tried.target, trial, BEGUN + 60).status is Status.STOPPED
    with pytest.raises(AdviceChanged):
        stop(tried.target, trial, BEGUN + 61)


def test_a_trial_that_runs_is_begun_no_second_time_and_ends_with_its_acceptance(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    tried.begin()
    with tried.target.writing() as connection:
        (accepted,) = stored(connection)
    with pytest.raises(BadInput, match="a trial of it runs; `pertoken trial"):
        tried.begin(row=accepted)
    withdrawn, again = store_acts(tried.target, accepted, recommendation.reopen(accepted, BEGUN + 60), "ann")
    assert (withdrawn.state, again.state) == (State.EXPIRED, State.OPEN)
    with tried.target.writing() as connection:
        (trial,) = read_trials(connection)
    assert (trial.status, trial.ended_ts) == (Status.STOPPED, BEGUN + 60)


def test_a_change_that_no_engine_shows_cannot_be_tried(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY, CONTROL))
    (best, *_) = tried.row.variants
    with pytest.raises(BadInput, match="`pertoken applied"):
        tried.begin(row=replace(tried.row, variants=(replace(best, edits=()),)))


def minutes(seed: int, count: int = 120, cost: float = 1.0, load: float = 1.0, sd: float = 0.05) -> HourlyOutcomes:
    """Minutes in a row; half of a minute's cost does not depend on load."""
    rng = np.random.default_rng(seed)
    tokens = load * 1000 * np.exp(rng.normal(0, 0.1, count))
    per_token = 1e-4 * cost * (0.5 + 500 / tokens) * np.exp(noise(rng, count, sd))
    share = np.full(count, 0.25)
    return HourlyOutcomes(BEGUN + 60 * np.arange(count), per_token, tokens, share, share / 2)


def test_equal_replicas_are_found_different_in_at_most_one_run_in_ten() -> None:
    effects = [paired(minutes(n), minutes(1000 + n)) for n in range(200)]
    wrong = sum(isinstance(effect, Effect) and abs(effect.log_ratio) > effect.half_width_90 for effect in effects)
    assert 8 <= wrong <= 32  # of a 90 % interval 20 are expected


def test_load_that_differs_a_little_is_taken_out_and_a_lot_is_refused() -> None:
    effect = paired(minutes(1, cost=0.9, load=1.1, sd=0.01), minutes(2, sd=0.01))
    assert isinstance(effect, Effect) and effect.log_ratio == pytest.approx(np.log(0.9), abs=0.01)
    refused = paired(minutes(1, load=1.5), minutes(2))
    assert isinstance(refused, NotEstimable) and refused.code == "load-differs"
    assert isinstance(paired(minutes(1, count=50), minutes(2)), NotEstimable)


def test_a_drift_over_a_switchback_is_no_effect() -> None:
    blocks = []
    for n in range(8):
        arm = minutes(n, 30, cost=1.02**n * (0.9 if n % 2 else 1.0), sd=0.01)
        blocks.append(Block(bool(n % 2), replace(arm, ts=arm.ts + n * 3600)))
    effect = switched(blocks)
    assert isinstance(effect, Effect)
    assert abs(effect.log_ratio - np.log(0.9)) < max(effect.half_width_90, 0.02)
    assert isinstance(switched(blocks[:4]), NotEstimable)


def test_the_warm_up_of_a_cache_is_seen_after_earlier_restarts() -> None:
    base = minutes(1, 360)
    cached = np.where(np.arange(360) < 40, 0.1, 0.5)
    assert warm_up_s(replace(base, cached_share=cached), [BEGUN]) == pytest.approx(40 * 60, abs=600)
    assert warm_up_s(replace(base, cached_share=cached), [BEGUN + 7 * 3600]) is None
    assert warm_up_s(replace(base, cached_share=None), [BEGUN]) is None


def test_answers_of_a_single_replica_are_kept_until_the_change(tmp_path: Path) -> None:
    tried = Tried(before(tmp_path, CANARY))
    trial = tried.begin()
    answers = (PromptOutput("a b c", 3), PromptOutput("", 1))
    with tried.target.writing() as connection:
        put(connection, replace(trial, answers=(answers, answers), outputs="not compared"))
    (known,) = tried.trials()
    assert (known.answers, known.outputs) == ((answers, answers), "not compared")
