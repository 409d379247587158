"""Databases with minutes of replicas, for the tests of trials."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from sqlalchemy import insert

from pertoken.proof.recommendation import Edit, Recommendation
from pertoken.proof.stored import keep
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, EpochRow, Event
from pertoken.store.schema.telemetry import MINUTE
from pertoken.store.write.writer import Writer
from tests.proof.rows import FP8, row
from tests.values import new_store, tick
from tests.window.epochs.test_history import hour
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import noise

BEGUN = 1_790_000_040 // 60 * 60
"""When a trial begins."""
RESTARTED = BEGUN + 300
HALF_HOUR = 1800
END = RESTARTED + HALF_HOUR + 125 * 60
BF16, FP8_KNOBS = '{"weight_dtype": "bf16"}', '{"weight_dtype": "fp8"}'
OTHER_ENGINE = replace(ENGINE, engine_id=17, base_url="http://127.0.0.1:8001", port=8001)
OTHER = replace(DEPLOYMENT, deployment_id=18, engine_id=17)
OTHER_GPU = replace(GPU, device_id=6, uuid="GPU-6", slot=1)
CANARY = EpochRow(9, 8, BEGUN - 90_000, RESTARTED, "0.32.0", BF16, (5,))
CHANGED = EpochRow(10, 8, RESTARTED, None, "0.32.0", FP8_KNOBS, (5,))
CONTROL = EpochRow(19, 18, BEGUN - 90_000, None, "0.32.0", BF16, (6,))
EDITS = (Edit("deployment", 8, "weight_dtype", "bf16", "fp8"),)
VARIANT = replace(FP8, edits=EDITS, throughput_ratio=(1.05, 1.1, 1.2))


def proposed(where: StoreLocation) -> Recommendation:
    """Store an open recommendation of the change and return it."""
    recommendations = [row(variants=(VARIANT,), target_key="8", deployment_id=8, created_ts=BEGUN - 60)]
    return keep(AdviceRepository(where), recommendations, {"quantize"}, BEGUN - 60, "advisor")[0]


def recorded(
    place: Path | StoreLocation,
    *epochs: EpochRow,
    end: int = END,
    effect: float = -0.2,
    restarts: tuple[tuple[int, int], ...] = ((17, RESTARTED + 30),),
    start: int = BEGUN,
) -> StoreLocation:
    """Record epochs minute by minute; those with fp8 weights cost `effect` more. `restarts`: engine and time."""
    where = place if isinstance(place, StoreLocation) else locate(str(place))
    known = {"engines": (ENGINE, OTHER_ENGINE), "deployments": (DEPLOYMENT, OTHER), "devices": (GPU, OTHER_GPU)}
    last = [epoch for epoch in epochs if epoch.end_ts is None]
    with Writer(where) as writer:
        for engine_id, ts in restarts:
            event = Event("engine_restarted", "vllm at http://127.0.0.1:8001: restarted", engine_id)
            writer.commit(tick(ts, epochs=epochs, events=(event,), **known))
        samples = [
            DeploymentSample(
                epoch_row.epoch_id, end, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60
            )
            for epoch_row in last
        ]
        writer.commit(tick(end, *samples, epochs=epochs, **known))
    rows = []
    for n, epoch in enumerate(epochs):
        minutes = range(max(epoch.start_ts, start), min(epoch.end_ts or end, end), MINUTE)
        residuals = np.exp(noise(np.random.default_rng(n), len(minutes), 0.02))
        cost = 1 + effect if epoch.knobs == FP8_KNOBS else 1.0
        if epoch.deployment_id == OTHER.deployment_id:
            cost *= 1.05  # replicas are never quite the same
        for ts, residual in zip(minutes, residuals, strict=True):
            values = {"duration_ms": 60_000, "observed_ms": 60_000}
            rows.append(hour(epoch, ts, cost * residual, **values))
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[MINUTE]), rows)
    engine.dispose()
    return where


def before(place: Path | StoreLocation, *epochs: EpochRow) -> StoreLocation:
    """Record a day of replicas that nobody changed yet, ninety minutes of it minute by minute."""
    where = new_store(place)
    writing(where, "advice").dispose()
    now = [replace(epoch, end_ts=None) for epoch in epochs]
    return recorded(where, *now, end=BEGUN, restarts=(), start=BEGUN - 90 * 60)
