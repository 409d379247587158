"""A bill that a cloud exports in several files."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pertoken.costs.invoice.parquet import MAX_ROWS
from pertoken.costs.invoice.read import Invoice, read_invoice
from pertoken.errors import BadInput

IN_FOLDERS = (".parquet", ".csv", ".csv.gz")
"""Ends of the names of files that count in a folder; beside them exports keep manifests."""
MAX_FILES = 10_000


def read_bill(paths: Sequence[Path], file_read: Callable[[], None] = lambda: None) -> Invoice:
    """Return the lines of all files together; a folder stands for the CSV and Parquet files in it, at any depth.

    `file_read` is called after each file. Raises BadInput naming the file, the row and the column that
    is wrong; for files of different formats, for one that is there twice, and for more than `MAX_ROWS` lines.
    """
    files = _files(paths)
    seen: dict[str, Path] = {}
    parts: list[Invoice] = []
    for file in files:
        digest = _digest(file)
        if digest in seen:
            raise BadInput(f"{file}: the same as {seen[digest]}: its lines would count twice; pass one of them")
        seen[digest] = file
        part = read_invoice(file)
        if parts and part.format != parts[0].format:
            raise BadInput(f"{file}: is {part.format.title}, and {files[0]} is {parts[0].format.title}: pass one bill")
        parts.append(part)
        if sum(len(invoice.lines) for invoice in parts) > MAX_ROWS:
            raise BadInput(f"{file}: with it more than {MAX_ROWS:,} lines: export one month, or instances alone")
        file_read()
    return Invoice(
        parts[0].format,
        tuple(line for part in parts for line in part.lines),
        sum(part.unreadable for part in parts),
        next((part.first_unreadable for part in parts if part.unreadable), ""),
        sum(part.split for part in parts),
    )


def _files(paths: Iterable[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(file for file in path.rglob("*") if file.name.endswith(IN_FOLDERS) and file.is_file())
        except OSError as error:
            raise BadInput(f"{path}: cannot be read: {error}") from None
        if not inside:
            raise BadInput(f"{path}: holds no file that ends in {', '.join(IN_FOLDERS)}")
        files += inside
    if len(files) > MAX_FILES:
        raise BadInput(f"{len(files):,} files: more than {MAX_FILES:,} are not read as one bill; pass one month")
    return files


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error}") from None
