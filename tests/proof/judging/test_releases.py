"""Released devices from telemetry to verdicts and receipts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from pertoken.config import Settings
from pertoken.proof.judging.receipts import read_receipts
from pertoken.proof.recommendation import Edit, State, declare
from pertoken.proof.stored import keep, store_acts, stored
from pertoken.savings.saving import Saving
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, EpochRow, HostSample, Tick
from pertoken.store.schema.shared import stable_id
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.writer import Writer
from pertoken.text.receipt import to_markdown
from tests.proof.judging.changes import WEEK, changed_after
from tests.proof.looks import judge_at
from tests.proof.rows import FP8, row
from tests.values import host_row, new_store, tick
from tests.window.epochs.test_history import hour
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY

RELEASED = changed_after(5)
NOW = RELEASED + WEEK
SPARE = stable_id("host", "spare")
SPARE_GPU = replace(GPU, device_id=6, host_id=SPARE, uuid="GPU-6")
SECOND_ENGINE = replace(ENGINE, engine_id=17, host_id=SPARE)
SECOND = replace(DEPLOYMENT, deployment_id=18, engine_id=17, host_id=SPARE)
STAYS = EpochRow(8, 8, MONDAY, None, "0.32.0", "{}", (5,))
GOES = EpochRow(18, 18, MONDAY, None, "0.32.0", "{}", (6,))
VARIANT = replace(
    FP8,
    title="1 replica fewer",
    edits=(Edit("deployment", 18, "running", True, False),),
    released=("spare",),
    throughput_ratio=None,
    saving=Saving((2_000_000_000_000, 2_190_000_000_000, 2_300_000_000_000)),
)


def recorded(folder: Path, *, silent_ts: int = RELEASED - 60, demand: float = 1.0) -> StoreLocation:
    """Two replicas of a service, the second of which goes with its host; the first one takes over its demand."""
    where = new_store(folder)
    spare = replace(host_row(), host_id=SPARE, name="spare")
    known = {"deployments": (SECOND,), "epochs": (GOES,), "devices": (SPARE_GPU,), "engines": (SECOND_ENGINE,)}
    with Writer(where) as writer:
        for ts in (MONDAY + 60, silent_ts):
            sample = DeploymentSample(18, ts, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
            of_host = HostSample(SPARE, ts, 10_000, 10_000, cpu_util_1e4=0, load_1e2=0, memory_used_bytes=1)
            writer.commit(Tick(ts=ts, host=spare, samples=(of_host, sample), **known))  # type: ignore[arg-type]
    stays = {"deployments": (DEPLOYMENT,), "epochs": (STAYS,), "devices": (GPU,), "engines": (ENGINE,)}
    with Writer(where) as writer:
        for ts in (MONDAY + 60, NOW):
            writer.commit(tick(ts, replace(sample, epoch_id=8, ts=ts), **stays))
    rows = []
    for ts in range(MONDAY, NOW, HOUR):
        if ts < RELEASED:
            rows += [hour(STAYS, ts), hour(GOES, ts)]
        else:
            once = hour(STAYS, ts)
            twice = {name: int(2 * demand * int(str(once[name]))) for name in ("prompt_tokens", "generated_tokens")}
            rows.append(once | twice)
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[HOUR]), rows)
    engine.dispose()
    writing(where, "advice").dispose()
    return where


class Released:
    """A database in which a person declared a release."""

    def __init__(self, where: StoreLocation) -> None:
        self.where, self.target = where, AdviceRepository(where)
        recommendation = row(variants=(VARIANT,), target="tiny", target_kind="service", target_key="tiny")
        (kept,) = keep(self.target, [recommendation], {"quantize"}, RELEASED - HOUR, "advisor")
        store_acts(self.target, kept, declare(kept, RELEASED), "ann")
        with self.target.writing() as connection:
            price: dict[str, Any] = {"selector": SPARE_GPU.uuid, "nano_usd_per_device_hour": 3_000_000_000}
            repository.add_price(connection, from_ts=0, set_ts=1, set_by="ann", note=None, **price)

    def judge(self, now_ts: int, settings: Settings | None = None) -> int:
        return judge_at(self.where, self.target, settings or Settings(), now_ts)

    def state(self) -> State:
        with self.target.writing() as connection:
            return stored(connection)[0].state


def test_a_release_is_realized_with_exact_dollars_a_week_after_it(tmp_path: Path) -> None:
    kept = Released(recorded(tmp_path))
    assert kept.judge(NOW - HOUR) == 0 and kept.state() is State.APPLIED
    assert kept.judge(NOW) == 1 and kept.state() is State.REALIZED
    assert kept.judge(NOW + HOUR) == 0
    with kept.target.writing() as connection:
        (receipt,) = read_receipts(connection)
    made = receipt.read()
    assert made.release is not None
    assert (made.release.promised_devices, made.release.released_devices) == (1, 1)
    assert made.release.served is not None and made.release.served.likely == pytest.approx(1, abs=0.02)
    assert made.release.measured_per_month is not None
    assert made.release.measured_per_month.likely == 3_000_000_000 * 730
    assert receipt.check().reproduced
    text = to_markdown(made)
    assert text.startswith(
        "# REALIZED: 1 replica fewer\n\nThe devices are released, and the service goes on as before."
    )
    assert "- measured, per month: $2,190, exact by the released devices" in text.splitlines()


def test_a_host_that_still_reports_is_not_released(tmp_path: Path) -> None:
    kept = Released(recorded(tmp_path, silent_ts=NOW - 60))
    assert kept.judge(NOW) == 1 and kept.state() is State.NO_EFFECT


def test_a_bill_that_falls_with_demand_is_no_saving(tmp_path: Path) -> None:
    kept = Released(recorded(tmp_path, demand=0.5))
    assert kept.judge(NOW) == 1 and kept.state() is State.INCONCLUSIVE
