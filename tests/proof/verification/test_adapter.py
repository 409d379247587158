"""Questions from two windows of a real store."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from sqlalchemy import insert

from pertoken.evidence import Comparison
from pertoken.proof.verification.adapter import CACHE_KNOBS, acts_through, halves_of, question
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import Covariate, EventKind, Question
from pertoken.proof.verification.verify import verify
from pertoken.proof.verification.windows import NotEstimable
from pertoken.state.deployment import knobs
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store, writing
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentRow, DeploymentSample, EpochRow
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.writer import Writer
from pertoken.window.reading import Window
from tests.proof.judging.changes import restart
from tests.values import new_store, tick
from tests.window.epochs.test_history import hour
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY, WEEK_H

Made = TypeVar("Made")
WEEKS = 5
CHANGED = MONDAY + WEEKS * WEEK_H * HOUR
END = CHANGED + WEEK_H * HOUR
OLDEST = EpochRow(7, 8, MONDAY, MONDAY + 24 * HOUR, "0.31.0", '{"tp": 1, "driver_version": "570.1"}', (5,))
OLD = EpochRow(8, 8, MONDAY + 24 * HOUR, CHANGED, "0.31.0", '{"tp": 1, "driver_version": "580.2"}', (5,))
NEW = EpochRow(9, 8, CHANGED, None, "0.32.0", '{"tp": 1, "driver_version": "580.2"}', (5,))
SIBLING = DeploymentRow(18, 7, DEPLOYMENT.host_id, "tiny")
UPDATED = DeploymentRow(28, 7, DEPLOYMENT.host_id, "tiny")
"""A sibling whose driver was updated with that of the deployment, five weeks ago."""
FIRST = EpochRow(28, 28, MONDAY, OLD.start_ts + 60, "0.31.0", '{"tp": 1, "driver_version": "570.1"}', (15,))
SECOND = EpochRow(29, 28, OLD.start_ts + 60, None, "0.31.0", '{"tp": 1, "driver_version": "580.2"}', (15,))
UNCHANGED = EpochRow(19, 18, MONDAY, None, "0.31.0", '{"tp": 1}', (6,))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    """Five weeks and one in which a token costs 20 % less, and a sibling that did not change."""
    where = new_store(tmp_path_factory.mktemp("proof"))
    devices = (GPU, replace(GPU, device_id=6, uuid="GPU-6", slot=1), replace(GPU, device_id=15, uuid="GPU-15", slot=2))
    known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT, SIBLING, UPDATED), "devices": devices}
    epochs = (OLDEST, OLD, NEW, UNCHANGED, FIRST, SECOND)
    with Writer(where) as writer:
        samples = [
            DeploymentSample(epoch, END - 60, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
            for epoch in (9, 19, 29)
        ]
        writer.commit(tick(END - 60, *samples, epochs=epochs, **known))
        writer.roll_up()
    noise = np.exp(np.random.default_rng(1).normal(0, 0.02, ((END - MONDAY) // HOUR, 2)))
    rows = []
    for ts in range(MONDAY, END - HOUR, HOUR):
        epoch = next(epoch_row for epoch_row in (NEW, OLD, OLDEST) if ts >= epoch_row.start_ts)
        own, other = noise[(ts - MONDAY) // HOUR]
        rows.append(hour(epoch, ts, own * (0.8 if epoch is NEW else 1.0)))
        rows.append(hour(UNCHANGED, ts, other))
        if ts >= SECOND.start_ts:
            rows.append(hour(SECOND, ts, other))
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[HOUR]), rows)
        connection.execute(
            insert(t.event), [restart(ts) for ts in range(MONDAY + WEEK_H * HOUR, CHANGED, WEEK_H * HOUR)]
        )
    engine.dispose()
    return where


def of(where: StoreLocation, make: Callable[[Window, Window], Made]) -> Made:
    with open_store(where).read() as connection:
        return make(Window(connection, MONDAY, CHANGED), Window(connection, CHANGED, END))


def test_a_change_in_a_store_is_verified(stored: StoreLocation) -> None:
    asked = of(stored, lambda before, after: question(before, after, 8, CHANGED, siblings=(8, 18)))
    assert isinstance(asked, Question)
    assert (asked.changed_at, asked.until, len(asked.siblings)) == (CHANGED, END, 1)
    finding = verify(asked)
    assert finding.verdict is EffectVerdict.REALIZED
    assert finding.saving_90 is not None and finding.saving_90.likely == pytest.approx(0.2, abs=0.01)
    assert finding.earlier_s_per_mtok == pytest.approx(577, rel=0.01)


def test_other_changes_are_events_and_the_change_itself_is_none(stored: StoreLocation) -> None:
    prices = (CHANGED + HOUR, END + HOUR)
    asked = of(stored, lambda before, after: question(before, after, 8, CHANGED, price_changes=prices))
    assert isinstance(asked, Question)
    assert [(event.ts, event.kind) for event in asked.events] == [
        (OLD.start_ts, EventKind.DRIVER),
        (CHANGED + HOUR, EventKind.PRICE),
    ]
    assert asked.events[0].text == "driver 570.1 → 580.2"


def test_a_sibling_that_changed_is_left_out(stored: StoreLocation) -> None:
    asked = of(stored, lambda before, after: question(before, after, 18, CHANGED, siblings=(8,)))
    assert isinstance(asked, Question)
    assert asked.siblings == ()


def test_a_sibling_that_changed_before_the_baseline_begins_is_compared_with(stored: StoreLocation) -> None:
    asked = of(stored, lambda before, after: question(before, after, 8, CHANGED, siblings=(28,)))
    assert isinstance(asked, Question)
    assert len(asked.siblings) == 1


def test_a_deployment_without_hours_is_refused(stored: StoreLocation) -> None:
    assert of(stored, lambda before, after: question(before, after, 99, CHANGED)) == NotEstimable(
        "not-measured", "no hour, or no device, of it is stored"
    )


def test_a_window_hands_out_the_hours_of_all_epochs_of_a_deployment(stored: StoreLocation) -> None:
    hours = of(stored, lambda before, _: before.outcomes(8))
    assert not isinstance(hours, Comparison)
    assert hours.ts.tolist() == [*range(MONDAY, CHANGED, HOUR)]


def test_a_change_of_the_prefix_cache_acts_through_the_cached_share() -> None:
    assert set(knobs()) >= CACHE_KNOBS
    assert acts_through(["max_num_seqs", "enable_prefix_caching"]) == {Covariate.CACHE}
    assert acts_through(["max_num_seqs"]) == frozenset()


def test_an_empty_store_has_no_hours(tmp_path: Path) -> None:
    outcomes = of(new_store(tmp_path), lambda before, _: before.outcomes(8))
    assert isinstance(outcomes, Comparison)
    assert outcomes.code == "not-measured"


@pytest.mark.parametrize(
    ("knobs_of", "expected"),
    [
        (('{"role": "prefill"}', '{"role": "decode"}', "{}"), (18,)),
        (('{"kv_connector": "NixlConnector"}', '{"kv_connector": "NixlConnector"}', '{"role": "both"}'), (18,)),
        (("{}", '{"role": "decode"}', '{"role": "prefill"}'), ()),
        (('{"role": "prefill"}', "{}", "{}"), ()),
    ],
)
def test_servers_of_one_model_share_requests_by_their_role_or_their_connector(
    tmp_path: Path, knobs_of: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    where, ids = new_store(tmp_path), (8, 18, 28)
    with Writer(where) as writer:
        samples = [DeploymentSample(key, MONDAY, 60_000, 60_000, True, 30_000, busy_provenance=0) for key in ids]
        known = {
            "engines": tuple(replace(ENGINE, engine_id=key, base_url=f"http://127.0.0.1:{key}") for key in ids),
            "deployments": (*(replace(DEPLOYMENT, deployment_id=key, engine_id=key) for key in ids),),
            "devices": (GPU,),
        }
        epochs = [EpochRow(key, key, MONDAY, None, "1", text, (5,)) for key, text in zip(ids, knobs_of, strict=True)]
        writer.commit(tick(MONDAY, *samples, epochs=tuple(epochs), **known))
        writer.roll_up()
    with open_store(where).read() as connection:
        assert halves_of([Window(connection, MONDAY - HOUR, MONDAY + HOUR)], 8) == expected
