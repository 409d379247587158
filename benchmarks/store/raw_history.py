"""A host with a day of ticks, and with thirty: what its screens ask takes the same."""

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from benchmarks.report import Row
from pertoken.costs.hours import hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.migrations import upgrade
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from pertoken.store.schema import telemetry as t
from pertoken.store.write.rollup import ROLLUPS

DAY = 86_400
TICKS = (*(rollup.samples.name for rollup in ROLLUPS), t.agent_sample.name)


def copied(source: Path, folder: Path, days: int) -> Path:
    """Return a copy of a database with the ticks of its newest day repeated over `days` days."""
    where = locate(str(folder))
    upgrade(where, "advice")
    with (
        closing(sqlite3.connect(source)) as before,
        closing(sqlite3.connect(where.file("telemetry"), isolation_level=None)) as target,
    ):
        before.backup(target)
        for table in TICKS:
            names = [row[1] for row in target.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(f"ts - {DAY} * n" if name == "ts" else name for name in names)
            target.execute(
                f"WITH RECURSIVE day(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM day WHERE n < {days - 1}) "
                f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}, day WHERE {days} > 1"
            )
    return folder


def growth(source: Path, folder: Path, what: str, end: int, repeats: int) -> list[Row]:
    """Of each question: how much longer it takes with thirty days of ticks than with one, asked in turns."""
    stores = [open_store(locate(str(copied(source, folder / f"{days}d", days)))) for days in (1, 30)]
    asked: dict[str, Callable[[int], object]] = {
        "fleet screen over 1 h": lambda i: fleet_report(stores[i], 3600, end).whole(),
        "fleet screen over 24 h": lambda i: fleet_report(stores[i], DAY, end).whole(),
        "hours screen": lambda i: hourly(stores[i], 24, end),
    }
    rows = []
    for question, ask in asked.items():
        took: tuple[list[float], list[float]] = [], []
        for n in range(2 * (repeats + 1)):
            began = time.perf_counter()
            ask(n % 2)
            took[n % 2].append(time.perf_counter() - began)
        ratio = statistics.median(took[1][1:]) / statistics.median(took[0][1:])
        how = f"{what}: 30 days of ticks over 1 day, medians of {repeats} interleaved pairs"
        rows.append(Row("pertoken", f"{question}, growth with ticks", round(ratio, 2), "", how))
    return rows
