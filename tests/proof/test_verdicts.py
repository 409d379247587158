"""Verdict of a comparison of two epochs, and its effect on a recommendation."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.proof.recommendation import Edit
from pertoken.proof.verdicts import (
    Judgement,
    Verdict,
    VerdictResult,
    move_code,
    read_verdicts,
    standing_verdicts,
    verdicts_of,
    with_judgement,
    write,
)
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceChanged, AdviceRepository
from tests.proof.rows import FP8
from tests.values import new_store

EDITS = (Edit("deployment", 8, "tp", 1, 2),)
WAITING = Verdict(
    8,
    9,
    7,
    100,
    "chat on gpu-1",
    EDITS,
    version_before="1.0",
    version_after="1.1",
    created_ts=200,
)


def saving(likely: float, half: float = 0.02) -> Judgement:
    return Judgement(VerdictResult.CHEAPER, (-likely - half, -likely, -likely + half))


def test_a_saving_is_realized_partial_or_inconclusive_by_its_promise_and_its_interval() -> None:
    assert FP8.throughput_ratio is not None and FP8.throughput_ratio[0] == 1.2  # at least 17 % less per token
    assert move_code(FP8, [saving(0.2)]) == "realized"
    assert move_code(FP8, [saving(0.1)]) == "partial"
    assert move_code(FP8, [saving(0.2, half=0.15)]) == "inconclusive"
    assert move_code(None, [saving(0.1)]) == "realized"


def test_of_several_deployments_the_least_favourable_one_counts_and_all_are_awaited() -> None:
    dearer, nothing = Judgement(VerdictResult.DEARER), Judgement(VerdictResult.NO_EFFECT)
    assert move_code(FP8, [saving(0.2), nothing]) == "no-effect"
    assert move_code(FP8, [saving(0.2), nothing, dearer]) == "regressed"
    assert move_code(FP8, [saving(0.2), Judgement(VerdictResult.INCONCLUSIVE)]) == "inconclusive"
    assert move_code(FP8, [dearer, Judgement(VerdictResult.PENDING)]) is None
    assert move_code(FP8, []) is None


def test_a_verdict_is_read_back_unchanged_and_a_pending_one_has_no_time(tmp_path: Path) -> None:
    with AdviceRepository(new_store(tmp_path)).writing() as connection:
        write(connection, [WAITING, WAITING])
        (read,) = read_verdicts(connection)
        assert read == replace(WAITING, version=1)
        assert with_judgement(read, Judgement(VerdictResult.PENDING, reason="few hours"), 300).judged_ts is None
        decided = with_judgement(read, Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3), "why"), 300)
        write(connection, [decided])
        assert read_verdicts(connection) == (replace(decided, version=2),)
        with pytest.raises(AdviceChanged):
            write(connection, [decided])


def test_a_verdict_as_of_a_time_is_pending_before_it_was_judged_and_absent_before_it_was_noted(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with AdviceRepository(where).writing() as connection:
        write(connection, [with_judgement(WAITING, Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3), "why"), 300)])
    store = open_store(where)
    assert standing_verdicts(store, 199) == ()
    assert standing_verdicts(store, 299) == (replace(WAITING, version=1),)
    assert standing_verdicts(store, 300) == standing_verdicts(store)
    assert standing_verdicts(store)[0].judgement.result is VerdictResult.DEARER


def test_a_verdict_belongs_to_the_time_it_was_passed_and_a_pending_one_to_that_of_the_change(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with AdviceRepository(where).writing() as connection:
        write(connection, [WAITING])
        (waiting,) = read_verdicts(connection)
    assert [verdict.dated_ts for verdict in verdicts_of(open_store(where), 100, 101)] == [100]
    assert verdicts_of(open_store(where), 101, 10_000) == ()
    with AdviceRepository(where).writing() as connection:
        write(connection, [with_judgement(waiting, Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3)), 700)])
    store = open_store(where)
    assert verdicts_of(store, 100, 700) == ()
    assert [verdict.judgement.result for verdict in verdicts_of(store, 700, 701)] == [VerdictResult.DEARER]
    assert [verdict.judgement.result for verdict in verdicts_of(store, 100, 600, as_of=600)] == [VerdictResult.PENDING]
