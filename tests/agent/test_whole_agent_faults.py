"""Faults of a driver under a whole `pertoken agent`, through the stand-in as a compiled shared library."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from pertoken.agent.device_rows import device_id_of
from pertoken.errors import StoreError
from pertoken.store import telemetry as t
from pertoken.store.open import open_store
from pertoken.store.place import place
from tests.standin_nvml import Machine, eight, tell
from tests.standin_nvml.shared import COMPILER, compiled

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")
DEADLINE_S = 40.0
GPUS = eight()
IDS = [device_id_of(gpu.uuid) for gpu in GPUS]


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}"
        time.sleep(0.05)


@contextmanager
def agent(folder: Path, machine: Machine = Machine(gpus=GPUS)) -> Iterator[subprocess.Popen[bytes]]:  # noqa: B008
    """`pertoken agent` on this machine, in `folder / "db"`; past its first tick; ended by SIGTERM."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "pertoken", "agent", "--db", str(folder / "db"), "--interval", "1s"],
            stderr=log,
            env=compiled(machine, folder) | {"PERTOKEN_AGENT_DISCOVER": "false"},
        )
        try:
            until(lambda: process.poll() is not None or latest(folder), "the first tick")
            assert process.poll() is None, (folder / "log").read_text()
            yield process
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def ask(folder: Path, query: Any) -> list[Any]:
    try:
        with open_store(place(str(folder / "db"))).read() as connection:
            return list(connection.execute(query).all())
    except StoreError:
        return []


def latest(folder: Path) -> dict[int, Any]:
    """The newest row of each GPU, if the newest tick has one of every GPU that has any."""
    newest = select(func.max(t.device_sample.c.ts)).scalar_subquery()
    rows = ask(folder, select(t.device_sample).where(t.device_sample.c.ts == newest))
    return {row.device_id: row for row in rows if row.device_id in IDS}


def kinds(folder: Path) -> set[str]:
    return {row.kind for row in ask(folder, select(t.event.c.kind))}


def whole(folder: Path, *without: int) -> bool:
    """Whether the newest tick has everything of every GPU but those of these slots, and nothing of those."""
    rows = latest(folder)
    good = [key for slot, key in enumerate(IDS) if slot not in without]
    bad = [rows[IDS[slot]] for slot in without if IDS[slot] in rows]
    values = ("util_1e4", "power_mw", "energy_counter_mj", "dram_active_1e4", "sm_active_1e4")
    return all(key in rows and None not in [getattr(rows[key], name) for name in values] for key in good) and all(
        getattr(row, name) is None for row in bad for name in values
    )


def reason(folder: Path, slot: int) -> str:
    rows = ask(folder, select(t.capability).where(t.capability.c.owner_id == IDS[slot], t.capability.c.status != "ok"))
    return next((row.reason for row in rows if row.metric == "device"), "")


def changed(slot: int, **fields: Any) -> Machine:
    return Machine(gpus=(*GPUS[:slot], replace(GPUS[slot], **fields), *GPUS[slot + 1 :]))


def test_a_gpu_lost_and_found_a_hang_and_a_pull_cost_only_that_gpu(tmp_path: Path) -> None:
    fifo, control = tmp_path / "hang", tmp_path / "machine"
    os.mkfifo(fifo)
    with agent(tmp_path):
        until(lambda: whole(tmp_path), "eight whole GPUs")
        tell(control, changed(3, lost_after=0))
        until(lambda: whole(tmp_path, 3) and "device_lost" in kinds(tmp_path), "the lost GPU to be told")
        assert "fell off the bus" in reason(tmp_path, 3)
        tell(control, Machine(gpus=GPUS))
        until(lambda: whole(tmp_path) and "device_back" in kinds(tmp_path), "it to be back")
        tell(control, changed(5, hang=("nvmlDeviceGetUtilizationRates", str(fifo))))
        until(lambda: whole(tmp_path, 5) and "hangs" in reason(tmp_path, 5), "the hang to be told")
        tell(control, Machine(gpus=GPUS))
        fifo.open("wb").close()
        until(lambda: whole(tmp_path), "the call to have returned")


def test_an_xid_a_reset_counter_and_memory_errors_are_events(tmp_path: Path) -> None:
    with agent(tmp_path):
        until(lambda: whole(tmp_path), "eight whole GPUs")
        now_s = time.time()
        told = changed(2, xids=((now_s, 79),), energy_reset_at_s=now_s, ecc_errors=(0, 2))
        tell(tmp_path / "machine", told)
        until(lambda: {"xid", "energy_counter", "ecc"} <= kinds(tmp_path), "the three events")
        until(lambda: whole(tmp_path), "the counter to go on")
    energy = ask(tmp_path, select(t.device_sample.c.energy_counter_mj, t.device_sample.c.energy_integral_mj))
    assert all(counter is None or counter >= 0 for counter, _ in energy)


def test_an_old_driver_has_not_even_the_symbols(tmp_path: Path) -> None:
    without = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetFieldValues",
        "nvmlGpmSampleAlloc",
    )
    with agent(tmp_path, Machine(gpus=GPUS, without=without)):
        until(lambda: len(latest(tmp_path)) == 8, "eight GPUs")
    row = latest(tmp_path)[IDS[0]]
    assert row.power_mw and row.energy_counter_mj and row.memory_used_bytes and row.temperature_c
    assert row.dram_active_1e4 is None
    gaps = ask(tmp_path, select(t.capability).where(t.capability.c.owner_id == IDS[0]))
    assert "too old" in {gap.metric: gap.reason for gap in gaps}["dram_active_1e4"]
