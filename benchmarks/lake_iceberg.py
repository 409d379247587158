"""`python -m benchmarks.lake_iceberg`: the same days published as a folder of manifests, and as Apache Iceberg tables.

Needs `pip install 'pyiceberg[sql-sqlite,pyarrow]'`, which pertoken does not depend on. Some cells publish a day each,
one cell publishes its day again with other rows, and dollars by model are asked. Iceberg's catalog is a SQLite file.
DuckDB reads Iceberg by an extension that it downloads, so the rows are read by pyiceberg and asked by DuckDB.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lake import FIRST, US, day_tables
from benchmarks.report import Row, report
from pertoken.lake import questions
from pertoken.lake.manifest import LakeFiles, Manifest, start_of
from pertoken.lake.publish import write_day
from pertoken.lake.questions import LakeSession
from pertoken.lake.reading import Range
from pertoken.window.reading import DAY

ICEBERG = "pyiceberg"
Tables = Mapping[str, Any]
Cells = Mapping[str, Tables]


def manifests(folder: Path, days: Sequence[Cells], again: Tables) -> Iterator[Row]:
    """Yield figures of a folder of manifests."""
    lake, read_us = LakeFiles(str(folder)), 0

    def publish(cell: str, number: int, tables: Tables) -> None:
        nonlocal read_us
        read_us += 1
        day = FIRST + timedelta(number)
        write_day(lake, Manifest(cell, day, start_of(day) + DAY, read_us, "", 0, ()), tables, ())

    def ask() -> int:
        start = start_of(FIRST)
        with LakeSession(str(folder), Range(start, start + len(days) * DAY), "duckdb") as session:
            return sum(int(row["nano_usd"] or 0) for row in session.rows(lambda t: questions.dollars(t, ["model"])))

    yield from measured(US, folder, days, again, publish, ask)


def iceberg(folder: Path, days: Sequence[Cells], again: Tables) -> Iterator[Row]:
    """Yield figures of Iceberg tables whose catalog is a SQLite file."""
    import duckdb
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.expressions import And, EqualTo
    from pyiceberg.transforms import IdentityTransform

    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("lake")
    made: dict[str, Any] = {}

    def publish(cell: str, number: int, tables: Tables) -> None:
        day = (FIRST + timedelta(number)).isoformat()
        for name, table in tables.items():
            rows = table.append_column("cell", pa.array([cell] * len(table)))
            rows = rows.append_column("day", pa.array([day] * len(table)))
            rows = rows.cast(pa.schema([f.with_type(pa.int32()) if f.type == pa.int8() else f for f in rows.schema]))
            if name not in made:
                made[name] = catalog.create_table(f"lake.{name}", rows.schema)
                with made[name].update_spec() as spec:
                    spec.add_field("cell", IdentityTransform(), "cell_partition")
                    spec.add_field("day", IdentityTransform(), "day_partition")
            made[name].overwrite(rows, And(EqualTo("cell", cell), EqualTo("day", day)))

    def ask() -> int:
        costs = catalog.load_table("lake.costs").scan(selected_fields=("model", "nano_usd")).to_arrow()
        connection = duckdb.connect()
        connection.register("costs", costs)
        rows = connection.execute("SELECT model, sum(nano_usd::decimal(38, 0)) FROM costs GROUP BY model").fetchall()
        return int(sum(row[1] for row in rows))

    yield from measured(ICEBERG, folder, days, again, publish, ask)


def measured(
    subject: str,
    folder: Path,
    days: Sequence[Cells],
    again: Tables,
    publish: Callable[[str, int, Tables], None],
    ask: Callable[[], int],
) -> Iterator[Row]:
    """Yield the seconds of publishing, of publishing one day again, and of a question; bytes and files on the disk."""
    n_published = sum(map(len, days))
    began = time.perf_counter()
    for number, cells in enumerate(days):
        for cell, tables in cells.items():
            publish(cell, number, tables)
    yield Row(subject, "publish_seconds_per_day_of_a_cell", (time.perf_counter() - began) / n_published, "s", "")
    files = [file for file in folder.rglob("*") if file.is_file()]
    yield Row(subject, "files_per_day_of_a_cell", len(files) / n_published, "files", "")
    yield Row(subject, "bytes_per_day_of_a_cell", sum(file.stat().st_size for file in files) / n_published, "B", "")
    began = time.perf_counter()
    publish(next(iter(days[0])), 0, again)
    yield Row(subject, "publish_again_seconds", time.perf_counter() - began, "s", "one day of one cell")
    ask()
    began = time.perf_counter()
    total = ask()
    yield Row(subject, "dollars_by_model_seconds", time.perf_counter() - began, "s", f"sum {total} nano-dollars")


def main() -> None:
    """Print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=20)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--gpus", type=int, default=100, help="of a cell")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    random = np.random.default_rng(7)
    days = [{f"cell-{n}": day_tables(options.gpus, random) for n in range(options.cells)} for _ in range(options.days)]
    again = day_tables(options.gpus, random)
    rows: list[Row] = []
    for subject in (manifests, iceberg):
        with tempfile.TemporaryDirectory() as folder:
            rows += subject(Path(folder), days, again)
    answers = {row.method for row in rows if row.what == "dollars_by_model_seconds"}
    if len(answers) != 1:
        sys.exit(f"other answers: {json.dumps(sorted(answers))}")
    printed = report("lake_iceberg", rows, [])
    print(printed)
    if options.out:
        options.out.write_text(printed + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
