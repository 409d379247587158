"""Files that hold rows of one table: CSV, and Parquet where pyarrow is installed.

In CSV a NULL is ``\\N``, as PostgreSQL writes it; text that begins with a backslash begins with two; text that would
act on a terminal is ``\\E`` and the text with Python's escapes (``\\Ered\\x1b[31m``). A Parquet file names its table
and the schema it is of.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TextIO

from sqlalchemy import Boolean, ColumnElement, Text, and_, func, select, tuple_

from pertoken.errors import BadInput, StoreError
from pertoken.installed import install_command
from pertoken.printable import acts, short
from pertoken.store.connect.open import REVISIONS, Store
from pertoken.store.integrity.checksums import CHECKSUMMED
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.shared import Value, Values
from pertoken.store.write.writer import Writer

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

SLICE_ROWS = 5000
TABLES = tuple(sorted(CHECKSUMMED.keys() - {t.outbox.name, t.spool.name}))
"""Tables that can be exported: all but those about the file itself (batches, checksums, what is to be shipped)."""


@dataclass(frozen=True, slots=True)
class ExportRange:
    """Rows with start <= ts < end (Unix seconds); None: open."""

    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class FileColumn:
    """One column as it is written to a file: `kind` is `int`, `text` or `bool`."""

    name: str
    kind: str
    required: bool


def columns(table: str) -> tuple[FileColumn, ...]:
    """Return columns of a table in their order. Raises BadInput for a name that is none."""
    if table not in TABLES:
        raise BadInput(f"{table!r} is not a table that can be exported: there are {', '.join(TABLES)}")
    result = []
    for column in CHECKSUMMED[table].table.columns:
        kind = "bool" if isinstance(column.type, Boolean) else "text" if isinstance(column.type, Text) else "int"
        result.append(FileColumn(column.name, kind, not column.nullable))
    return tuple(result)


def count(store: Store, table: str, window: ExportRange) -> int:
    """Return how many rows a window holds."""
    with store.read() as connection:
        query = select(func.count()).select_from(CHECKSUMMED[table].table).where(*_inside(table, window))
        return int(connection.execute(query).scalar_one())


def slices(store: Store, table: str, window: ExportRange) -> Iterator[list[Values]]:
    """Yield rows of a window in the order of the key, each slice a short read of its own.

    Raises StoreError if it cannot be read, BadInput for a window over a table without time.
    """
    source = CHECKSUMMED[table].table
    keys = list(source.primary_key)
    key_positions = [list(source.columns).index(key) for key in keys]
    last: Values | None = None
    while True:
        behind = [] if last is None else [tuple_(*keys) > tuple_(*last)]
        query = select(source).where(and_(True, *_inside(table, window), *behind)).order_by(*keys).limit(SLICE_ROWS)
        with store.read() as connection:
            rows = [tuple(row) for row in connection.execute(query)]
        if rows:
            yield rows
        if len(rows) < SLICE_ROWS:
            return
        last = tuple(rows[-1][position] for position in key_positions)


def put(writer: Writer, table: str, rows: Sequence[Values]) -> int:
    """Store rows as they are; those that are there already with the same values stay. Returns how many were new.

    Raises StoreError, with none of them stored, if a row is there with other values.
    """
    try:
        return writer.restore(CHECKSUMMED[table], [tuple(map(_stored, row)) for row in rows])
    except ValueError as error:
        raise StoreError(f"{writer.location}: {table}: {error}") from None


def _stored(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


def _inside(table: str, window: ExportRange) -> list[ColumnElement[bool]]:
    if window == ExportRange():
        return []
    ts = CHECKSUMMED[table].table.c.get("ts")
    if ts is None or table in (t.counter_state.name, t.dirty.name, t.quarantine.name):
        raise BadInput(f"{table} has no time to choose by: leave --from and --to out")
    return [*([] if window.start is None else [ts >= window.start]), *([] if window.end is None else [ts < window.end])]


FORMATS = ("parquet", "csv")
_NULL = "\\N"
_ESCAPED = "\\E"
Rows = Sequence[Values]
Put = Callable[[Rows], None]


@contextmanager
def csv_out(file: TextIO, table: str) -> Iterator[Put]:
    """What writes slices of a table to a text file, which begins with the names of its columns."""
    # Text is always quoted: a lone carriage return would else end a line when it is read.
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([column.name for column in columns(table)])
    yield lambda rows: writer.writerows([_text(value) for value in row] for row in rows)


def parquet_out(file: Path, table: str) -> AbstractContextManager[Put]:
    """Return what writes slices of a table to a Parquet file. Raises StoreError where pyarrow is missing."""
    pyarrow, parquet = _pyarrow()
    types = {"int": pyarrow.int64(), "text": pyarrow.string(), "bool": pyarrow.bool_()}
    table_columns = columns(table)
    schema = pyarrow.schema(
        [pyarrow.field(column.name, types[column.kind], nullable=not column.required) for column in table_columns],
        metadata={"pertoken.table": table, "pertoken.schema": REVISIONS["telemetry"][-1]},
    )

    @contextmanager
    def opened() -> Iterator[Put]:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:

            def put(rows: Rows) -> None:
                arrays = [
                    pyarrow.array([row[i] for row in rows], type=types[column.kind])
                    for i, column in enumerate(table_columns)
                ]
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))

            yield put

    return opened()


def csv_in(file: Path, table: str | None) -> tuple[str, int | None, Iterator[Rows]]:
    """Return (table, rows if known, slices) of a CSV file. Raises BadInput for one that cannot hold that table."""
    if table is None:
        raise BadInput(f"{file}: a CSV file does not name its table: name it with --table")
    return table, None, _csv_slices(file, table)


def parquet_in(file: Path, table: str | None) -> tuple[str, int | None, Iterator[Rows]]:
    """Return (table, rows if known, slices) of a Parquet file; `table` wins over the one it names. Raises BadInput."""
    pyarrow, parquet = _pyarrow()
    try:
        source = parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, OverflowError, ValueError) as error:
        raise BadInput(f"{file}: not a Parquet file: {short(str(error).partition(chr(10))[0])}") from None
    named = (source.schema_arrow.metadata or {}).get(b"pertoken.table", b"").decode(errors="replace")
    table = table or named
    if not table:
        raise BadInput(f"{file}: does not name its table: name it with --table")
    found_columns = columns(table)
    order = _order(file, source.schema_arrow.names, found_columns)
    is_int, is_bool, is_text = (
        pyarrow.types.is_signed_integer,
        pyarrow.types.is_boolean,
        lambda kind: pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind),
    )
    right = {"int": is_int, "text": is_text, "bool": is_bool}
    doubted = {
        column.name
        for column, name in zip(found_columns, order, strict=True)
        if name and not right[column.kind](source.schema_arrow.field(name).type)
    }

    def batches() -> Iterator[Rows]:
        for lists in _batches(file, source):
            for column in found_columns:
                if column.name in doubted:
                    lists[column.name] = [_typed(file, value, column) for value in lists[column.name]]
            n = len(next(iter(lists.values()), []))
            yield list(zip(*(lists[name] if name else [None] * n for name in order), strict=True))

    return table, source.metadata.num_rows, batches()


def _batches(file: Path, source: ParquetFile) -> Iterator[dict[str, list[Value]]]:
    """Yield slices of a Parquet file as lists by column. Raises BadInput where a part of it is broken."""
    pyarrow, _ = _pyarrow()
    try:
        for batch in source.iter_batches(batch_size=SLICE_ROWS):
            yield batch.to_pydict()
    except (pyarrow.ArrowException, OSError, OverflowError, ValueError) as error:
        raise BadInput(f"{file}: a part of it is broken: {short(str(error).partition(chr(10))[0])}") from None


def _csv_slices(file: Path, table: str) -> Iterator[Rows]:
    table_columns = columns(table)
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            reader = csv.reader(opened, strict=True)
            names = next(reader, [])
            order = _order(file, names, table_columns)
            positions = [names.index(name) if name else None for name in order]
            while lines := list(islice(reader, SLICE_ROWS)):
                rows = []
                for line in lines:
                    if len(line) != len(names):
                        raise BadInput(f"{file}: line {reader.line_num}: {len(line)} values for {len(names)} columns")
                    rows.append(
                        tuple(
                            None if i is None else _value(file, line[i], column)
                            for i, column in zip(positions, table_columns, strict=True)
                        )
                    )
                yield rows
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{file}: cannot be read as CSV: {error}") from None


def _order(file: Path, names: Sequence[str], table_columns: Sequence[FileColumn]) -> list[str | None]:
    """Return name of each column in the file; None for one the file is too old to have."""
    unknown = [name for name in names if name not in {column.name for column in table_columns}]
    if unknown:
        raise BadInput(f"{file}: {short(repr(unknown[0]))} is not a column of that table")
    missing = [column.name for column in table_columns if column.required and column.name not in names]
    if missing:
        raise BadInput(f"{file}: has no column {missing[0]!r}")
    return [column.name if column.name in names else None for column in table_columns]


def _text(value: Value) -> int | str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and any(map(acts, value)):
        return _ESCAPED + value.encode("unicode_escape").decode()
    return f"\\{value}" if isinstance(value, str) and value.startswith("\\") else value


def _value(file: Path, text: str, column: FileColumn) -> Value:
    if text == _NULL:
        return None
    if column.kind == "text":
        if text.startswith(_ESCAPED):
            return _unescaped(file, text, column)
        return text.removeprefix("\\")
    try:
        return _integer(text)
    except ValueError:
        raise BadInput(f"{file}: {short(repr(text))} is not a value of {column.name}") from None


def _integer(value: str | float) -> int:
    """Return a number that has 64 bits and no fraction. Raises ValueError for another value."""
    number = int(value)
    if number != (number if isinstance(value, str) else value) or not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _typed(file: Path, value: object, column: FileColumn) -> Value:
    """Return a value of a Parquet column of another type, if it is one of this column."""
    if value is None or (column.kind == "text" and isinstance(value, str)):
        return value
    if column.kind != "text" and isinstance(value, int | float):
        with suppress(ValueError, OverflowError):
            return _integer(value)
    raise BadInput(f"{file}: {value!r} is not a value of {column.name}")


def _unescaped(file: Path, text: str, column: FileColumn) -> str:
    try:
        return text.removeprefix(_ESCAPED).encode("ascii").decode("unicode_escape")
    except UnicodeError:
        raise BadInput(f"{file}: {text!a} is not a value of {column.name}") from None


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise StoreError(f"Parquet needs pyarrow: {install_command('parquet')}; or use csv") from None
    return pyarrow, pyarrow.parquet
