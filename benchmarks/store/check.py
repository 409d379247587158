"""One check of everything stored at default retention: `python -m benchmarks.store_check [--days 30] [--out FILE]`.

A generated hour of a host goes through the writer the agent uses and is copied, an hour earlier each, until ticks reach
back 48 hours and roll-ups `--days`. Then all of it is read once and held against its seals, as the agent does each hour
(and `pertoken db check` at once), and once more with a bit flipped in the oldest and the newest minute.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

from benchmarks.report import Row, Target, report
from benchmarks.store.embedded import ingest, new_store
from benchmarks.store.serving_day import Day
from pertoken.agent.upkeep import PASS_S, PAUSE_S
from pertoken.store.connect.location import StoreLocation
from pertoken.store.integrity.checksums import HOUR, ROLLED, SAMPLES, high_water_mark_file
from pertoken.store.integrity.verify import steps, verify
from pertoken.store.schema import telemetry as t
from pertoken.store.write.writer import Writer

RAW_HOURS = 48
LIMIT_S = 600.0


def kept(where: StoreLocation, day: Day, days: int) -> int:
    """Copy the hour in `where` back in time; returns the rows there then are."""
    ingest(where, day)
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -262144")
        for checksummed_table in (*SAMPLES, *ROLLED):
            table, ticks = checksummed_table.table, checksummed_table in SAMPLES
            others = ", ".join(column.name for column in table.columns if column.name != "ts")
            connection.executemany(
                f"INSERT INTO {table.name} (ts, {others}) SELECT ts - ?, {others} FROM {table.name} WHERE ts > ?",
                # Ticks are named by their end, buckets by their start.
                [(HOUR * n, day.start_ts - (not ticks)) for n in range((RAW_HOURS if ticks else 24 * days) - 1, 0, -1)],
            )
        # As a database of an older schema, it is sealed as it is found.
        for table in (t.batch, t.seal):
            connection.execute(f"DELETE FROM {table.name}")
        connection.commit()
    high_water_mark_file(where.file("telemetry")).unlink()
    with Writer(where):
        pass
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        return int(connection.execute("SELECT sum(row_count) FROM seal").fetchone()[0])


def checked(where: StoreLocation) -> tuple[list[float], list[str]]:
    """(seconds of each step, faults) of one pass without pauses."""
    took, faults = [], []
    began = time.perf_counter()
    for fault in verify(where):
        took.append(time.perf_counter() - began)
        if fault is not None:
            faults.append(str(fault))
        began = time.perf_counter()
    return took, faults


def measure(folder: Path, gpus: int, days: int) -> tuple[list[Row], float | None]:
    day = Day(gpus, 1, int(time.time()) // HOUR * HOUR)
    where = new_store(folder)
    rows = kept(where, day, days)
    cpu_s = time.process_time()
    took, faults = checked(where)
    cpu_s = time.process_time() - cpu_s
    with closing(sqlite3.connect(where.file("telemetry"))) as connection:
        for newest in ("min", "max"):
            of = f"(SELECT {newest}(ts) FROM device_1m)"
            connection.execute(f"UPDATE device_1m SET power_mw_sum = power_mw_sum + 1 WHERE ts = {of}")
        connection.commit()
    _, damaged = checked(where)
    two = "with the oldest and the newest minute changed"
    method = f"{gpus} GPUs: 48 h of ticks, {days} d of roll-ups"
    # The agent begins each step when its part of the time has passed; late steps follow at once.
    whole_s = max(min(PASS_S, PAUSE_S * len(took)), sum(took)) + max(took)
    return [
        Row("pertoken", "rows", float(rows), "rows", method),
        Row("pertoken", "file", float(where.file("telemetry").stat().st_size), "bytes", method),
        Row("pertoken", "steps", float(len(took)), "steps", f"of one pass; {steps(where)} estimated"),
        Row("pertoken", "pass", sum(took), "s", "without pauses, wall time"),
        Row("pertoken", "pass_cpu", cpu_s, "s", "without pauses, CPU time"),
        Row("pertoken", "step", statistics.median(took) * 1000, "ms", "median: one short read"),
        Row("pertoken", "step_longest", max(took) * 1000, "ms", "pages of the largest table"),
        Row("pertoken", "faults", float(len(faults)), "faults", "of the database as it was stored"),
        Row("pertoken", "faults_of_two", float(len(damaged)), "faults", two),
        Row("pertoken", "pass_beside_ticks", whole_s, "s", f"as the agent spreads it, over {PASS_S:.0f} s at most"),
    ], whole_s if not faults and len(damaged) == 2 else None


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, whole_s = measure(Path(folder), options.gpus, options.days)
    text = report("store_check", rows, [Target("store.check_s", whole_s, LIMIT_S, "<=")])
    if options.out:
        options.out.write_text(f"{text}\n")
    print(text)
