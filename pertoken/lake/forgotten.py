"""Names that were deleted from a lake, and stay out of it when their days are published again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from pertoken.errors import StoreError
from pertoken.lake.files import LakeFiles
from pertoken.lake.tables import ADVICE, COSTS, KINDS, OWNERS, SAVINGS, TOKENS

COLUMNS = ("namespace", "service", "model", "workload")
"""Columns whose names can be deleted, beside bases of owners (`label:NAME`, `job:user`)."""
HIDDEN = "(deleted)"
"""What stands in lines of the bill where a name was: the dollars stay, so that the bill still adds up."""
_LINES = (COSTS, TOKENS, KINDS)
_EPOCH = "owner_epoch_id"
_NAME_OF = {SAVINGS: "model", ADVICE: "target"}
"""Column that names the subject, of tables whose rows are deleted."""
Name = tuple[str, str]
"""Column or basis of owners, and hash of the name: the name itself is not kept."""


def name_of(column: str, text: str) -> Name:
    """Return the name in a column as it is kept."""
    return column, sha256(f"{column}\n{text}".encode()).hexdigest()


def read(lake: LakeFiles, cell: str) -> tuple[Name, ...]:
    """Return the names that were deleted from a cell. Raises StoreError."""
    path = _path(cell)
    if path not in {entry.path for entry in lake.files(f"cell={cell}")}:
        return ()
    try:
        names = tuple((str(column), str(checksum)) for column, checksum in json.loads(lake.read(path)))
    except (ValueError, TypeError):
        raise StoreError(f"{lake}/{path}: cannot be read: delete the names again") from None
    return names


def add(lake: LakeFiles, cell: str, name: Name) -> None:
    """Remember that a name was deleted from a cell. Raises StoreError."""
    lake.write(_path(cell), json.dumps(sorted({*read(lake, cell), name})).encode())


def hide(tables: Mapping[str, Any], names: Iterable[Name]) -> dict[str, Any] | None:
    """Return the tables of a day without some names; None where no line has one.

    A line keeps its dollars and tokens. Of a day that had a name, rows that are published as stored are left out,
    since their texts may hold it.
    """
    import pyarrow.compute as pc

    hidden = {table: tables[table] for table in (*_LINES, OWNERS, *_NAME_OF) if table in tables}
    found = False
    for name in names:
        epochs = _epochs(hidden, name)
        for table in (*_LINES, OWNERS):
            if table in hidden:
                matches = pc.is_in(hidden[table][_EPOCH], epochs)
                for column in ("owner",) if table == OWNERS else COLUMNS:
                    hidden[table] = _replaced(hidden[table], column, matches)
        for table, column in _NAME_OF.items():
            if table in hidden:
                hidden[table] = _without(hidden[table], column, name)
        found = found or len(epochs) > 0
    return hidden if found else None


def _epochs(tables: Mapping[str, Any], name: Name) -> Any:
    """Return the epochs that have a name in a column of their lines, or as their owner."""
    import pyarrow as pa
    import pyarrow.compute as pc

    epochs: set[int] = set()
    for table, rows in tables.items():
        if table == OWNERS:
            rows = rows.filter(pc.equal(rows["basis"], name[0]))
        column = "owner" if table == OWNERS else name[0]
        if table in (*_LINES, OWNERS) and column in rows.column_names:
            matches = _matches(rows, column, name)
            epochs |= set() if matches is None else set(rows.filter(matches)[_EPOCH].to_pylist())
    return pa.array(sorted(epochs - {None}), pa.int64())


def _matches(table: Any, column: str, name: Name) -> Any:
    """Return which rows have a name in a column; None if none has."""
    import pyarrow.compute as pc

    values = [text for text in pc.unique(table[column]).to_pylist() if text is not None]
    same = next((text for text in values if name_of(name[0], text) == name), None)
    return None if same is None else pc.fill_null(pc.equal(table[column], same), False)


def _replaced(table: Any, column: str, rows: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    replaced = pc.if_else(pc.and_(rows, pc.is_valid(table[column])), pa.scalar(HIDDEN), table[column])
    return table.set_column(table.column_names.index(column), table.schema.field(column), replaced)


def _without(table: Any, column: str, name: Name) -> Any:
    import pyarrow.compute as pc

    matches = _matches(table, column, name)
    return table if matches is None else table.filter(pc.invert(matches))


def _path(cell: str) -> str:
    return f"cell={cell}/forgotten.json"
