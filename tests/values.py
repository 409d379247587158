"""Small values tests build on: one host with a CPU device, rows of a tick, and folders with tables laid."""

import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pertoken.migrations import upgrade
from pertoken.store import repository
from pertoken.store.connect.location import GROUPS, StoreLocation, locate
from pertoken.store.integrity.checksums import high_water_mark_file
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    EngineRow,
    EpochRow,
    HostRow,
    HostSample,
    Tick,
)
from pertoken.store.schema.shared import stable_id
from pertoken.store.write.writer import Writer

HOST = stable_id("host", "machine-1")


def new_store(where: Path | StoreLocation) -> StoreLocation:
    """Return a folder or a server with both groups of tables."""
    if isinstance(where, Path):
        where = locate(str(where))
    if is_new_folder(where):
        put_files(where, _empty_files())
        return where
    for group in GROUPS:
        upgrade(where, group)
    return where


def is_new_folder(where: StoreLocation) -> bool:
    """Return whether it is to be a folder of SQLite files, and has none yet."""
    return where.folder is not None and not any(where.exists(group) for group in GROUPS)


def files_of(where: StoreLocation) -> Mapping[str, bytes]:
    """Return the files of a folder that nobody has open, by name."""
    files = [where.file(group) for group in GROUPS]
    files.append(high_water_mark_file(where.file("telemetry")))
    return {file.name: file.read_bytes() for file in files if file.exists()}


def put_files(where: StoreLocation, files: Mapping[str, bytes]) -> None:
    """Copy files of another folder into a new one."""
    folder = where.file("telemetry").parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o750)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@cache
def _empty_files() -> Mapping[str, bytes]:
    """Return both files as `upgrade` makes them: to migrate takes 150 ms of CPU, and hundreds of tests start there."""
    with TemporaryDirectory() as folder:
        where = locate(folder)
        for group in GROUPS:
            upgrade(where, group)
        return files_of(where)


def set_price(where: StoreLocation, selector: str, nano_usd_per_hour: int | None, from_ts: int = 0) -> None:
    """Set a price, or take one back."""
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector=selector,
            nano_usd_per_device_hour=nano_usd_per_hour,
            from_ts=from_ts,
            set_ts=1,
            set_by="someone",
            note=None,
        )


def host_row(interval_s: int = 10) -> HostRow:
    return HostRow(HOST, "gpu-1", "machine-1", "boot-1", 1_000, "Linux", "CPU", 8, 2**36, "0.1.0", interval_s)


def tick(ts: int, *samples: object, **more: object) -> Tick:
    """Return a tick with a host row and these samples."""
    return Tick(ts=ts, host=host_row(), samples=(host_sample(ts), *samples), **more)  # type: ignore[arg-type]


def host_sample(ts: int) -> HostSample:
    return HostSample(HOST, ts, 10_000, 10_000, cpu_util_1e4=2500, load_1e2=150, memory_used_bytes=2**30)


def served_at(
    folder: Path,
    url: str,
    *,
    epoch_id: int = 9,
    began_s_ago: int = 600,
    device: DeviceRow | None = None,
    model_facts: str | None = None,
    knobs: str = "{}",
) -> StoreLocation:
    """Return a database in which a deployment (id 8) of a host of this machine's name served at an address until
    now."""
    where, now = new_store(folder), int(time.time())
    engine = EngineRow(7, HOST, "llama.cpp", url, 8000, 1, 1, None, "process")
    deployment = DeploymentRow(8, 7, HOST, "tiny-llama", None, model_facts)
    devices = () if device is None else (device,)
    epoch = EpochRow(epoch_id, 8, now - began_s_ago, None, "1", knobs, tuple(device.device_id for device in devices))
    known = {"engines": (engine,), "deployments": (deployment,), "epochs": (epoch,), "devices": devices}
    sample = DeploymentSample(epoch_id, now, 60_000, 60_000, True, 0)
    with Writer(where) as writer:
        writer.commit(replace(tick(now, sample, **known), host=replace(host_row(), name=socket.gethostname())))
        writer.roll_up()
    return where


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    file = folder / "pertoken.toml"
    file.write_text(text)
    return file
