"""Databases with weeks of hours before and after a change, for the tests of this package."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert

from pertoken.catalog.market import load_market
from pertoken.config import Settings
from pertoken.proof.recommendation import Edit, Recommendation, Variant
from pertoken.proof.stored import keep, stored
from pertoken.proof.verdicts import Verdict, read_verdicts
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import writing
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import DeploymentSample, EpochRow
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.write.writer import Writer
from tests.proof.looks import detect_at
from tests.proof.rows import FP8, row
from tests.values import new_store, tick
from tests.window.epochs.test_history import hour
from tests.window.test_evidence import DEPLOYMENT, ENGINE, GPU
from tests.window.test_like_for_like import MONDAY, WEEK_H, noise

WEEK = WEEK_H * HOUR
DAY = 24 * HOUR
EDITS = (Edit("deployment", 8, "weight_dtype", "bf16", "fp8"),)
VARIANT = replace(FP8, edits=EDITS, throughput_ratio=(1.05, 1.1, 1.2))
"""It promises that a token takes 4.8 to 16.7 % less device time."""


def changed_after(weeks: int) -> int:
    """Return the time of the change, after a number of weeks."""
    return MONDAY + weeks * WEEK


def written(
    place: Path | StoreLocation,
    effect: float,
    *,
    weeks: int = 5,
    later: float | None = None,
    weeks_after: int = 5,
    outputs: float = 1.0,
) -> StoreLocation:
    """Weeks of an engine, and after a change weeks with an effect; after the first of those another one.

    `outputs`: factor on the generated tokens after the change.
    """
    where, changed = new_store(place), changed_after(weeks)
    end = changed + weeks_after * WEEK
    before = EpochRow(8, 8, MONDAY, changed, "0.32.0", '{"weight_dtype": "bf16"}', (5,))
    after = EpochRow(9, 8, changed, None, "0.32.0", '{"weight_dtype": "fp8"}', (5,))
    with Writer(where) as writer:
        sample = DeploymentSample(9, end - 60, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
        known = {"engines": (ENGINE,), "deployments": (DEPLOYMENT,), "devices": (GPU,)}
        writer.commit(tick(end - 60, sample, epochs=(before, after), **known))
        writer.roll_up()
    residuals = np.exp(noise(np.random.default_rng(3), (end - MONDAY) // HOUR, 0.03))
    rows = []
    for ts, residual in zip(range(MONDAY, end - HOUR, HOUR), residuals, strict=False):
        now = effect if later is None or ts < changed + WEEK + DAY else later
        row = hour(before, ts, residual) if ts < changed else hour(after, ts, residual * (1 + now))
        if ts >= changed:
            row["generated_tokens"] = round(int(str(row["generated_tokens"])) * outputs)
        rows.append(row)
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[HOUR]), rows)
        connection.execute(insert(t.event), [restart(ts) for ts in range(MONDAY, changed + 1, WEEK)])
    engine.dispose()
    writing(where, "advice").dispose()
    return where


def split(place: Path, effect: float, *, decoder_before: bool) -> StoreLocation:
    """Five weeks of a server, and five of a prefill and a decode server that share what it did, at another cost.

    `decoder_before`: the second server did as the first one until then, and changes some minutes after it.
    """
    where, changed = new_store(place), changed_after(5)
    end = changed + 5 * WEEK
    before, prefill = (
        EpochRow(8, 8, MONDAY, changed, "0.32.0", "{}", (5,)),
        EpochRow(9, 8, changed, None, "0.32.0", '{"role": "prefill"}', (5,)),
    )
    decode_ts = changed + 600
    both = EpochRow(18, 18, MONDAY, decode_ts, "0.32.0", "{}", (6,))
    decode = EpochRow(19, 18, decode_ts, None, "0.32.0", '{"role": "decode"}', (6,))
    epochs = (before, prefill, *((both,) if decoder_before else ()), decode)
    second = replace(DEPLOYMENT, deployment_id=18, engine_id=17)
    with Writer(where) as writer:
        samples = [
            DeploymentSample(epoch, end - 60, 60_000, 60_000, True, 30_000, busy_provenance=0, generated_tokens=60)
            for epoch in (9, 19)
        ]
        known = {
            "engines": (ENGINE, replace(ENGINE, engine_id=17, base_url="http://127.0.0.1:8001", port=8001)),
            "deployments": (DEPLOYMENT, second),
            "devices": (GPU, replace(GPU, device_id=6, uuid="GPU-6", slot=1)),
        }
        writer.commit(tick(end - 60, *samples, epochs=epochs, **known))
        writer.roll_up()
    residuals = np.exp(noise(np.random.default_rng(3), (end - MONDAY) // HOUR, 0.03))
    servers = 2 if decoder_before else 1
    rows = []
    for ts, residual in zip(range(MONDAY, end - HOUR, HOUR), residuals, strict=False):
        if ts < changed:
            rows += [hour(epoch, ts, residual) for epoch in (before, both)[:servers]]
            continue
        work = hour(before, ts, residual * (1 + effect))
        prompt, generated, requests, busy_ms = (
            servers * int(str(work[name]))
            for name in ("prompt_tokens", "generated_tokens", "requests_finished", "busy_ms")
        )
        cached = servers * int(str(work["cached_tokens"]))
        none = {"prompt_tokens": 0, "cached_tokens": 0, "generated_tokens": 0, "requests_finished": 0}
        first = {"epoch_id": 9, "prompt_tokens": prompt, "cached_tokens": cached, "busy_ms": busy_ms * 4 // 10}
        rows.append({**work, **none, **first})
        if ts >= decode_ts:
            rest = {"epoch_id": 19, "generated_tokens": generated, "requests_finished": requests}
            rows.append({**work, **none, **rest, "busy_ms": busy_ms * 6 // 10})
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        connection.execute(insert(t.deployment_rollup[HOUR]), rows)
        events = [restart(ts, key) for ts in range(MONDAY, end, WEEK) for key in (7, 17)]
        connection.execute(insert(t.event), events)
    engine.dispose()
    writing(where, "advice").dispose()
    return where


def restart(ts: int, engine_id: int = ENGINE.engine_id) -> dict[str, Any]:
    """Return the event of a plain restart of the engine."""
    text = "vllm at http://127.0.0.1:8000: its process was restarted"
    known = {"event_id": ts + engine_id, "host_id": DEPLOYMENT.host_id, "subject_id": engine_id, "message": text}
    return {**known, "ts": ts, "last_ts": ts, "count": 1, "kind": "engine_restarted"}


class Changed:
    """A database in which a recommendation was applied, as an advisor run finds it."""

    def __init__(self, where: StoreLocation, changed: int, *, variant: Variant | None = VARIANT) -> None:
        self.where, self.changed = where, changed
        self.target = AdviceRepository(where)
        recommendations = [] if variant is None else [row(variants=(variant,), created_ts=changed - HOUR)]
        keep(self.target, recommendations, {"quantize"}, changed - HOUR, "advisor")
        detect_at(where, self.target, load_market(), Settings(), changed + HOUR)

    def rows(self) -> tuple[Recommendation, ...]:
        with self.target.writing() as connection:
            return stored(connection)

    def verdicts(self) -> tuple[Verdict, ...]:
        with self.target.writing() as connection:
            return read_verdicts(connection)
