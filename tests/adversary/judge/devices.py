"""Energy, device time and who held a device: equal to the truth, or less and marked; never more."""

import sqlite3
from collections.abc import Iterator

from tests.adversary.judge.finding import Finding
from tests.adversary.played import Played
from tests.standin_nvml import Gpu

ROOM_S = 4.0
"""Device time that may be missing at the two ends of a run, and at each start of the agent."""
EXTRA_S = 0.5
"""Device time that may be too much: rows end at milliseconds."""
UNHELD_S = 2.0
"""For how long a GPU may be without the engine that holds it, at each start of the agent."""


def findings(played: Played, connection: sqlite3.Connection) -> Iterator[Finding]:
    """Yield all that is wrong with the rows of devices."""
    touched = played.world.touched
    real_s = played.ended_s - played.starts_s[0]
    seen_s = real_s - sum(until_s - max(from_s, played.starts_s[0]) for from_s, until_s in played.down[:1])
    gpus = {gpu.uuid: gpu for gpu in played.world.gpus}
    for device in connection.execute("SELECT device_id, uuid, kind FROM device WHERE parent_id IS NULL").fetchall():
        device_id, uuid = device["device_id"], device["uuid"]
        ((duration_ms, observed_ms, rows),) = connection.execute(
            "SELECT SUM(duration_ms), SUM(observed_ms), COUNT(*) FROM device_sample WHERE device_id = ?", (device_id,)
        ).fetchall()
        if not rows:
            continue
        if duration_ms / 1000 > real_s + EXTRA_S:
            yield Finding("time", f"{uuid}: {duration_ms / 1000:.1f} s are stored of {real_s:.1f} s that passed")
        if observed_ms > duration_ms:
            yield Finding("time", f"{uuid}: observed for {observed_ms} ms of {duration_ms}")
        if uuid not in touched and duration_ms / 1000 < seen_s - ROOM_S:
            yield Finding("time", f"{uuid}: {duration_ms / 1000:.1f} s are stored of {seen_s:.1f} s that passed")
        if uuid in gpus:
            yield from _energy(played, connection, device_id, gpus[uuid], real_s, seen_s)
            yield from _held(played, connection, device_id, gpus[uuid], duration_ms / 1000)


def _energy(
    played: Played, connection: sqlite3.Connection, device_id: int, gpu: Gpu, real_s: float, seen_s: float
) -> Iterator[Finding]:
    """Yield a GPU draws constant power: energy is power times time."""
    # Two cards that show one UUID are one device to anybody: it may have the energy of both.
    kinds = {type(act.what).__name__ for act in played.world.acts_on(gpu.uuid)}
    doubled = "SameUuid" in kinds
    # While another GPU is in its place this one is not there, and nobody stores a row of it.
    replaced = "OtherUuid" in kinds
    power_w = gpu.power_mw.mean / 1000
    max_w = power_w + (max(gpu.power_mw.mean for gpu in played.world.gpus) / 1000 if doubled else 0.0)
    for column in ("energy_counter_mj", "energy_integral_mj"):
        ((stored_mj, unknown, min_mj),) = connection.execute(
            f"SELECT COALESCE(SUM({column}), 0), SUM({column} IS NULL), MIN({column}) FROM device_sample "
            "WHERE device_id = ?",
            (device_id,),
        ).fetchall()
        stored_j, min_j, max_j = stored_mj / 1000, power_w * (seen_s - ROOM_S), max_w * (real_s + EXTRA_S)
        if stored_j > max_j or (min_mj or 0) < 0:
            yield Finding("energy", f"{gpu.uuid}: {stored_j:.0f} J of {column}, at most {max_j:.0f} J were used")
        # The first row of each process has no reading before it: that much is always unknown.
        if stored_j < min_j and unknown <= 0 and not replaced:
            yield Finding("energy", f"{gpu.uuid}: {stored_j:.0f} J of {column} of {min_j:.0f} J, and no row is NULL")


def _held(
    played: Played, connection: sqlite3.Connection, device_id: int, gpu: Gpu, duration_s: float
) -> Iterator[Finding]:
    """Yield GPUs that an engine uses all the time and that are stored as free, without a reason why it is unknown."""
    owner = next((engine for engine in played.world.engines if engine.gpu == gpu.uuid), None)
    moved = any(type(act.what).__name__ in _OTHERS for act in played.world.acts)
    if owner is None or owner.key in played.world.touched or moved or played.world.discover:
        return
    ((shared_s,),) = connection.execute(
        "SELECT COALESCE(SUM(1e-9 * share_1e6 * duration_ms), 0) FROM device_share WHERE device_id = ?", (device_id,)
    ).fetchall()
    ((whole_s,),) = connection.execute(
        "SELECT COALESCE(SUM(s.duration_ms), 0) / 1e3 FROM deployment_sample s JOIN epoch_device USING (epoch_id) "
        "WHERE device_id = ? AND s.whole_provenance IS NOT NULL",
        (device_id,),
    ).fetchall()
    free_s = duration_s - shared_s - whole_s
    excused_s = UNHELD_S * len(played.starts_s) + sum(until_s - from_s for from_s, until_s in played.unwritable)
    ((marks,),) = connection.execute(
        "SELECT COUNT(*) FROM capability WHERE owner_id = ? AND (metric LIKE '%process%' OR metric LIKE '%mig%')",
        (device_id,),
    ).fetchall()
    if free_s > excused_s and not marks:
        yield Finding("held", f"{gpu.uuid}: nobody held it for {free_s:.1f} s of {duration_s:.1f} s; an engine did")
    if free_s < -EXTRA_S:
        yield Finding("held", f"{gpu.uuid}: it was held for {-free_s:.1f} s more than it was there")


_OTHERS = ("Lost", "SameUuid", "OtherUuid", "OtherSlot", "HangingCall")
"""Disturbances after which a GPU is not the same, or not there, for a while."""
