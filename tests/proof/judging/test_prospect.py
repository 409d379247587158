"""Provability of a recommendation by the history of a deployment, before it is accepted."""

from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.proof.judging.verifier import Prospect, prospects
from pertoken.proof.recommendation import State
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.text.lifecycle import prospect_lines
from tests.proof.judging.changes import DAY, VARIANT, changed_after, written
from tests.proof.rows import row

NOW = changed_after(5)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    return written(tmp_path_factory.mktemp("db"), 0.0, weeks_after=1)


def prospects_of(where: StoreLocation, now_ts: int = NOW, **values: object) -> tuple[Prospect, ...]:
    return prospects(open_store(where), replace(row(), **{"variants": (VARIANT,), **values}), now_ts)  # type: ignore[arg-type]


def test_weeks_of_hours_show_the_smallest_saving_they_could_prove_and_the_days_that_the_promise_takes(
    where: StoreLocation,
) -> None:
    (prospect,) = prospects_of(where)
    week, month = prospect.detectable.after(7), prospect.detectable.after(28)
    assert week is not None and month is not None and 0 < week < 0.1 and 0 < month < 0.1
    assert prospect.detectable.days_to_proof is not None and prospect.detectable.days_to_proof <= 7
    assert prospect_lines([prospect])[2] == (
        f"  tiny on gpu-1: {week:.1%} or more after one week, {month:.1%} or more after four weeks; "
        f"the promised 9.1% after {prospect.detectable.days_to_proof} days"
    )
    assert prospect.values()["smallest_after_7_days"] == week


def test_a_promise_that_is_too_small_or_none_is_named(where: StoreLocation) -> None:
    (small,) = prospects_of(where, variants=(replace(VARIANT, throughput_ratio=(1.0, 1.001, 1.002)),))
    assert prospect_lines([small])[2].endswith("; the promised 0.1% not within four weeks")
    (none,) = prospects_of(where, variants=(replace(VARIANT, throughput_ratio=None),))
    assert prospect_lines([none])[2].endswith("; no such saving is promised")


def test_a_short_history_is_not_known_with_the_reason(where: StoreLocation) -> None:
    (prospect,) = prospects_of(where, NOW - 28 * DAY)
    assert prospect_lines([prospect])[2] == (
        "  tiny on gpu-1: not known: 162 measured hours before the change, 504 are needed"
    )


def test_a_decided_change_and_one_without_a_deployment_have_no_prospect(where: StoreLocation, tmp_path: Path) -> None:
    assert prospects_of(where, state=State.REALIZED) == ()
    assert prospects_of(where, variants=(replace(VARIANT, edits=()),), deployment_id=None) == ()
    assert prospect_lines(()) == []
