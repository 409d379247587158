"""Publishing: the closed hours of a database, day by day, into a lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from hashlib import sha256
from io import BytesIO
from typing import Any

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import placements
from pertoken.lake import forgotten
from pertoken.lake.files import Entry, LakeFiles
from pertoken.lake.manifest import DayFile, Manifest, ManifestFault, day_of, digest, folder_of, manifest_names, parse
from pertoken.lake.rows import DayRows, advice_rows, copied_rows, count_of, day_end, savings_rows
from pertoken.lake.tables import ADVICE, COPIED, ROLLED_UP, SAVINGS, SNAPSHOTS
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import DAY, Window, first_recorded

SETTLE_S = 300
"""How long after its end an hour counts as closed: roll-ups of its last minutes are made, and hosts have shipped."""
RECENT_DAYS = 7
"""Days before today that are read again, for rows that arrived late."""
ROW_GROUP = 1_000_000


class Outcome(StrEnum):
    """What happened to a day."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    """The database holds fewer hours than were published: the published day stays."""


@dataclass(frozen=True, slots=True)
class PublishedDay:
    """One day after publishing."""

    day: date
    outcome: Outcome
    rows: int
    n_bytes: int
    """Bytes of files that were written."""


@dataclass(frozen=True, slots=True)
class Source:
    """The database that is published, as one cell."""

    store: Store
    market: Market
    settings: Settings
    cell: str


def publish(
    source: Source,
    lake: LakeFiles,
    now_ts: int,
    now_us: Callable[[], int],
    since: date | None = None,
    *,
    fewer: bool = False,
) -> Iterator[PublishedDay]:
    """Publish the days since `since`, by default the last `RECENT_DAYS` and every older one whose prices changed or
    that is missing; yield each. Publishing again changes nothing.

    A day of which the database holds fewer hours than are published is kept, unless `fewer` allows it. `now_us` gives
    the present time in microseconds. Raises StoreError; days that were yielded are there.
    """
    first_ts = first_recorded(source.store)
    through_ts = (now_ts - SETTLE_S) // HOUR * HOUR
    if first_ts is None or through_ts <= first_ts:
        return
    first_day = first_ts // DAY * DAY
    recent = through_ts // DAY * DAY - RECENT_DAYS * DAY
    for start in range(first_day, through_ts, DAY):
        day = day_of(start)
        if since is not None and day < since:
            continue
        entries = lake.files(folder_of(source.cell, day))
        current = current_manifest(lake, source.cell, day, entries)
        is_settled = since is None and start < recent
        if is_settled and current is not None and current.prices == _prices_of_day(source, start):
            yield PublishedDay(day, Outcome.UNCHANGED, sum(file.rows for file in current.files), 0)
            continue
        published = _publish_day(source, lake, start, through_ts, now_us(), entries, current, fewer=fewer)
        if published is not None:
            yield published


def current_manifest(lake: LakeFiles, cell: str, day: date, entries: Sequence[Entry]) -> Manifest | None:
    """Return the newest manifest of a day that can be read; None where the day is new."""
    for name in manifest_names([entry.name for entry in entries]):
        try:
            return parse(lake.read(f"{folder_of(cell, day)}/{name}"), name, cell, day)
        except ManifestFault:
            continue
    return None


def _prices_of_day(source: Source, start: int) -> str:
    with source.store.read() as connection:
        bill = Bill(source.store, connection, Window(connection, start, start + DAY))
        return _hash_of(DayRows(bill, source.market, source.settings).prices())


def _hash_of(prices: Iterator[tuple[int, list[int | None]]]) -> str:
    return sha256(repr(list(prices)).encode()).hexdigest()[:32]


def _publish_day(
    source: Source,
    lake: LakeFiles,
    start: int,
    through_ts: int,
    read_us: int,
    entries: Sequence[Entry],
    current: Manifest | None,
    *,
    fewer: bool,
) -> PublishedDay | None:
    """Publish one day; return None where nothing is known of it."""
    end, day = day_end(start, through_ts), day_of(start)
    is_newest = end == through_ts
    tables, prices = _day_tables(source, start, end, with_advice=is_newest)
    if current is None and not any(table.num_rows for table in tables.values()):
        return None
    rolled_up = count_of(tables, ROLLED_UP)
    kept = () if current is None or is_newest else tuple(file for file in current.files if file.table in SNAPSHOTS)
    names = forgotten.read(lake, source.cell)
    tables = (forgotten.hide(tables, names) if names else None) or tables
    made = Manifest(source.cell, day, end, read_us, prices, rolled_up, kept)
    if current is not None and rolled_up < current.rolled_up and not fewer:
        return PublishedDay(day, Outcome.KEPT, sum(file.rows for file in current.files), 0)
    made, n_bytes = write_day(lake, made, tables, entries, current)
    outcome = Outcome.NEW if current is None else Outcome.UNCHANGED if made.same_day(current) else Outcome.CHANGED
    return PublishedDay(day, outcome, sum(file.rows for file in made.files), n_bytes)


def write_day(
    lake: LakeFiles,
    manifest: Manifest,
    tables: Mapping[str, Any],
    entries: Sequence[Entry],
    current: Manifest | None = None,
) -> tuple[Manifest, int]:
    """Write the files of a day, then its manifest, which becomes the current one; return it and the bytes of files.

    Files that the manifest names already stay. A day that states the same as `current` is not written. `entries` are
    the files that are there. Raises StoreError: the day is then what it was.
    """
    contents = {name: _parquet(table) for name, table in tables.items() if table.num_rows}
    files = [_day_file(name, tables[name].num_rows, content) for name, content in contents.items()]
    kept = [file for file in manifest.files if file.table not in tables and file.table in SNAPSHOTS]
    made = replace(manifest, files=tuple(sorted([*files, *kept], key=lambda file: file.table)))
    if made.same_day(current):
        return made, 0
    present = {entry.name: entry.n_bytes for entry in entries}
    n_bytes = 0
    for file in files:
        if present.get(file.name) != file.n_bytes:
            lake.write(f"{made.folder}/{file.name}", contents[file.table])
            n_bytes += file.n_bytes
    lake.write(f"{made.folder}/{made.name()}", made.content())
    return made, n_bytes


def _day_tables(source: Source, start: int, end: int, *, with_advice: bool) -> tuple[Mapping[str, Any], str]:
    """Return the tables of a day, and the hash of its prices, all read in one transaction of each group."""
    tables: dict[str, Any] = {}
    with source.store.read() as connection:
        bill = Bill(source.store, connection, Window(connection, start, end))
        rows = DayRows(bill, source.market, source.settings)
        tables |= rows.tables()
        prices = _hash_of(rows.prices())
        models = {row.deployment_id: row.served_model for row in bill.inventory.served}
        places = list(placements(bill.inventory, source.market, source.settings).values())
        tables |= {
            name: copied_rows(connection, name, start, end)
            for name, copied in COPIED.items()
            if copied.group == "telemetry"
        }
    if source.store.advice is not None:
        with source.store.read("advice") as connection:
            tables[SAVINGS] = savings_rows(connection, start, end, models)
            tables |= {
                name: copied_rows(connection, name, start, end)
                for name, copied in COPIED.items()
                if copied.group == "advice"
            }
            if with_advice:
                tables[ADVICE] = advice_rows(connection, places)
    return tables, prices


def _parquet(table: Any) -> bytes:
    """Return a table as a Parquet file; equal tables give equal bytes.

    Words, ids and times repeat: they are dictionaries. An amount hardly repeats: a dictionary of amounts takes twice
    the bytes of the amounts themselves (9.2 against 5.2 bytes a device-hour of `benchmarks.lake`).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    amounts = {f.name for f in table.schema if f.type == pa.int64() and not f.name.endswith(("_id", "ts"))}
    repeated = [name for name in table.column_names if name not in amounts]
    file = BytesIO()
    pq.write_table(
        table, file, compression="zstd", compression_level=9, row_group_size=ROW_GROUP, use_dictionary=repeated
    )
    return file.getvalue()


def _day_file(table: str, rows: int, content: bytes) -> DayFile:
    checksum = digest(content)
    return DayFile(table, f"{table}-{checksum[:32]}.parquet", rows, len(content), checksum)
