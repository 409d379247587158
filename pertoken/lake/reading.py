"""The current files of a lake over a range of days, and what is wrong with the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Boolean, Table, Text

from pertoken.costs.ledger import KindDollars
from pertoken.errors import StoreError
from pertoken.lake.manifest import (
    CELL,
    DayFile,
    LakeFiles,
    Manifest,
    ManifestFault,
    day_of,
    digest,
    folder_of,
    manifest_names,
    parse,
    start_of,
)
from pertoken.store.schema import advice, telemetry
from pertoken.store.schema.telemetry import HOUR
from pertoken.window.reading import DAY

if TYPE_CHECKING:
    import ibis
    import pyarrow as pa

COSTS, TOKENS, KINDS, OWNERS, SAVINGS, ADVICE = "costs", "tokens", "kinds", "owners", "savings", "advice"
UNPRICED = "unpriced"
"""Use of a line of a deployment's device time that has no price: its dollars are NULL."""
MAX_NANO_USD = 10**15
"""Largest amount of one line: a million dollars for a device and hour is no price."""
_OWNER = (
    *(("owner_epoch_id", "int64"), ("deployment_id", "int64")),
    *(("model", "string"), ("service", "string"), ("namespace", "string"), ("workload", "string")),
)
_PLACE = (("provider", "string"), ("region", "string"))
_TOKENS = (("prompt_tokens", "int64"), ("cached_tokens", "int64"), ("generated_tokens", "int64"))
WORK = tuple(field.name for field in fields(KindDollars))
"""Kinds of work, with the bounds of those that ran together."""
_LINES: Mapping[str, Sequence[tuple[str, str]]] = {
    # Allocated lines of the bill; `use` is one of `costs.lines.USES` or `UNPRICED`. Only lines of a deployment have
    # an owner. `hour` counts from the start of the day. `epoch_id` is the epoch whose engine counts the tokens of a
    # line; NULL: a worker rank, whose tokens its head rank counts. `owner_epoch_id` is the epoch that held the device,
    # whose owners by label, job and slice are in `owners`.
    COSTS: (
        *(("hour", "int8"), ("device_id", "int64"), ("accelerator", "string"), ("host", "string")),
        *(*_PLACE, ("epoch_id", "int64"), *_OWNER, ("use", "string"), ("nano_usd", "int64")),
    ),
    # Tokens and dollars of each epoch and hour: the dollars are the sum of its lines in `costs`, so that dollars per
    # Mtok need not read all devices. Tokens are NULL where none are counted, as for worker ranks, which have a row
    # without an `epoch_id`. `unpriced`: a device that it held has no price.
    TOKENS: (
        *(("hour", "int8"), *_PLACE, ("epoch_id", "int64"), *_OWNER, *_TOKENS, ("observed_ms", "int64")),
        *(("nano_usd", "int64"), ("unpriced", "bool_")),
    ),
    # Dollars of each deployment on that day by kind of work, of which `KindDollars.NAMES` sum to all of its dollars,
    # and its tokens.
    KINDS: (*_PLACE, *_OWNER, *((f"{kind}_nano_usd", "int64") for kind in WORK), *_TOKENS),
    # Owners of each epoch with a line, beside its namespace and workload: a basis of `settings.owners` and its name.
    OWNERS: (("owner_epoch_id", "int64"), ("basis", "string"), ("owner", "string")),
    # Receipts of that day: what they measured in the hours compared, and what left the bill by it.
    SAVINGS: (
        *(("receipt_id", "int64"), ("recommendation_id", "int64"), ("deployment_id", "int64"), ("epoch_id", "int64")),
        *(("model", "string"), ("result", "string"), ("rule", "string"), ("title", "string")),
        ("created_ts", "int64"),
        *((f"{end}_nano_usd", "int64") for end in ("low", "likely", "high")),
        *((f"{end}_nano_usd_month", "int64") for end in ("low", "likely", "high")),
    ),
    # Open recommendations at the time of publishing; of the newest day alone.
    ADVICE: (
        *(("recommendation_id", "int64"), ("rule", "string"), ("target", "string"), ("title", "string")),
        *(("low_nano_usd_month", "int64"), ("likely_nano_usd_month", "int64"), ("high_nano_usd_month", "int64")),
        *(("state", "string"), ("provider", "string"), ("commitment", "bool_")),
    ),
}
SNAPSHOTS = frozenset({ADVICE})
"""Tables of the present: those of a past day stay as they were published."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A table of the database of which rows are published as they are."""

    table: Table
    group: str
    time: str | None
    """Column of the time that decides a row's day; None: rows known on that day (`first_ts`, `last_ts`)."""
    columns: tuple[str, ...]


def _hourly(rollups: Mapping[int, Table]) -> Copied:
    table = rollups[HOUR]
    return Copied(table, "telemetry", "ts", tuple(column.name for column in table.columns if column.name != "revision"))


def _dated(table: Table, group: str, time: str) -> Copied:
    return Copied(table, group, time, tuple(column.name for column in table.columns))


COPIED: Mapping[str, Copied] = {
    "device_hours": _hourly(telemetry.device_rollup),
    "deployment_hours": _hourly(telemetry.deployment_rollup),
    "share_hours": _hourly(telemetry.share_rollup),
    "host_hours": _hourly(telemetry.host_rollup),
    "histogram_hours": _hourly(telemetry.histogram_rollup),
    "counter_hours": _hourly(telemetry.engine_counter_rollup),
    "hosts": Copied(
        telemetry.host, "telemetry", None,
        ("host_id", "name", "cpu_name", "cpu_count", "memory_bytes", "cloud", "instance_type", "region", "purchase"),
    ),
    "devices": Copied(
        telemetry.device, "telemetry", None,
        ("device_id", "host_id", "kind", "uuid", "vendor", "name", "memory_bytes", "parent_id", "part_1e6"),
    ),
    "deployments": Copied(
        telemetry.deployment, "telemetry", None, ("deployment_id", "engine_id", "host_id", "served_model", "model_path")
    ),
    "epochs": Copied(
        telemetry.epoch, "telemetry", "start_ts", ("epoch_id", "deployment_id", "start_ts", "engine_version", "knobs")
    ),
    "events": _dated(telemetry.event, "telemetry", "ts"),
    "prices": _dated(advice.price, "advice", "set_ts"),
    "verdicts": _dated(advice.verdict, "advice", "created_ts"),
    "receipts": _dated(advice.receipt, "advice", "created_ts"),
}  # fmt: skip
"""Rows that are published as they are stored. None has a column that changes while nothing happens."""
ROLLED_UP = ("device_hours", "deployment_hours")
"""Tables whose rows count how complete a day is."""


@cache
def schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table of the lake."""
    import pyarrow as pa

    if name in _LINES:
        return pa.schema([pa.field(column, getattr(pa, kind)()) for column, kind in _LINES[name]])
    copied = COPIED[name]
    arrow_types = ((Text, pa.string()), (Boolean, pa.bool_()), (object, pa.int64()))
    columns = (copied.table.c[name] for name in copied.columns)
    return pa.schema(
        pa.field(column.name, next(arrow for kind, arrow in arrow_types if isinstance(column.type, kind)))
        for column in columns
    )


def names() -> tuple[str, ...]:
    """Return the names of all tables."""
    return (*_LINES, *COPIED)


N_THREADS = 16
"""Files that are read at once: on S3 each takes a round trip."""

Tables = Mapping[str, "ibis.Table"]
"""Ibis tables by name."""
Value = TypeVar("Value")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, order=True)
class DayFault:
    """One day of one cell that is left out of every answer."""

    cell: str
    day: date
    reason: str

    def __str__(self) -> str:
        return f"cell {self.cell}, {self.day}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Days:
    """Published days of some cells."""

    lake: LakeFiles
    manifests: tuple[Manifest, ...]
    faults: tuple[DayFault, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """Names of the cells with a day."""
        return tuple(sorted({manifest.cell for manifest in self.manifests}))

    def paths(self, table: str) -> list[str]:
        """Return the paths of the files of a table, in the order of cell and day."""
        return [f"{manifest.folder}/{file.name}" for manifest, file in self.files(table)]

    def files(self, table: str) -> list[tuple[Manifest, DayFile]]:
        """Return the files of a table with their manifests."""
        return [(manifest, file) for manifest in self.manifests for file in manifest.files if file.table == table]

    def without(self, faults: Iterable[DayFault]) -> Days:
        """Return the same days but those with a fault."""
        fault_by_day = {(fault.cell, fault.day): fault for fault in faults}
        return replace(
            self,
            manifests=tuple(m for m in self.manifests if (m.cell, m.day) not in fault_by_day),
            faults=tuple(sorted({*self.faults, *fault_by_day.values()})),
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Whole hours that a question is about: [start_ts, end_ts)."""

    start_ts: int
    end_ts: int


def cells_of(lake: LakeFiles) -> list[str]:
    """Return the names of the cells of a lake. Raises StoreError where it cannot be listed, or is none."""
    folders = [name.partition("=") for name in lake.folders()]
    cells = [cell for key, _, cell in folders if key == "cell" and CELL.fullmatch(cell)]
    if not cells:
        raise StoreError(f"{lake}: holds no lake: `pertoken lake publish {lake}` writes one")
    return cells


def days_of(lake: LakeFiles, date_range: Range) -> Days:
    """Return the current manifests of a range; a day whose files cannot be used is a fault. Raises StoreError."""
    cells = cells_of(lake)
    published = _together(lambda cell: published_days(lake, cell), cells)
    first, last = day_of(date_range.start_ts), day_of(date_range.end_ts - 1)
    keys = [(cell, day) for cell, days in zip(cells, published, strict=True) for day in days if first <= day <= last]
    results = _together(lambda key: _manifest(lake, *key), keys)
    manifests = tuple(result for result in results if isinstance(result, Manifest))
    return Days(lake, manifests, tuple(sorted(result for result in results if isinstance(result, DayFault))))


def checked(days: Days, tables: Sequence[str]) -> Days:
    """Return the days without those of which a file of `tables` is damaged or of other columns, by its footer."""
    return _without_faults(days, tables, _footer_fault, "is no Parquet file that can be read")


def verified(days: Days, tables: Sequence[str] | None = None) -> Days:
    """Return the days without those of which a file differs from its checksum, or cannot be read to its end."""
    return _without_faults(days, tables or names(), _content_fault, "cannot be read to its end")


def _without_faults(
    days: Days, tables: Sequence[str], file_fault: Callable[[LakeFiles, str, DayFile], str | None], unreadable: str
) -> Days:
    """Return the days without those that have a file with a fault; `unreadable` is the fault where reading it fails."""
    import pyarrow as pa

    def day_fault(key: tuple[Manifest, DayFile]) -> DayFault | None:
        manifest, file = key
        try:
            fault = file_fault(days.lake, f"{manifest.folder}/{file.name}", file)
        except (StoreError, pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
            fault = unreadable
        return None if fault is None else DayFault(manifest.cell, manifest.day, f"{file.name} {fault}")

    faults = _together(day_fault, [key for table in tables for key in days.files(table)])
    return days.without(fault for fault in faults if fault is not None)


def _footer_fault(lake: LakeFiles, path: str, file: DayFile) -> str | None:
    import pyarrow.parquet as pq

    with lake.opened(path) as opened:
        footer = pq.read_metadata(opened)
        columns = footer.schema.to_arrow_schema().remove_metadata()
    if footer.num_rows != file.rows:
        return f"has {footer.num_rows:,} rows of {file.rows:,}"
    return None if columns == schema(file.table) else f"has other columns than the table {file.table}"


def _content_fault(lake: LakeFiles, path: str, file: DayFile) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = lake.read(path)
    if digest(content) != file.sha256:
        return "differs from its checksum"
    same_rows = pq.read_table(pa.BufferReader(content)).num_rows == file.rows
    return None if same_rows else "has other rows than its manifest states"


def published_days(lake: LakeFiles, cell: str) -> list[date]:
    """Return the days of which a cell has a folder, oldest first. Raises StoreError."""
    days = []
    for folder in lake.folders(f"cell={cell}"):
        try:
            day = date.fromisoformat(folder.removeprefix("day="))
        except ValueError:
            continue
        if folder == f"day={day.isoformat()}":
            days.append(day)
    return days


def _manifest(lake: LakeFiles, cell: str, day: date) -> Manifest | DayFault | None:
    """Return the current manifest of a day; None where publishing never came to its end."""
    folder = folder_of(cell, day)
    entries = {entry.name: entry.n_bytes for entry in lake.files(folder)}
    current = next(iter(manifest_names([*entries])), None)
    if current is None:
        return None
    try:
        manifest = parse(lake.read(f"{folder}/{current}"), current, cell, day)
    except ManifestFault as fault:
        return DayFault(cell, day, str(fault))
    unknown = sorted(file.table for file in manifest.files if file.table not in names())
    if unknown:
        return DayFault(cell, day, f"its manifest names a table {unknown[0]!a} that there is not")
    for file in manifest.files:
        if file.name not in entries:
            return DayFault(cell, day, f"{file.name} is missing")
        if entries[file.name] != file.n_bytes:
            return DayFault(cell, day, f"{file.name} has {entries[file.name]:,} bytes of {file.n_bytes:,}")
    return manifest


def _together(function: Callable[[Value], Result], values: Sequence[Value]) -> list[Result]:
    """Call a function for each value, several at once; return the results in order."""
    if len(values) < 2:
        return [function(value) for value in values]
    with ThreadPoolExecutor(min(N_THREADS, len(values))) as threads:
        return list(threads.map(function, values))


@dataclass(frozen=True, slots=True)
class CellInventory:
    """What is published of one cell."""

    name: str
    n_days: int
    through_ts: int | None
    rows: int
    n_bytes: int
    faults: tuple[DayFault, ...]

    def values(self) -> dict[str, object]:
        """Return it as JSON values."""
        faults = [{"day": fault.day.isoformat(), "reason": fault.reason} for fault in self.faults]
        return {
            "cell": self.name,
            "days": self.n_days,
            "through_ts": self.through_ts,
            "rows": self.rows,
            "bytes": self.n_bytes,
            "faults": faults,
        }


def inventory(lake: LakeFiles) -> list[CellInventory]:
    """Return what is published of each cell. Raises StoreError."""
    days = all_days(lake)
    by_cell: dict[str, list[Manifest]] = {cell: [] for cell in cells_of(lake)}
    for manifest in days.manifests:
        by_cell[manifest.cell].append(manifest)
    return [
        CellInventory(
            cell,
            len(manifests),
            max((manifest.through_ts for manifest in manifests), default=None),
            sum(file.rows for manifest in manifests for file in manifest.files),
            sum(file.n_bytes for manifest in manifests for file in manifest.files),
            tuple(fault for fault in days.faults if fault.cell == cell),
        )
        for cell, manifests in by_cell.items()
    ]


def all_days(lake: LakeFiles) -> Days:
    """Return the current manifests of every day. Raises StoreError."""
    starts = [start_of(day) for cell in cells_of(lake) for day in published_days(lake, cell)]
    return days_of(lake, Range(min(starts, default=0), max(starts, default=0) + DAY))
