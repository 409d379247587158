"""Publishing: the closed hours of a database, day by day, into a lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from pertoken.catalog.market import Market
from pertoken.config import Settings
from pertoken.costs.bill import Bill
from pertoken.costs.fleet import placements
from pertoken.errors import StoreError
from pertoken.lake.manifest import (
    DayFile,
    LakeFile,
    LakeFiles,
    Manifest,
    ManifestFault,
    day_of,
    digest,
    folder_of,
    manifest_names,
    parse,
)
from pertoken.lake.reading import (
    ADVICE,
    COPIED,
    COSTS,
    KINDS,
    OWNERS,
    ROLLED_UP,
    SAVINGS,
    SNAPSHOTS,
    TOKENS,
    cells_of,
    published_days,
)
from pertoken.lake.rows import DayRows, advice_rows, copied_rows, count_of, day_end, savings_rows
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import DAY, Window, first_recorded

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("namespace", "service", "model", "workload")
"""Columns whose names can be deleted, beside bases of owners (`label:NAME`, `job:user`)."""
HIDDEN = "(deleted)"
"""What stands in lines of the bill where a name was: the dollars stay, so that the bill still adds up."""
_LINES = (COSTS, TOKENS, KINDS)
_EPOCH = "owner_epoch_id"
_NAME_OF = {SAVINGS: "model", ADVICE: "target"}
"""Column that names the subject, of tables whose rows are deleted."""
Name = tuple[str, str]
"""Column or basis of owners, and hash of the name: the name itself is not kept."""


def name_of(column: str, text: str) -> Name:
    """Return the name in a column as it is kept."""
    return column, sha256(f"{column}\n{text}".encode()).hexdigest()


def read(lake: LakeFiles, cell: str) -> tuple[Name, ...]:
    """Return the names that were deleted from a cell. Raises StoreError."""
    path = _path(cell)
    if path not in {entry.path for entry in lake.files(f"cell={cell}")}:
        return ()
    try:
        names = tuple((str(column), str(checksum)) for column, checksum in json.loads(lake.read(path)))
    except (ValueError, TypeError):
        raise StoreError(f"{lake}/{path}: cannot be read: delete the names again") from None
    return names


def add(lake: LakeFiles, cell: str, name: Name) -> None:
    """Remember that a name was deleted from a cell. Raises StoreError."""
    lake.write(_path(cell), json.dumps(sorted({*read(lake, cell), name})).encode())


def hide(tables: Mapping[str, pa.Table], names: Iterable[Name]) -> dict[str, pa.Table] | None:
    """Return the tables of a day without some names; None where no line has one.

    A line keeps its dollars and tokens. Of a day that had a name, rows that are published as stored are left out,
    since their texts may hold it.
    """
    import pyarrow.compute as pc

    hidden = {table: tables[table] for table in (*_LINES, OWNERS, *_NAME_OF) if table in tables}
    has_names = False
    for name in names:
        epochs = _epochs(hidden, name)
        for table in (*_LINES, OWNERS):
            if table in hidden:
                matches = pc.is_in(hidden[table][_EPOCH], epochs)
                for column in ("owner",) if table == OWNERS else COLUMNS:
                    hidden[table] = _replaced(hidden[table], column, matches)
        for table, column in _NAME_OF.items():
            matches = _matches(hidden[table], column, name) if table in hidden else None
            if matches is not None:
                hidden[table] = hidden[table].filter(pc.invert(matches))
        has_names = has_names or len(epochs) > 0
    return hidden if has_names else None


def _epochs(tables: Mapping[str, pa.Table], name: Name) -> pa.Array:
    """Return the epochs that have a name in a column of their lines, or as their owner."""
    import pyarrow as pa
    import pyarrow.compute as pc

    epochs: set[int] = set()
    for table, rows in tables.items():
        if table == OWNERS:
            rows = rows.filter(pc.equal(rows["basis"], name[0]))
        column = "owner" if table == OWNERS else name[0]
        if table in (*_LINES, OWNERS) and column in rows.column_names:
            matches = _matches(rows, column, name)
            epochs |= set() if matches is None else set(rows.filter(matches)[_EPOCH].to_pylist())
    return pa.array(sorted(epochs - {None}), pa.int64())


def _matches(table: pa.Table, column: str, name: Name) -> pa.ChunkedArray | None:
    """Return which rows have a name in a column; None if none has."""
    import pyarrow.compute as pc

    values = [text for text in pc.unique(table[column]).to_pylist() if text is not None]
    same = next((text for text in values if name_of(name[0], text) == name), None)
    return None if same is None else pc.fill_null(pc.equal(table[column], same), False)


def _replaced(table: pa.Table, column: str, rows: pa.ChunkedArray) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    replaced = pc.if_else(pc.and_(rows, pc.is_valid(table[column])), pa.scalar(HIDDEN), table[column])
    return table.set_column(table.column_names.index(column), table.schema.field(column), replaced)


def _path(cell: str) -> str:
    return f"cell={cell}/forgotten.json"


SETTLE_S = 300
"""How long after its end an hour counts as closed: roll-ups of its last minutes are made, and hosts have shipped."""
RECENT_DAYS = 7
"""Days before today that are read again, for rows that arrived late."""
ROW_GROUP = 1_000_000


class DayOutcome(StrEnum):
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
    outcome: DayOutcome
    rows: int
    n_bytes: int
    """Bytes of files that were written."""


@dataclass(frozen=True, slots=True)
class LakeSource:
    """The database that is published, as one cell."""

    store: Store
    market: Market
    settings: Settings
    cell: str


def publish(
    source: LakeSource,
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
            yield PublishedDay(day, DayOutcome.UNCHANGED, sum(file.rows for file in current.files), 0)
            continue
        published = _publish_day(source, lake, start, through_ts, now_us(), entries, current, fewer=fewer)
        if published is not None:
            yield published


def current_manifest(lake: LakeFiles, cell: str, day: date, entries: Sequence[LakeFile]) -> Manifest | None:
    """Return the newest manifest of a day that can be read; None where the day is new."""
    for name in manifest_names([entry.name for entry in entries]):
        try:
            return parse(lake.read(f"{folder_of(cell, day)}/{name}"), name, cell, day)
        except ManifestFault:
            continue
    return None


def _prices_of_day(source: LakeSource, start: int) -> str:
    with source.store.read() as connection:
        bill = Bill(source.store, connection, Window(connection, start, start + DAY))
        return _hash_of(DayRows(bill, source.market, source.settings).prices())


def _hash_of(prices: Iterator[tuple[int, list[int | None]]]) -> str:
    return sha256(repr(list(prices)).encode()).hexdigest()[:32]


def _publish_day(
    source: LakeSource,
    lake: LakeFiles,
    start: int,
    through_ts: int,
    read_us: int,
    entries: Sequence[LakeFile],
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
    names = read(lake, source.cell)
    tables = (hide(tables, names) if names else None) or tables
    made = Manifest(source.cell, day, end, read_us, prices, rolled_up, kept)
    if current is not None and rolled_up < current.rolled_up and not fewer:
        return PublishedDay(day, DayOutcome.KEPT, sum(file.rows for file in current.files), 0)
    made, n_bytes = write_day(lake, made, tables, entries, current)
    outcome = (
        DayOutcome.NEW if current is None else DayOutcome.UNCHANGED if made.same_day(current) else DayOutcome.CHANGED
    )
    return PublishedDay(day, outcome, sum(file.rows for file in made.files), n_bytes)


def write_day(
    lake: LakeFiles,
    manifest: Manifest,
    tables: Mapping[str, pa.Table],
    entries: Sequence[LakeFile],
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


def _day_tables(source: LakeSource, start: int, end: int, *, with_advice: bool) -> tuple[Mapping[str, pa.Table], str]:
    """Return the tables of a day, and the hash of its prices, all read in one transaction of each group."""
    tables: dict[str, pa.Table] = {}
    with source.store.read() as connection:
        bill = Bill(source.store, connection, Window(connection, start, end))
        rows = DayRows(bill, source.market, source.settings)
        tables |= rows.tables() | _copied_tables(connection, "telemetry", start, end)
        prices = _hash_of(rows.prices())
        models = {row.deployment_id: row.served_model for row in bill.inventory.served}
        places = list(placements(bill.inventory, source.market, source.settings).values())
    if source.store.advice is not None:
        with source.store.read("advice") as connection:
            tables[SAVINGS] = savings_rows(connection, start, end, models)
            tables |= _copied_tables(connection, "advice", start, end)
            if with_advice:
                tables[ADVICE] = advice_rows(connection, places)
    return tables, prices


def _copied_tables(connection: Connection, group: str, start: int, end: int) -> dict[str, pa.Table]:
    return {name: copied_rows(connection, name, start, end) for name, copied in COPIED.items() if copied.group == group}


def _parquet(table: pa.Table) -> bytes:
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


DRAFT_US = 86_400 * 1_000_000
"""Age of a day's manifest from which files that it does not name are of no publisher at work, and of a file that is not
complete: a write takes seconds. A publisher that wakes up later fails, and its day stays what it was."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Files that were deleted of one day."""

    cell: str
    day: date
    n_files: int
    n_bytes: int


def prune(lake: LakeFiles, before_day: date | None, now_us: int) -> Iterator[Deleted]:
    """Delete days before `before_day`, files of every other day that its current manifest does not name, and what a
    publisher that was killed left incomplete.

    Such a file may be of a publisher that is at work: it is kept while it, or the manifest, is younger than a day.
    Raises StoreError.
    """
    for cell, day in _days(lake):
        folder = folder_of(cell, day)
        entries, gone = lake.files(folder), lake.drafts(folder, now_us - DRAFT_US)
        current = current_manifest(lake, cell, day, entries)
        if before_day is not None and day < before_day:
            gone += entries
        elif current is not None and now_us - current.read_us >= DRAFT_US:
            kept = {current.name(), *(file.name for file in current.files)}
            gone += [entry for entry in entries if entry.name not in kept]
        if gone:
            yield _deleted(lake, cell, day, gone)
    for cell in cells_of(lake):
        for draft in lake.drafts(f"cell={cell}", now_us - DRAFT_US):
            lake.delete(draft.path)


def forget(lake: LakeFiles, column: str, text: str, now_us: int) -> Iterator[Deleted]:
    """Write every day again that holds a name, and delete the files that held it. Raises StoreError.

    `column` is one of `forgotten.COLUMNS`, or a basis of owners. The dollars of its lines stay, under
    `forgotten.HIDDEN`. The name stays out when a day is published again.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = name_of(column, text)
    for cell in cells_of(lake):
        add(lake, cell, name)
    for cell, day in _days(lake):
        entries = lake.files(folder_of(cell, day))
        current = current_manifest(lake, cell, day, entries)
        if current is None:
            continue
        contents = {file.table: lake.read(f"{current.folder}/{file.name}") for file in current.files}
        tables = {table: pq.read_table(pa.BufferReader(content)) for table, content in contents.items()}
        hidden = hide(tables, [name])
        if hidden is not None:
            made, _ = write_day(lake, replace(current, read_us=now_us), hidden, ())
            kept = {made.name(), *(file.name for file in made.files)}
            yield _deleted(lake, cell, day, [entry for entry in entries if entry.name not in kept])


def _deleted(lake: LakeFiles, cell: str, day: date, entries: Sequence[LakeFile]) -> Deleted:
    """Delete files, manifests first: a day never names a file that is gone."""
    for entry in sorted(entries, key=lambda entry: not entry.name.startswith("manifest-")):
        lake.delete(entry.path)
    return Deleted(cell, day, len(entries), sum(entry.n_bytes for entry in entries))


def _days(lake: LakeFiles) -> Iterator[tuple[str, date]]:
    return ((cell, day) for cell in cells_of(lake) for day in published_days(lake, cell))
