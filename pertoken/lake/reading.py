"""The current files of a lake over a range of days, and what is wrong with the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, TypeVar

from pertoken.errors import StoreError
from pertoken.lake.files import LakeFiles
from pertoken.lake.manifest import (
    CELL,
    DayFile,
    Manifest,
    ManifestFault,
    day_of,
    digest,
    folder_of,
    manifest_names,
    parse,
    start_of,
)
from pertoken.lake.tables import names, schema
from pertoken.window.reading import DAY

_DAY = re.compile(r"day=\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])")
N_THREADS = 16
"""Files that are read at once: on S3 each takes a round trip."""

Tables = Mapping[str, Any]
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
        found = {(fault.cell, fault.day): fault for fault in faults}
        return replace(
            self,
            manifests=tuple(m for m in self.manifests if (m.cell, m.day) not in found),
            faults=tuple(sorted({*self.faults, *found.values()})),
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Whole hours and cells that a question is about: [start_ts, end_ts)."""

    start_ts: int
    end_ts: int
    cells: frozenset[str] = field(default_factory=frozenset)
    """Empty: all."""

    @property
    def days(self) -> list[date]:
        """All days, first to last."""
        return [day_of(ts) for ts in range(self.start_ts // DAY * DAY, self.end_ts, DAY)]


def cells_of(lake: LakeFiles) -> list[str]:
    """Return the names of the cells of a lake. Raises StoreError where it cannot be listed, or is none."""
    folders = [name.partition("=") for name in lake.folders()]
    cells = [cell for key, _, cell in folders if key == "cell" and CELL.fullmatch(cell)]
    if not cells:
        raise StoreError(f"{lake}: holds no lake: `pertoken lake publish {lake}` writes one")
    return cells


def days_of(lake: LakeFiles, asked: Range) -> Days:
    """Return the current manifests of a range; a day whose files cannot be used is a fault. Raises StoreError."""
    cells = [cell for cell in cells_of(lake) if not asked.cells or cell in asked.cells]
    if missing := asked.cells.difference(cells):
        raise StoreError(f"{lake}: has no cell {min(missing)!a}; it has {', '.join(sorted(cells_of(lake)))}")
    published = _together(lambda cell: _published(lake, cell, asked), cells)
    wanted = [(cell, day) for cell, days in zip(cells, published, strict=True) for day in days]
    read = _together(lambda key: _manifest(lake, *key), wanted)
    manifests = tuple(found for found in read if isinstance(found, Manifest))
    return Days(lake, manifests, tuple(sorted(found for found in read if isinstance(found, DayFault))))


def checked(days: Days, tables: Sequence[str]) -> Days:
    """Return the days without those of which a file of `tables` is damaged or of other columns, by its footer."""
    files = [(manifest, file) for table in tables for manifest, file in days.files(table)]
    faults = _together(lambda key: _footer_fault(days.lake, *key), files)
    return days.without(fault for fault in faults if fault is not None)


def verified(days: Days, tables: Sequence[str] | None = None) -> Days:
    """Return the days without those of which a file differs from its checksum, or cannot be read to its end."""
    files = [(manifest, file) for table in tables or names() for manifest, file in days.files(table)]
    faults = _together(lambda key: _content_fault(days.lake, *key), files)
    return days.without(fault for fault in faults if fault is not None)


def _published(lake: LakeFiles, cell: str, asked: Range) -> list[date]:
    folders = set(lake.folders(f"cell={cell}"))
    return [day for day in asked.days if f"day={day.isoformat()}" in folders]


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


def _footer_fault(lake: LakeFiles, manifest: Manifest, file: DayFile) -> DayFault | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    reason = None
    try:
        with lake.opened(f"{manifest.folder}/{file.name}") as opened:
            footer = pq.read_metadata(opened)
            columns = footer.schema.to_arrow_schema().remove_metadata()
        if footer.num_rows != file.rows:
            reason = f"{file.name} has {footer.num_rows:,} rows of {file.rows:,}"
        elif columns != schema(file.table):
            reason = f"{file.name} has other columns than the table {file.table}"
    except (StoreError, pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
        reason = f"{file.name} is no Parquet file that can be read"
    return None if reason is None else DayFault(manifest.cell, manifest.day, reason)


def _content_fault(lake: LakeFiles, manifest: Manifest, file: DayFile) -> DayFault | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    reason = None
    try:
        content = lake.read(f"{manifest.folder}/{file.name}")
        if digest(content) != file.sha256:
            reason = f"{file.name} differs from its checksum"
        elif pq.read_table(pa.BufferReader(content)).num_rows != file.rows:
            reason = f"{file.name} has other rows than its manifest states"
    except (StoreError, pa.ArrowException, OSError, ValueError, OverflowError, MemoryError):
        reason = f"{file.name} cannot be read to its end"
    return None if reason is None else DayFault(manifest.cell, manifest.day, reason)


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

    def values(self) -> dict[str, Any]:
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
    starts = [
        start_of(date.fromisoformat(name[4:]))
        for cell in cells_of(lake)
        for name in lake.folders(f"cell={cell}")
        if _DAY.fullmatch(name)
    ]
    return days_of(lake, Range(min(starts, default=0), max(starts, default=0) + DAY))
