"""What is deleted from a lake: old days, versions that newer ones replaced, and a name in every day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from pertoken.lake import forgotten
from pertoken.lake.files import Entry, LakeFiles
from pertoken.lake.manifest import folder_of
from pertoken.lake.publish import current_manifest, write_day
from pertoken.lake.reading import cells_of

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


def prune(lake: LakeFiles, before: date | None, now_us: int) -> Iterator[Deleted]:
    """Delete days before `before`, files of every other day that its current manifest does not name, and what a
    publisher that was killed left incomplete.

    Such a file may be of a publisher that is at work: it is kept while it, or the manifest, is younger than a day.
    Raises StoreError.
    """
    for cell, day in _days(lake):
        folder = folder_of(cell, day)
        entries, gone = lake.files(folder), lake.drafts(folder, now_us - DRAFT_US)
        current = current_manifest(lake, cell, day, entries)
        if before is not None and day < before:
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

    name = forgotten.name_of(column, text)
    for cell in cells_of(lake):
        forgotten.add(lake, cell, name)
    for cell, day in _days(lake):
        entries = lake.files(folder_of(cell, day))
        current = current_manifest(lake, cell, day, entries)
        if current is None:
            continue
        contents = {file.table: lake.read(f"{current.folder}/{file.name}") for file in current.files}
        tables = {table: pq.read_table(pa.BufferReader(content)) for table, content in contents.items()}
        hidden = forgotten.hide(tables, [name])
        if hidden is not None:
            made, _ = write_day(lake, replace(current, read_us=now_us), hidden, ())
            kept = {made.name(), *(file.name for file in made.files)}
            yield _deleted(lake, cell, day, [entry for entry in entries if entry.name not in kept])


def _deleted(lake: LakeFiles, cell: str, day: date, entries: Sequence[Entry]) -> Deleted:
    """Delete files, manifests first: a day never names a file that is gone."""
    for entry in sorted(entries, key=lambda entry: not entry.name.startswith("manifest-")):
        lake.delete(entry.path)
    return Deleted(cell, day, len(entries), sum(entry.n_bytes for entry in entries))


def _days(lake: LakeFiles) -> Iterator[tuple[str, date]]:
    for cell in cells_of(lake):
        for folder in lake.folders(f"cell={cell}"):
            key, _, text = folder.partition("=")
            try:
                day = date.fromisoformat(text) if key == "day" else None
            except ValueError:
                continue
            if day is not None:
                yield cell, day
