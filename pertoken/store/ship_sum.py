"""A number for each row that its host and the server both make of its values: the first 60 bits of their SHA-256.

What was sent is compared with what was stored, row by row as a batch goes, and by sums long after.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

from sqlalchemy import Boolean, Table

from pertoken.store.ship_read import Row

Sum = tuple[int, int]
"""(rows, sum of their numbers)"""


def number(row: Row) -> int:
    """The number of a row as SQLite gives it."""
    text = ",".join(["~" if value is None else str(value) for value in row])
    return int.from_bytes(sha256(text.replace("\0", "").encode()).digest()[:8]) >> 4


def checksum(rows: Sequence[Row]) -> Sum:
    """Count and checksum of rows: the order of rows does not matter."""
    return len(rows), sum(map(number, rows))


@cache
def number_sql(table: Table) -> str:
    """The same of a row of PostgreSQL's."""
    values = ", ".join(
        f"coalesce({table.name}.\"{column.name}\"{'::int' if isinstance(column.type, Boolean) else ''}::text, '~')"
        for column in table.columns
    )
    text = f"concat_ws(',', {values})"
    return f"('x' || left(encode(sha256(convert_to({text}, 'UTF8')), 'hex'), 15))::bit(60)::bigint"
