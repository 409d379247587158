"""Manifest of one day of one cell: which files are the day, with their rows and checksums.

Nothing is overwritten. A file is named by the hash of its content, and a manifest by how far it reaches, when its rows
were read, and its own hash: the manifest with the greatest name is the day, whichever of two publishers wrote last.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any

from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation
from pertoken.window.reading import DAY

VERSION = 2
"""Version of the layout; a reader refuses another one, and publishing writes its days again."""
CELL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
MAX_BYTES = 1_000_000
"""Size of a manifest; a larger one is refused."""
_NAME = re.compile(r"manifest-(\d{12})-(\d{16})-([0-9a-f]{16})\.json")
_FILE = re.compile(r"[a-z0-9_]{1,40}-[0-9a-f]{32}\.parquet")


class ManifestFault(ValueError):
    """A manifest that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class DayFile:
    """One file of a day."""

    table: str
    name: str
    rows: int
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of one day of one cell."""

    cell: str
    day: date
    through_ts: int
    """End of the last closed hour in it."""
    read_us: int
    """When its rows were read, microseconds since 1970: of two manifests with equal reach the later one counts."""
    prices: str
    """Hash of the prices that were in force on that day: another one makes the day be published again."""
    rolled_up: int
    """Hours of devices and deployments that its lines were made of: fewer are no newer version of the day."""
    files: tuple[DayFile, ...]
    version: int = VERSION

    @property
    def folder(self) -> str:
        """Folder of the day within the lake."""
        return folder_of(self.cell, self.day)

    def content(self) -> bytes:
        """Return the manifest as it is stored."""
        values = asdict(self) | {"day": self.day.isoformat()}
        return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()

    def name(self) -> str:
        """Return the name of its file."""
        return f"manifest-{self.through_ts:012d}-{self.read_us:016d}-{digest(self.content())[:16]}.json"

    def same_day(self, other: Manifest | None) -> bool:
        """Return whether another manifest states the same rows, whenever they were read."""
        return other is not None and (self.through_ts, self.prices, self.files) == (
            other.through_ts,
            other.prices,
            other.files,
        )


def folder_of(cell: str, day: date) -> str:
    """Return the folder of one day of one cell."""
    return f"cell={cell}/day={day.isoformat()}"


def cell_of(where: StoreLocation) -> str:
    """Return the name of a database in a lake, where none is given: its host, or its server and database."""
    name = socket.gethostname() if where.url is None else f"{where.url.host or 'local'}-{where.url.database}"
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64].strip(".-_") or "cell"


def cell_name(text: str) -> str:
    """Return the name of a cell. Raises BadInput for one that is no part of a path."""
    if not CELL.fullmatch(text):
        raise BadInput(f"cell {text!a}: use 1 to 64 letters, digits, dots, hyphens and underscores")
    return text


def day_of(ts: int) -> date:
    """Return the day (UTC) of a time."""
    return datetime.fromtimestamp(ts, UTC).date()


def start_of(day: date) -> int:
    """Return the first second of a day (UTC)."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes as hexadecimal digits."""
    return sha256(content).hexdigest()


def manifest_names(names: Sequence[str]) -> list[str]:
    """Return those of some names that are of manifests, the current one first."""
    return sorted((name for name in names if _NAME.fullmatch(name)), reverse=True)


def parse(content: bytes, name: str, cell: str, day: date) -> Manifest:
    """Return the manifest in the file `name` of a cell's day. Raises ManifestFault."""
    matched = _NAME.fullmatch(name)
    if matched is None or len(content) > MAX_BYTES or digest(content)[:16] != matched[3]:
        raise ManifestFault("its manifest is damaged: its bytes do not fit its name")
    try:
        values = json.loads(content)
        version = values["version"]
        if version != VERSION:
            raise ManifestFault(f"its manifest has layout {version!a}; this pertoken reads layout {VERSION}")
        files = tuple(_day_file(file) for file in values["files"])
        manifest = Manifest(
            _text(values["cell"]),
            date.fromisoformat(values["day"]),
            _count(values["through_ts"]),
            _count(values["read_us"]),
            _text(values["prices"]),
            _count(values["rolled_up"]),
            files,
        )
    except ManifestFault:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ManifestFault("its manifest cannot be read") from None
    start = start_of(day)
    if (manifest.cell, manifest.day) != (cell, day) or not start < manifest.through_ts <= start + DAY:
        raise ManifestFault("its manifest is of another cell or day")
    if len({file.table for file in files}) != len(files):
        raise ManifestFault("its manifest names two files of one table")
    return manifest


def _day_file(values: Any) -> DayFile:
    file = DayFile(
        _text(values["table"]),
        _text(values["name"]),
        _count(values["rows"]),
        _count(values["n_bytes"]),
        _text(values["sha256"]),
    )
    if not _FILE.fullmatch(file.name) or not file.name.startswith(f"{file.table}-{file.sha256[:32]}"):
        raise ManifestFault("its manifest names a file that is none of a lake")
    return file


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ManifestFault("its manifest holds a number that is none")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ManifestFault("its manifest holds a text that is none")
    return value
