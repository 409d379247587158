"""Quarantine of a damaged database: it is renamed, never deleted, and recording goes on in a new one."""

from datetime import UTC, datetime
from pathlib import Path

from pertoken.errors import StoreError
from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.high_water_mark import high_water_mark_file

_MARK = "-damaged-"


def quarantine_database(location: StoreLocation, now_ts: int) -> Path:
    """Rename the telemetry of a folder, its log and its high-water mark; nothing may have it open.

    Returns the data file's new name. Raises StoreError if it cannot be renamed.
    """
    database = location.file("telemetry")
    stamp = datetime.fromtimestamp(now_ts, UTC).strftime("%Y%m%dT%H%M%SZ")
    quarantined, n = database.with_name(f"{database.stem}{_MARK}{stamp}.db"), 1
    while quarantined.exists():
        n += 1
        quarantined = database.with_name(f"{database.stem}{_MARK}{stamp}-{n}.db")
    moves = [(Path(f"{database}{end}"), Path(f"{quarantined}{end}")) for end in ("-wal", "-shm")]
    moves += [(high_water_mark_file(database), high_water_mark_file(quarantined)), (database, quarantined)]
    try:
        for before, after in moves:
            if before.exists():
                before.rename(after)
    except OSError as error:
        raise StoreError(f"{location}: its damaged telemetry cannot be quarantined: {error.strerror}") from None
    return quarantined


def quarantined_databases(location: StoreLocation) -> list[Path]:
    """Return damaged databases of a folder, oldest first; none of a folder this user may not enter."""
    database = location.file("telemetry")
    try:
        return sorted(database.parent.glob(f"{database.stem}{_MARK}*.db"))
    except PermissionError:
        return []
