"""Quarantine of a damaged database: it is renamed, never deleted, and recording goes on in a new one."""

from datetime import UTC, datetime
from pathlib import Path

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.high_water_mark import high_water_mark_file

_MARK = "-damaged-"


def set_aside(place: StoreLocation, now_ts: int) -> Path:
    """Rename the telemetry of a folder, its log and its high-water mark; nothing may have it open.

    Returns the data file's new name. Raises StoreError if it cannot be renamed.
    """
    database = place.file("telemetry")
    stamp = datetime.fromtimestamp(now_ts, UTC).strftime("%Y%m%dT%H%M%SZ")
    aside, n = database.with_name(f"{database.stem}{_MARK}{stamp}.db"), 1
    while aside.exists():
        n += 1
        aside = database.with_name(f"{database.stem}{_MARK}{stamp}-{n}.db")
    moves = [(Path(f"{database}{end}"), Path(f"{aside}{end}")) for end in ("-wal", "-shm")]
    moves += [(high_water_mark_file(database), high_water_mark_file(aside)), (database, aside)]
    try:
        for before, after in moves:
            if before.exists():
                before.rename(after)
    except OSError as error:
        raise StoreError(f"{place}: its damaged telemetry cannot be set aside: {error.strerror}") from None
    return aside


def databases_set_aside(place: StoreLocation) -> list[Path]:
    """Damaged databases of a folder, oldest first; none of a folder this user may not enter."""
    database = place.file("telemetry")
    try:
        return sorted(database.parent.glob(f"{database.stem}{_MARK}*.db"))
    except PermissionError:
        return []
