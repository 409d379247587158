"""PostgreSQL beside a lake: the rows of its files in tables, asked the same Ibis expressions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

from pertoken.lake import questions
from pertoken.lake.reading import COSTS, OWNERS, TOKENS, Range, schema
from tests.postgres import durable_server_url

HOURLY = (COSTS, TOKENS)
TABLES = (*HOURLY, OWNERS)
_TYPES = {"bool": "boolean", "string": 'text COLLATE "C"', "int8": "smallint", "int64": "bigint"}


@contextmanager
def filled(data: Path, lake: Path) -> Iterator[str]:
    """Start a server with its default settings, copy the lake's rows into it, index them by day; yield its URL."""
    import duckdb
    import psycopg

    with (
        durable_server_url(data / "data") as url,
        psycopg.connect(url, autocommit=True) as connection,
        duckdb.connect() as files,
    ):
        for table in TABLES:
            columns = {field.name: _TYPES[str(field.type)] for field in schema(table)}
            columns |= {"cell": _TYPES["string"], "day": _TYPES["string"]}
            connection.execute(
                f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())})"
            )
            for day in sorted(_days(lake, table)):
                rows = files.sql(
                    f"SELECT {', '.join(columns)} FROM read_parquet('{lake}/cell=*/{day}/{table}-*.parquet', "
                    "hive_partitioning = true, hive_types_autocast = false)"
                ).to_arrow_table()
                with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
                    copy.write(_csv(rows))
            connection.execute(f"CREATE INDEX ON {table} (day)")
        connection.execute("VACUUM ANALYZE")
        yield url


def connect(url: str) -> Any:
    """Return an Ibis connection."""
    import ibis

    return ibis.connect(url)


def rows(connection: Any, question: Callable[[Any], Any], asked: Range) -> list[dict[str, Any]]:
    """Return the rows that answer a question of the lake, whole decimals as int."""
    tables = {name: connection.table(name) for name in TABLES}
    tables |= {name: questions.with_owners(questions.within(tables[name], asked)) for name in HOURLY}
    answer = connection.to_pyarrow(question(tables)).to_pylist()
    return [{name: int(v) if isinstance(v, Decimal) else v for name, v in row.items()} for row in answer]


def _days(lake: Path, table: str) -> set[str]:
    return {path.parent.name for path in lake.glob(f"cell=*/day=*/{table}-*.parquet")}


def _csv(table: Any) -> bytes:
    from pyarrow import csv

    content = BytesIO()
    csv.write_csv(table, content, csv.WriteOptions(include_header=False))
    return content.getvalue()
