"""The store: embedded, beside Prometheus on one generated day; and a fleet's, see `benchmarks.store.fleet` and
`benchmarks.store.fleet_10k`.

`python -m benchmarks.store [--short] [--out FILE]`; `--short` is a small day and a small fleet, to see that it runs.

64 GPUs that serve, 24 hours at 10 s, counters that restart included. The day goes tick by tick through the writer the
agent uses (a FULL transaction each, roll-ups every minute), and one sample per series and request into a real
Prometheus where the Debian package is installed. Then both are asked what a million tokens cost, by model and hour.
"""

import argparse
import gc
import sqlite3
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Target, report
from benchmarks.store import fleet as store_fleet
from benchmarks.store import fleet_10k, prometheus
from benchmarks.store.raw_history import growth
from benchmarks.store.serving_day import COUNTERS, GPUS_EACH, INTERVAL_S, MODELS, Day, Values
from pertoken.costs.hours import hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.migrations import upgrade
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation, locate
from pertoken.store.connect.open import Store, open_store
from pertoken.store.repository import AdviceRepository
from pertoken.store.schema.telemetry import STORED_SAMPLES
from pertoken.store.write.writer import Writer

US, THEM, BARE = "pertoken", "prometheus", "bare sqlite3"
NANO_USD_PER_HOUR = 2_500_000_000
HISTORY_DAYS = 30
TURNS, IN_A_TURN = 3, 25
"""Of our answers: they take about as long as one of the peer's, and so are as warm."""
RAW_DAYS, MINUTES_DAYS = 2, 30
"""Of those, how many the default retention keeps as ticks and as 1-min roll-ups; hours are kept for all."""
TARGETS = (("store.query_ratio", 1 / 30), ("store.disk_ratio", 0.75), ("store.commit_ratio", 1.6))


def new_store(folder: Path) -> StoreLocation:
    where = locate(str(folder))
    for group in ("telemetry", "advice"):
        upgrade(where, group)
    return where


def ingest(where: StoreLocation, day: Day) -> tuple[float, float, int]:
    """(seconds in commits, seconds in roll-ups, rows) of the day through the writer."""
    commits = roll_ups = 0.0
    rows = 0
    with Writer(where) as writer:
        for values in day.values():
            tick = day.tick(values)
            rows += len(tick.samples)
            started = time.perf_counter()
            writer.commit(tick)
            commits += time.perf_counter() - started
            if tick.ts % 60 == 0:
                started = time.perf_counter()
                writer.roll_up()
                roll_ups += time.perf_counter() - started
        writer.roll_up()
    return commits, roll_ups, rows


def bytes_of(where: StoreLocation) -> dict[str, int]:
    """Bytes of the pages of each table, with what is free in them."""
    with closing(sqlite3.connect(f"file:{where.file('telemetry')}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall())


def history_bytes(tables: dict[str, int], days: float, raw_days: float, minute_days: float) -> float:
    """Return the bytes of 30 days, each resolution kept for its own number of days; `days`: days in `tables`."""
    kept = 0.0
    for name, size in tables.items():
        if name.endswith("_1m"):
            kept += size / days * minute_days
        elif name.endswith("_1h"):
            kept += size / days * HISTORY_DAYS
        elif name.endswith(("_sample", "_share")) or name in ("batch", "seal"):
            kept += size / days * raw_days if name != "seal" else size / days * minute_days
        else:
            kept += size
    return kept


def truth(day: Day) -> dict[tuple[str, int], int]:
    """Nano-USD per Mtok by model and hour, from what was generated."""
    tokens: defaultdict[tuple[str, int], int] = defaultdict(int)
    for values in day.values():
        hour = (values.ts - 1) // 3600 * 3600
        for d, increases in enumerate(values.counters):
            both = increases[COUNTERS.index("prompt_tokens")] + increases[COUNTERS.index("generated_tokens")]
            tokens[day.model(d), hour] += both
    serving = {model: sum(day.model(d) == model for d in range(day.n)) for model in MODELS}
    paid = {model: n * GPUS_EACH * NANO_USD_PER_HOUR for model, n in serving.items()}
    return {key: round(paid[key[0]] * 10**6 / n) for key, n in tokens.items()}


def median_ms(work: Callable[[], object], times: int) -> float:
    work()
    took = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        took.append((time.perf_counter() - started) * 1000)
    return statistics.median(took)


def asked(store: Store, day: Day) -> dict[tuple[str, int], int | None]:
    """Return what the hours screen reads, prices included."""
    # The day ends with an hour of the clock, and the screen shows the hour that begins then, too.
    rows = hourly(store, day.hours + 1, day.end_ts)
    return {
        (row.model, row.start_ts + 3600 * n): hour.nano_usd_per_mtok
        for row in rows
        for n, hour in enumerate(row.hours)
        if hour is not None and hour.tokens is not None
    }


def promql() -> str:
    dollars = f"sum by (model) (sum_over_time(gpu_share[1h])) * {INTERVAL_S / 3600} * {NANO_USD_PER_HOUR / 1e9}"
    tokens = "sum by (model) (increase(engine_prompt_tokens[1h]) + increase(engine_generated_tokens[1h]))"
    return f"({dollars}) / ({tokens} / 1e6)"


class Bare:
    """The same rows by `sqlite3` alone: tables of the same shape, one FULL transaction, nothing else."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        for sample in STORED_SAMPLES.values():
            columns = ", ".join(f"{column.name} BIGINT" for column in sample.table.columns)
            keys = ", ".join(column.name for column in sample.table.primary_key)
            self._connection.execute(
                f"CREATE TABLE {sample.table.name} ({columns}, PRIMARY KEY ({keys})) WITHOUT ROWID"
            )

    def commit(self, rows: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for sql, values in rows:
            self._connection.executemany(sql, values)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def commit_pairs(folder: Path, day: Day, pairs: int) -> tuple[list[float], list[float]]:
    """Milliseconds of an 80-row tick by the writer and by bare sqlite3, turn by turn, each time the other first.

    Both tables have a day's rows before, so that leaves are as full and as deep as they are in use.
    """
    ours: list[float] = []
    bare_ms: list[float] = []
    where = new_store(folder / "pairs")
    with Writer(where) as writer, closing(Bare(folder / "bare.db")) as bare:
        for n, values in enumerate(day.values()):
            tick = _eighty(day, values)
            rows = _bare_rows(tick.samples)
            turns = [(ours, lambda tick=tick: writer.commit(tick)), (bare_ms, lambda rows=rows: bare.commit(rows))]
            for took, work in turns if n % 2 else reversed(turns):
                started = time.perf_counter()
                work()
                took.append((time.perf_counter() - started) * 1000)
            if n % 6 == 0:
                writer.roll_up()  # so that the next tick of each minute writes its marks, as the agent's do
            if n == pairs:
                break
    return ours, bare_ms


def _eighty(day: Day, values: Values) -> Any:
    """Return the tick of 64 devices and 16 deployments, one row of each."""
    from dataclasses import replace

    tick = day.tick(values)
    kept = tuple(sample for sample in tick.samples if type(sample).__name__ in ("DeviceSample", "DeploymentSample"))
    return replace(tick, samples=kept)


def _bare_rows(samples: tuple[Any, ...]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    by_type: defaultdict[type, list[tuple[Any, ...]]] = defaultdict(list)
    for sample in samples:
        by_type[type(sample)].append(STORED_SAMPLES[type(sample)].values(sample))
    return [
        (f"INSERT INTO {STORED_SAMPLES[kind].table.name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for kind, rows in by_type.items()
    ]


def measure(folder: Path, day: Day, pairs: int, repeats: int, peer: bool) -> tuple[list[Row], dict[str, float | None]]:
    rows: list[Row] = []
    where = new_store(folder / "ours")
    commits, roll_ups, n_rows = ingest(where, day)
    rows += [
        Row(
            US, "samples", float(day.samples), "samples", f"{day.gpus} GPUs, {day.n} deployments, {day.hours} h at 10 s"
        ),
        Row(US, "ingest", n_rows / commits, "rows/s", "one FULL transaction per tick, time in commits"),
        Row(US, "ingest", day.samples / commits, "samples/s", "the same"),
        Row(US, "ingest_with_roll_ups", n_rows / (commits + roll_ups), "rows/s", "and roll-ups every minute"),
    ]
    with AdviceRepository(where).writing() as connection:
        repository.add_price(
            connection,
            selector="H100",
            nano_usd_per_device_hour=NANO_USD_PER_HOUR,
            from_ts=0,
            set_ts=1,
            set_by="benchmark",
            note=None,
        )
    tables, days = bytes_of(where), day.hours / 24
    raw = sum(size for name, size in tables.items() if name.endswith(("_sample", "_share")))
    default = history_bytes(tables, days, RAW_DAYS, MINUTES_DAYS)
    equal = history_bytes(tables, days, HISTORY_DAYS, 0)
    method = "pages by table (dbstat) after the day, scaled by the days each is kept"
    rows += [
        Row(US, "raw", raw / day.samples, "bytes/sample", "pages of tick tables by dbstat"),
        Row(US, "history_30d", default, "bytes", f"48 h of ticks, 30 d of minutes and hours, seals; {method}"),
        Row(US, "history_30d_all_ticks", equal, "bytes", f"30 d of ticks and hours, no minutes; {method}"),
    ]
    store, right = open_store(where, keep=True), truth(day)  # as the screens do
    answers = asked(store, day)
    gc.collect()
    gc.freeze()  # what the benchmark holds of its day is searched for cycles by no screen
    answered = _prometheus(folder, day, right, repeats, rows, lambda: asked(store, day), peer)
    turns, their_bytes = answered if answered else ([], None)
    ours_ms = [seconds for seconds, _ in turns] or [median_ms(lambda: asked(store, day), repeats)]
    wrong = max(abs((answers.get(key) or 0) / value - 1) for key, value in right.items())
    exact = answers == right
    screen_ms = median_ms(lambda: fleet_report(store, day.end_ts - day.start_ts, day.end_ts), 5)
    question = f"median of {repeats} calls, warm"
    how = (
        f"median over {len(ours_ms)} turns with the peer's, of medians of {IN_A_TURN} warm calls" if turns else question
    )
    rows += [
        Row(
            US,
            "usd_per_mtok_by_model_and_hour",
            statistics.median(ours_ms),
            "ms",
            f"what the hours screen asks; {how}",
        ),
        Row(US, "largest_error", wrong * 100, "%", "against what was generated"),
        Row(US, "exact", float(exact), "1 or 0", "every hour of every model equal to the nano-dollar per Mtok"),
        Row(US, "fleet_report", screen_ms, "ms", "all that the fleet screen shows over the same window; median of 5"),
    ]
    rows.append(
        Row(US, "hours_screen", median_ms(lambda: hourly(store, day.hours, day.end_ts), repeats), "ms", question)
    )
    host = Day(min(8, day.gpus), day.hours, day.end_ts)
    small = new_store(folder / "host")
    ingest(small, host)
    rows += growth(small.file("telemetry"), folder, f"a host of {host.gpus} GPUs", day.end_ts, repeats)
    gc.collect()
    ours, bare = commit_pairs(folder, day, pairs)
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    paired = f"median of {len(ours)} interleaved pairs, 64 device and 16 deployment rows"
    rows += [
        Row(US, "commit", statistics.median(ours), "ms", f"with dirty marks, seals and batch; {paired}"),
        Row(BARE, "commit", statistics.median(bare), "ms", f"the same rows, FULL, WAL; {paired}"),
        Row(
            US,
            "commit_ratio_p90",
            statistics.quantiles([a / b for a, b in zip(ours, bare, strict=True)], n=10)[8],
            "",
            paired,
        ),
    ]
    their_history = their_bytes * HISTORY_DAYS / days if their_bytes else None
    if their_history:
        rows.append(Row(US, "disk_ratio_all_ticks", equal / their_history, "", "30 days at equal resolution"))
    return rows, {
        "store.query_ratio": statistics.median(ours / theirs for ours, theirs in turns) if turns and exact else None,
        "store.disk_ratio": default / their_history if their_history else None,
        "store.commit_ratio": statistics.median(ratios),
    }


def _prometheus(
    folder: Path,
    day: Day,
    right: dict[tuple[str, int], int],
    repeats: int,
    rows: list[Row],
    ours: Callable[[], object],
    peer: bool,
) -> tuple[list[tuple[float, float]], int] | None:
    """Milliseconds of our answer and of the peer's, turn by turn, and what its blocks take; None where it is absent."""
    version = prometheus.installed() if peer else None
    if version is None:
        why = "the Debian package `prometheus` is not installed" if peer else "not asked for"
        rows.append(Row(THEM, "version", None, "", f"absent: {why}"))
        return None
    home = folder / "prometheus"
    home.mkdir()
    with prometheus.running(home) as server:
        server.write(day)
        # By the end of an hour: a range of one hour holds the samples after its start.
        first, last = day.start_ts + 3600, day.end_ts
        turns = [
            (median_ms(ours, IN_A_TURN), median_ms(lambda: server.query_range(promql(), first, last, 3600), 1))
            for _ in range(TURNS * repeats)
        ]
        answers = server.query_range(promql(), first, last, 3600)
        wrong = max(abs(answers.get(key, 0.0) * 1e9 / value - 1) for key, value in right.items())
        size = server.bytes_of_blocks()
    question = f"query_range over loopback, step 1 h; median over {len(turns)} turns, warm"
    rows += [
        Row(THEM, "version", version, "", "Debian package, started on loopback"),
        Row(
            THEM, "ingest", day.samples / server.sent_s, "samples/s", "remote write, one sample per series and request"
        ),
        Row(THEM, "raw", size / day.samples, "bytes/sample", "blocks of a snapshot after compaction, without its log"),
        Row(THEM, "usd_per_mtok_by_model_and_hour", statistics.median(seconds for _, seconds in turns), "ms", question),
        Row(THEM, "largest_error", wrong * 100, "%", "against what was generated; increase() extrapolates"),
    ]
    return turns, size


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="4 GPUs for an hour, and a fleet of 16")
    parser.add_argument(
        "--only", choices=("embedded", "fleet", "shipping", "sizes", "fleet-10k"), help="one part of it"
    )
    parser.add_argument("--minute-days", type=int, default=30, help="of the fleet; 30 of them are 190 M rows, 41 GB")
    parser.add_argument("--no-prometheus", action="store_true", help="leave the peer out, and what is measured by it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    targets: list[Target] = []
    if options.only in (None, "embedded"):
        gpus, hours, pairs, repeats = (4, 1, 6, 1) if options.short else (64, 24, 2000, 21)
        day = Day(gpus, hours, int(time.time()) // 3600 * 3600)
        with tempfile.TemporaryDirectory() as folder:
            rows, values = measure(Path(folder), day, pairs, repeats, peer=not options.no_prometheus)
        targets = [Target(name, values[name], limit, "<=") for name, limit in TARGETS]
    if options.only in (None, "fleet"):
        minutes = sorted({1, 2 if options.short else options.minute_days})
        fleet_rows, fleet_targets = store_fleet.measure(2 if options.short else 125, minutes, 1 if options.short else 5)
        rows, targets = [*rows, *fleet_rows], [*targets, *fleet_targets]
    if options.only == "shipping":
        rows, targets = store_fleet.measure_shipping(1 if options.short else 5)
    if options.only in (None, "sizes"):
        rows += store_fleet.measure_sizes(2 if options.short else 125)
    if options.only in (None, "fleet-10k"):
        fleet_rows, large_targets = fleet_10k.measure(2 if options.short else 1250, 1 if options.short else 15)
        rows, targets = [*rows, *fleet_rows], [*targets, *large_targets]
    text = report("store", rows, targets)
    if options.out:
        options.out.write_text(f"{text}\n")
    print(text)
