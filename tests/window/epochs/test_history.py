"""Earlier epochs as rules see them, of what is stored."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy import insert

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.evidence import Comparison, Epoch
from pertoken.provenance import Provenance
from pertoken.store.connect.open import open_store, writing
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, EpochRow
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.writer import Writer
from pertoken.window.columns import columns
from pertoken.window.epochs import OUTCOME_COLUMNS, EpochHours, History, outcomes_of, outcomes_together
from pertoken.window.like_for_like import HourlyOutcomes
from tests.values import new_store, tick
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY, WEEK_H

CHANGED = MONDAY + WEEK_H * HOUR
NOW = CHANGED + WEEK_H * HOUR
OLD = EpochRow(8, 8, MONDAY, CHANGED, "0.31.0", '{"tp": 1, "driver_version": "570.1"}', (5,))
NEW = EpochRow(9, 8, CHANGED, None, "0.32.0", '{"tp": 1, "driver_version": "570.1"}', (5,))


def hour(epoch: EpochRow, ts: int, cost: float = 1.0, **other: object) -> dict[str, object]:
    """Return an hour in which an engine served, by a load that repeats every day."""
    of_day = ts // HOUR % 24
    tokens = 2_000_000 + 50_000 * of_day
    wobble = 1 + 0.03 * np.sin(ts // HOUR * 1.7)
    busy_ms = round(1000 * (200 + 0.0005 * tokens) * cost * wobble)
    row = {"epoch_id": epoch.epoch_id, "ts": ts, "duration_ms": 3_600_000, "observed_ms": 3_600_000, "samples": 60}
    row |= {"incomplete_n": 0, "revision": 1, "busy_ms": busy_ms, "busy_provenance": int(Provenance.COUNTER)}
    row |= {"prompt_tokens": tokens * 3 // 4, "generated_tokens": tokens // 4, "cached_tokens": tokens // 4}
    row |= {"requests_finished": tokens // 1000}
    return row | other


def epochs_of(folder: Path, old: EpochRow = OLD, new: EpochRow = NEW, cost: float = 1.25) -> tuple[Epoch, ...]:
    """Return a rule's epochs after a week with the old one and one with the new, whose tokens cost `cost` as much."""
    where = new_store(folder)
    with Writer(where) as writer:
        known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (old, new), "devices": (GPU,)}
        sample = DeploymentSample(9, NOW - 60, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
        writer.commit(tick(NOW - 60, sample, **known))
        writer.roll_up()
    rows = [hour(old, ts) for ts in range(MONDAY, CHANGED, HOUR)]
    rows += [hour(new, ts, cost) for ts in range(CHANGED, NOW - HOUR, HOUR)]
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[HOUR]), rows)
    engine.dispose()
    (seen,) = present(open_store(where), load_market(), 6 * HOUR, NOW).context.deployments.values()
    epochs = seen.epochs
    assert "epochs" in seen.read
    return epochs


def test_an_earlier_epoch_is_compared_hour_by_hour_with_the_present_one(tmp_path: Path) -> None:
    (epoch,) = epochs_of(tmp_path)
    assert (epoch.start, epoch.end, epoch.engine_version, epoch.driver) == (MONDAY, CHANGED, "0.31.0", "570.1")
    assert (epoch.knobs, epoch.changed, epoch.deployment_id) == ({"tp": 1}, ("engine_version",), 8)
    assert epoch.tokens == sum(int(hour(OLD, ts)["prompt_tokens"]) * 4 // 3 for ts in range(MONDAY, CHANGED, HOUR))  # type: ignore[call-overload]
    assert epoch.present.ratio is not None and epoch.present.dearer
    assert 1.2 < epoch.present.ratio[0] < epoch.present.ratio[1] < epoch.present.ratio[2] < 1.3
    assert epoch.present.matched_hours == WEEK_H - 1


def test_other_changes_are_named(tmp_path: Path) -> None:
    knobs = '{"tp": 2, "kv_dtype": "fp8", "driver_version": "580.2"}'
    (epoch,) = epochs_of(tmp_path, new=replace(NEW, knobs=knobs, device_ids=(5, 6)))
    assert epoch.changed == ("tp", "kv_dtype", "engine_version", "driver", "devices")


def test_a_deployment_that_never_changed_has_no_earlier_epoch(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    with Writer(where) as writer:
        known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "epochs": (NEW,), "devices": (GPU,)}
        writer.commit(tick(NOW - 60, DeploymentSample(9, NOW - 60, 60_000, 60_000, True, 30_000), **known))
    (seen,) = present(open_store(where), load_market(), 6 * HOUR, NOW).context.deployments.values()
    assert seen.epochs == ()


NAMES = (
    "epoch_id", "ts", "duration_ms", "observed_ms", "busy_ms", "busy_provenance", "prompt_tokens", "cached_tokens",
    "generated_tokens", "requests_finished",
)  # fmt: skip


def outcomes(**other: object) -> object:
    """Outcomes of a day of hours with these values."""
    rows = [hour(OLD, MONDAY + n * HOUR, **other) for n in range(24)]  # type: ignore[arg-type]
    text = [",".join(str(row[name]) for row in rows) for name in NAMES]
    return outcomes_of(columns(NAMES, [text]), 2, MONDAY + 60, MONDAY + 20 * HOUR)


def test_the_hours_in_which_an_epoch_began_and_ended_are_left_out() -> None:
    hours = outcomes()
    assert not isinstance(hours, Comparison) and len(hours) == 19  # type: ignore[arg-type]


def test_device_time_is_that_of_all_its_devices() -> None:
    hours = outcomes(busy_ms=1_000_000, prompt_tokens=1_500_000, generated_tokens=500_000)
    assert set(hours.device_s_per_token) == {0.001}  # type: ignore[attr-defined]


def test_hours_that_are_busy_by_an_upper_bound_alone_cannot_be_compared() -> None:
    bound = outcomes(busy_ms=3_600_000, busy_provenance=int(Provenance.BOUND))
    assert isinstance(bound, Comparison) and bound.code == "mostly-busy"
    assert not isinstance(outcomes(busy_provenance=int(Provenance.BOUND)), Comparison)


def test_an_engine_without_time_counters_cannot_be_compared() -> None:
    unknown = outcomes(busy_ms=-(2**62))
    assert isinstance(unknown, Comparison) and unknown.code == "not-measured"


def test_epochs_that_are_not_stored_any_more_cannot_be_compared() -> None:
    assert History().compared(1, 2).reason == "an epoch is no longer stored, or ended over 8 weeks ago"


def hours_of(epoch: EpochRow, first: int, last: int, devices: int, **values: int) -> EpochHours:
    rows = [{**hour(epoch, MONDAY + n * HOUR), **values} for n in range(first, last)]
    chunk = [",".join(str(row[name]) for row in rows) for name in OUTCOME_COLUMNS]
    return EpochHours(columns(OUTCOME_COLUMNS, [chunk]), devices, epoch.start_ts, epoch.end_ts)


def test_servers_that_share_requests_are_one_and_hours_without_one_of_them_are_left_out() -> None:
    none = {"prompt_tokens": 0, "cached_tokens": 0, "generated_tokens": 0, "requests_finished": 0}
    prompts = {**none, "prompt_tokens": 9000, "cached_tokens": 900, "busy_ms": 1_000_000}
    outputs = {**none, "generated_tokens": 1000, "requests_finished": 10, "busy_ms": 2_000_000}
    prefill, decode = replace(NEW, start_ts=MONDAY), replace(NEW, start_ts=MONDAY + 2 * HOUR + 60)
    together = outcomes_together([hours_of(prefill, 0, 6, 4, **prompts), hours_of(decode, 2, 5, 8, **outputs)])
    assert isinstance(together, HourlyOutcomes)
    assert ((together.ts - MONDAY) // HOUR).tolist() == [3, 4]
    assert together.device_s_per_token.tolist() == [(4 * 1000 + 8 * 2000) / 10_000] * 2
    assert together.tokens_per_s.tolist() == [10_000 / 3600] * 2
    assert together.generated_share.tolist() == [0.1] * 2
    assert together.cached_share is not None and together.cached_share.tolist() == [0.1] * 2
    assert together.tokens_per_request is not None and together.tokens_per_request.tolist() == [1000.0] * 2
    assert isinstance(outcomes_together([hours_of(prefill, 0, 6, 4, observed_ms=0)]), Comparison)
