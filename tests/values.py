"""Small values tests build on: one host with a CPU device, rows of a tick, and folders with tables laid."""

from pathlib import Path

from pertoken.migrations import upgrade
from pertoken.store import repository
from pertoken.store.connect.location import GROUPS, StoreLocation, locate
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.ids import stable_id
from pertoken.store.schema.rows import HostRow, HostSample, Tick

HOST = stable_id("host", "machine-1")


def laid(where: Path | StoreLocation) -> StoreLocation:
    """A folder or a server with both groups of tables."""
    if isinstance(where, Path):
        where = locate(str(where))
    for group in GROUPS:
        upgrade(where, group)
    return where


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
    """A tick with a host row and these samples."""
    return Tick(ts=ts, host=host_row(), samples=(host_sample(ts), *samples), **more)  # type: ignore[arg-type]


def host_sample(ts: int) -> HostSample:
    return HostSample(HOST, ts, 10_000, 10_000, cpu_util_1e4=2500, load_1e2=150, memory_used_bytes=2**30)


def written(folder: Path, text: str) -> Path:
    """Write a settings file."""
    file = folder / "pertoken.toml"
    file.write_text(text)
    return file
