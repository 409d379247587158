"""Files of a lake: a folder, or a prefix of an S3 bucket. A file is written as a whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pertoken.errors import BadInput, StoreError
from pertoken.printable import short

SCHEMES = ("file", "s3")
DRAFT = "."
"""What the name of a file begins with until it is written as a whole."""
BUCKET = "pertoken"
"""Scheme by which DuckDB asks for files of a bucket: for `s3` it would download an extension."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class Entry:
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

    def files(self, path: str) -> list[Entry]:
        """Return the files in a folder, sorted by name; none where it does not exist. Raises StoreError."""
        return [entry for entry, _ in self._entries(path) if not entry.name.startswith(DRAFT)]

    def drafts(self, path: str, before_us: int) -> list[Entry]:
        """Return files in a folder that a writer began before a time and never completed. Raises StoreError."""
        return [entry for entry, us in self._entries(path) if entry.name.startswith(DRAFT) and us < before_us]

    def _entries(self, path: str) -> list[tuple[Entry, int]]:
        """Return the files in a folder with the time of their last write, microseconds since 1970."""
        files = (entry for entry in self._listing(path) if entry.is_file)
        entries = [(Entry(f"{path}/{file.base_name}", file.size), (file.mtime_ns or 0) // 1000) for file in files]
        return sorted(entries, key=lambda pair: pair[0].path)

    def _listing(self, path: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        with self._failing("listed", path):
            selector = FileSelector(self._full(path), allow_not_found=True)
            listing: list[Any] = self._filesystem.get_file_info(selector)
            return listing

    def read(self, path: str) -> bytes:
        """Return a whole file. Raises StoreError."""
        with self._failing("read", path), self._filesystem.open_input_stream(self._full(path)) as file:
            content: bytes = file.read()
            return content

    def opened(self, path: str) -> Any:
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

    def for_duckdb(self) -> Any:
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


def _filesystem(scheme: str) -> Any:
    try:
        from pyarrow import fs
    except ModuleNotFoundError:
        raise StoreError("a lake needs pyarrow and Ibis: install pertoken with its extra `lake`") from None
    if scheme == "file":
        return fs.LocalFileSystem()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {}
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
