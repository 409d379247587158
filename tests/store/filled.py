"""A small database in which every table of telemetry holds rows, and reading all of it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import (
    AgentSample,
    Capability,
    CounterState,
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Event,
    HistogramSample,
    Tick,
)
from pertoken.store.write.writer import Writer
from tests.values import HOST, new_store, tick

START = 1_790_000_000 // 3600 * 3600
BOUNDS = (0.1, 1.0)


def filled_tick(n: int, devices: int = 2, interval_s: int = 10) -> Tick:
    """Return the n-th tick of a host whose devices each serve one deployment."""
    ts = START + interval_s * n
    samples: list[object] = [AgentSample(HOST, ts, 10_000, 10_000, 12, 60_000_000, 5, 0, 60)]
    counters = []
    for device in range(1, devices + 1):
        epoch = 100 + device
        samples += [
            DeviceSample(device, ts, 10_000, 10_000, 5000 + n % 7, 77 * 10**9, 300_000 + n * 7919 % 50_000, None),
            DeviceShare(device, epoch, ts, 10_000, 900_000, 8_000, Provenance.REPORTED),
            DeploymentSample(epoch, ts, 10_000, 10_000, True, 8_000, 400 + n % 13, 0, 400, 100 + n % 17),
            HistogramSample(epoch, "ttft_s", ts, 99, n % 3, 1 + n % 5),
            EngineCounterSample(epoch, "spec_drafts", ts, 7 + n),
            *([EngineCounterSample(epoch, "gflop_per_gpu", ts, 2**60)] if n == 1 else []),  # beyond what is added up
        ]
        counters += [
            CounterState(device, "energy", n * 3_000_000, 1_000, ts),
            CounterState(200 + device, "generated_tokens", n * 100, 1_000, ts),
        ]
    return tick(
        ts,
        *samples,
        devices=tuple(
            DeviceRow(n_device, HOST, "gpu", f"GPU-{n_device}", "nvidia", "H100 – 80 GB", n_device)
            for n_device in range(1, devices + 1)
        ),
        engines=tuple(
            EngineRow(
                200 + n_device,
                HOST,
                "vllm",
                f"http://127.0.0.1:80{n_device:02}",
                8000 + n_device,
                1,
                1,
                None,
                "process",
            )
            for n_device in range(1, devices + 1)
        ),
        deployments=tuple(
            DeploymentRow(300 + n_device, 200 + n_device, HOST, "modèle", None) for n_device in range(1, devices + 1)
        ),
        epochs=tuple(
            EpochRow(100 + n_device, 300 + n_device, START, None, None, '{"tp": 1}', (n_device,))
            for n_device in range(1, devices + 1)
        )
        if n == 1
        else (),
        bucket_sets={99: BOUNDS},
        counters=tuple(counters),
        capabilities=(Capability(1, "sm_active", "unsupported", "not on this device"),) if n == 1 else (),
        events=(Event("gap", f"no reading at {n}"),) if n % 50 == 1 else (),
    )


def fill(writer: Writer, ticks: range, roll_up_every: int = 6, devices: int = 2) -> None:
    """Commit `n` ticks, rolled up now and then; the last ones stay dirty."""
    for n in ticks:
        writer.commit(filled_tick(n, devices))
        if n % roll_up_every == 0 and n < ticks[-1]:
            writer.roll_up()


def filled(folder: Path, ticks: int = 400) -> StoreLocation:
    """Return a folder closed in good order, with `n` ticks, all of them still to be shipped."""
    where = new_store(folder)
    with Writer(where) as writer:
        writer.ship(True, raw=True)
        fill(writer, range(1, ticks + 1))
    return where


def everything(database: Path) -> dict[str, Any]:
    """Return all rows of each table of telemetry, by name; text in place of rows that cannot be read."""
    tables: dict[str, Any] = {}
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        for name, columns in _TABLES.items():
            try:
                tables[name] = connection.execute(f"SELECT {columns} FROM {name}").fetchall()
            except (sqlite3.Error, OverflowError) as error:
                tables[name] = f"{type(error).__name__}: {error}"
    return tables


_TABLES = {
    "alembic_version": "version_num",
    **{table.name: ", ".join(column.name for column in table.columns) for table in t.metadata.sorted_tables},
}
