"""Cost of the screens over 10,000 GPUs on 1,250 hosts, one row for each host or service, from one PostgreSQL.

`python -m benchmarks.store --only fleet-10k`. Hours are there for 30 days, minutes of today and a day before.
Histograms are left out: they are half of what a fleet stores, and no row of these has one.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.report import Row, Target
from benchmarks.store.fleet import DAYS, END, GPUS_OF_A_HOST, PAGE, cpu_ms, filled, median_ms
from pertoken.costs.hours import host_costs, hourly
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from pertoken.text.summary import hosts_summary, hours_summary
from tests.fleet.generated import Fleet
from tests.postgres import durable_server_url as started

HOURS = 24
SHOWN = 12
"""Rows that are printed of each table."""


def by_host(store: Store) -> str:
    """Return the first page of the table of `pertoken costs --by host`."""
    return hosts_summary(host_costs(store, HOURS, END)[:PAGE], HOURS)


def by_service(store: Store) -> str:
    """Return the table of `pertoken costs --by service`; without settings each model is one."""
    return hours_summary(hourly(store, HOURS, END), by="service")


ASKED: dict[str, Callable[[Store], str]] = {"host": by_host, "service": by_service}


def measure(hosts: int, repeats: int) -> tuple[list[Row], list[Target]]:
    """Fill a server, ask for each table, and print what it shows."""
    fleet, rows, took_ms = Fleet(hosts, GPUS_OF_A_HOST, END), [], []
    with tempfile.TemporaryDirectory() as folder:
        took = filled(Path(folder) / "server", fleet, 1, histograms=False)
        with started(Path(folder) / "server") as url:
            store = open_store(locate(url))
            scale = f"{fleet.hosts * fleet.gpus} GPUs, {DAYS} d of hours, minutes of today and 1 d before"
            rows.append(Row("pertoken", "10k fleet filled", round(took, 1), "s", scale))
            for by, asked in ASKED.items():
                call = partial(asked, store)
                print("\n".join(call().splitlines()[:SHOWN]), file=sys.stderr)
                how = f"median of {repeats} warm calls over {HOURS} h, text of a page included; {scale}"
                took_ms.append(median_ms(call, repeats))
                rows.append(Row("pertoken", f"cost by {by}", took_ms[-1], "ms", how))
                ours, server = cpu_ms(store, call, repeats)
                cpu = f"{ours} here, {server} the server's; mean, {how}"
                rows.append(Row("pertoken", f"cost by {by}, CPU", round(ours + server, 1), "ms", cpu))
    return rows, [Target("store.fleet_screen_10k_ms", max(took_ms), 300.0, "<=")]
