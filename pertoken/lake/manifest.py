"""Manifest of one day of one cell: which files are the day, with their rows and checksums.

Nothing is overwritten. A file is named by the hash of its content, and a manifest by how far it reaches, when its rows
were read, and its own hash: the manifest with the greatest name is the day, whichever of two publishers wrote last.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from pertoken.errors import BadInput, StoreError
from pertoken.printable import short
from pertoken.store.connect.location import StoreLocation
from pertoken.window.reading import DAY

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem
    from pyarrow import NativeFile
    from pyarrow.fs import FileInfo, FileSystem

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

    def same_day(self, another_manifest: Manifest | None) -> bool:
        """Return whether another manifest states the same rows, whenever they were read."""
        return another_manifest is not None and (self.through_ts, self.prices, self.files) == (
            another_manifest.through_ts,
            another_manifest.prices,
            another_manifest.files,
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


def _day_file(values: Mapping[str, object]) -> DayFile:
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


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise ManifestFault("its manifest holds a number that is none")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise ManifestFault("its manifest holds a text that is none")
    return value


SCHEMES = ("file", "s3")
DRAFT = "."
"""What the name of a file begins with until it is written as a whole."""
BUCKET = "pertoken"
"""Scheme by which DuckDB asks for files of a bucket: for `s3` it would download an extension."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One file: its path within the lake, and its size."""

    path: str
    n_bytes: int

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]


class LakeFiles:
    """Files below one URL. Paths are relative to it, with `/` between their parts."""

    def __init__(self, url: str) -> None:
        """Raise BadInput for a URL that is none of a folder or of a bucket, StoreError where pyarrow is missing."""
        scheme, rest = _parts(url)
        self.url, self.scheme = f"{scheme}://{rest}", scheme
        self._filesystem = _filesystem(scheme)
        self.root = rest

    def __str__(self) -> str:
        return self.url

    def full_path(self, path: str, scheme: str = "s3a") -> str:
        """Return a path as engines open it: absolute on a disk, else a URL of `scheme` (of Hadoop's by default)."""
        return f"{self.root}/{path}" if self.scheme == "file" else f"{scheme}://{self.root}/{path}"

    def folders(self, path: str = "") -> list[str]:
        """Return the names of the folders in a folder, sorted; none where it does not exist. Raises StoreError."""
        return sorted(entry.base_name for entry in self._listing(path) if not entry.is_file)

    def files(self, path: str) -> list[LakeFile]:
        """Return the files in a folder, sorted by name; none where it does not exist. Raises StoreError."""
        return [entry for entry, _ in self._entries(path) if not entry.name.startswith(DRAFT)]

    def drafts(self, path: str, before_us: int) -> list[LakeFile]:
        """Return files in a folder that a writer began before a time and never completed. Raises StoreError."""
        return [entry for entry, us in self._entries(path) if entry.name.startswith(DRAFT) and us < before_us]

    def _entries(self, path: str) -> list[tuple[LakeFile, int]]:
        """Return the files in a folder with the time of their last write, microseconds since 1970."""
        files = (entry for entry in self._listing(path) if entry.is_file)
        entries = [(LakeFile(f"{path}/{file.base_name}", file.size), (file.mtime_ns or 0) // 1000) for file in files]
        return sorted(entries, key=lambda pair: pair[0].path)

    def _listing(self, path: str) -> list[FileInfo]:
        from pyarrow.fs import FileSelector

        with self._failing("listed", path):
            selector = FileSelector(self._full(path), allow_not_found=True)
            listing: list[FileInfo] = self._filesystem.get_file_info(selector)
            return listing

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises StoreError."""
        with self._failing("read", path), self._filesystem.open_input_stream(self._full(path)) as file:
            content: bytes = file.read()
            return content

    def opened(self, path: str) -> NativeFile:
        """Return a file for random access. Raises StoreError."""
        with self._failing("read", path):
            return self._filesystem.open_input_file(self._full(path))

    def write(self, path: str, content: bytes) -> None:
        """Store a whole file: after a crash the old one, the new one or none is there. Raises StoreError."""
        with self._failing("written", path):
            if self.scheme == "file":
                _write_durably(Path(self._full(path)), content)
                return
            with self._filesystem.open_output_stream(self._full(path)) as file:
                file.write(content)

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is no error. Raises StoreError."""
        with self._failing("deleted", path):
            try:
                self._filesystem.delete_file(self._full(path))
            except FileNotFoundError:
                return

    def for_duckdb(self) -> AbstractFileSystem | None:
        """Return the bucket for DuckDB, as an fsspec file system; None for a folder, which it opens itself."""
        if self.scheme == "file":
            return None
        from fsspec.implementations.arrow import ArrowFSWrapper

        class Bucket(ArrowFSWrapper):  # type: ignore[misc] # fsspec has no types
            protocol = BUCKET

            @classmethod
            def _strip_protocol(cls, path: str) -> str:
                return path.removeprefix(f"{BUCKET}://")

        return Bucket(self._filesystem)

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @contextmanager
    def _failing(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            reason = short(str(error).partition("\n")[0])
            raise StoreError(f"{self.url}/{path}: cannot be {what}: {reason}") from None


def _parts(url: str) -> tuple[str, str]:
    """Return the scheme of a URL, and its folder or bucket with prefix. Raises BadInput."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        try:
            return "file", str(Path(url).expanduser().absolute())
        except RuntimeError:
            raise BadInput(f"{short(url)}: there is no such user; write the folder out") from None
    if scheme not in SCHEMES:
        raise BadInput(f"{short(url)}: a lake is a folder, file:///FOLDER or s3://BUCKET/PREFIX")
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise BadInput(
            f"{scheme}://…: a lake's URL holds no credentials and no options: they come from the environment "
            "(AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL, AWS_REGION) or from the machine's role"
        )
    if scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise BadInput(f"{short(url)}: write the folder as file:///FOLDER")
        return scheme, parts.path.rstrip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise BadInput(f"{short(url)}: {short(repr(parts.netloc))} is no name of a bucket")
    return scheme, f"{parts.netloc}{parts.path}".rstrip("/")


def _filesystem(scheme: str) -> FileSystem:
    try:
        from pyarrow import fs
    except ModuleNotFoundError:
        raise StoreError("a lake needs pyarrow and Ibis: install pertoken with its extra `lake`") from None
    if scheme == "file":
        return fs.LocalFileSystem()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, str] = {}
    if endpoint:
        parts = urlsplit(endpoint)
        options = {"endpoint_override": parts.netloc, "scheme": parts.scheme or "https"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"
    return fs.S3FileSystem(**options, connect_timeout=10, request_timeout=60)


def _write_durably(file: Path, content: bytes) -> None:
    """Write a file beside its place, then rename it: both reach the disk in this order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{DRAFT}{file.name}.{uuid4().hex}")
    try:
        with draft.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
