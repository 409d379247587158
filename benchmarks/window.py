"""Reading a window of a fleet: every figure that rules, the bill and the hours screen start from.

`python -m benchmarks.window [--devices N] [--days D] [--out FILE]`

28 days of 1,000 GPUs (125 hosts, 250 deployments of 4) are made by the hour in a SQLite file, and a tenth of that in
another. Each file is read by a fresh process, whose time and largest memory are measured: inventory, bill, the buckets
as columns, evidence of each device, deployment and service, and dollars by model and hour. Making the files is not
measured. Cost per device is compared between the two.
"""

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Target, report
from pertoken.migrations import upgrade
from pertoken.store.connect.location import locate
from pertoken.store.schema import telemetry as t

END = 1_790_006_400 // 3600 * 3600
GPUS, OF_A_DEPLOYMENT = 8, 4
MODELS = 9
WORDS = ("prefix_queries", "prefix_hits", 'requests_finished{reason="stop"}')
METRICS, BUCKETS = ("ttft_s", "tpot_s", "e2e_s", "prompt_len", "generated_len"), 8
US = "pertoken"


def make(folder: Path, devices: int, days: int) -> None:
    """Create a database of `devices` H100s with one row for each hour; values differ by owner and hour."""
    where = locate(str(folder))
    for group in ("telemetry", "advice"):
        upgrade(where, group)
    start = END - 86_400 * days
    with closing(sqlite3.connect(where.file("telemetry"), isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        _owners(connection, devices, start)
        connection.execute("CREATE TEMP TABLE hour(ts)")
        connection.executemany("INSERT INTO hour VALUES (?)", ((ts,) for ts in range(start, END, 3600)))
        for name, owners in (("device", "device"), ("host", "host"), ("deployment", "epoch")):
            _fill(connection, name, owners)
        connection.execute("INSERT INTO histogram_set VALUES (1, '0.01,0.02,0.05,0.1,0.2,0.5,1')")
        for metric in METRICS:
            connection.execute(
                "WITH RECURSIVE b(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM b WHERE n < ?)"
                " INSERT INTO histogram_1h SELECT epoch_id, ts, ?, 1, n, 40 + (epoch_id + n * 7 + ts / 3600) % 90, 1"
                " FROM epoch, hour, b",
                (BUCKETS - 1, metric),
            )
        for word in WORDS:
            connection.execute(
                "INSERT INTO engine_counter_1h SELECT epoch_id, ts, ?, 900 + (epoch_id * 13 + ts / 3600) % 99, 1"
                " FROM epoch, hour",
                (word,),
            )
        connection.execute("COMMIT")
        connection.execute("ANALYZE")


def _owners(connection: sqlite3.Connection, devices: int, start: int) -> None:
    def put(table: Any, **values: object) -> None:
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO {table.name} ({names}) VALUES ({marks})", tuple(values.values()))

    seen = {"first_ts": start, "last_ts": END}
    for n in range(devices):
        host_id = 1 + n // GPUS
        if n % GPUS == 0:
            put(t.host, host_id=host_id, name=f"gpu-{host_id}", agent_version="0", interval_s=10, **seen)
        device = {"kind": "gpu", "vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "slot": n % GPUS}
        put(t.device, device_id=10_000 + n, host_id=host_id, uuid=f"GPU-{n}", memory_bytes=80 * 2**30, **device, **seen)
        deployment_id = 20_000 + n // OF_A_DEPLOYMENT
        if n % OF_A_DEPLOYMENT == 0:
            engine = {"kind": "vllm", "base_url": f"http://10.0.0.1:{deployment_id}", "found_by": "process"}
            put(t.engine, engine_id=deployment_id, host_id=host_id, **engine, **seen)
            model = f"model-{(n // OF_A_DEPLOYMENT) % MODELS}"
            put(
                t.deployment,
                deployment_id=deployment_id,
                engine_id=deployment_id,
                host_id=host_id,
                served_model=model,
                **seen,
            )
            knobs = json.dumps({"tp": OF_A_DEPLOYMENT, "weight_dtype": "bf16"})
            put(t.epoch, epoch_id=deployment_id, deployment_id=deployment_id, start_ts=start, knobs=knobs)
        put(t.epoch_device, epoch_id=deployment_id, device_id=10_000 + n)


def _fill(connection: sqlite3.Connection, rollup: str, owners: str) -> None:
    table = {"device": t.device_rollup, "host": t.host_rollup, "deployment": t.deployment_rollup}[rollup][3600]
    key = f"{owners}_id"
    fixed = {
        key: key,
        "ts": "ts",
        "duration_ms": "3600000",
        "observed_ms": "3600000",
        "samples": "360",
        "revision": "1",
        "whole_ms": "3600000",
        "whole_busy_ms": "1200000",
        "whole_provenance": "1",
        "busy_ms": f"600000 + ({key} * 7 + ts / 3600) % 24 * 90000",
        "busy_provenance": "1",
        "incomplete_n": "0",
        "throttled_n": "0",
    }
    values = [
        fixed.get(column.name)
        or ("NULL" if column.name.endswith("_n") else f"1000 + ({key} * 31 + ts / 3600 * {n}) % 977")
        for n, column in enumerate(table.columns)
    ]
    connection.execute(f"INSERT INTO {table.name} SELECT {', '.join(values)} FROM {owners}, hour")


def read(folder: Path, days: int) -> dict[str, float]:
    """Seconds of each part, and the largest memory of this process; everything is imported before."""
    from pertoken.advisor.present import present
    from pertoken.catalog.market import load_market
    from pertoken.costs.hours import hourly
    from pertoken.costs.report.fleet_report import fleet_report
    from pertoken.store.connect.open import open_store

    market, store = load_market(), open_store(locate(str(folder)))
    seconds: dict[str, float] = {}

    def timed(name: str, of: Callable[[], object]) -> None:
        began = time.perf_counter()
        of()
        seconds[name] = time.perf_counter() - began

    timed("evidence_s", lambda: present(store, market, 86_400 * days, END))
    timed("fleet_report_s", lambda: fleet_report(store, 86_400 * days, END).whole())
    timed("hours_s", lambda: hourly(store, 24 * days, END))
    seconds["whole_s"] = sum(seconds.values())
    seconds["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds


def measured(folder: Path, devices: int, days: int) -> dict[str, float]:
    """Return the seconds and memory that a new process needs to read a fleet."""
    make(folder, devices, days)
    command = [sys.executable, "-m", "benchmarks.window", "--read", str(folder), "--days", str(days)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.window", description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read is not None:
        print(json.dumps(read(asked.read, asked.days)))
        return
    few = max(GPUS, asked.devices // 10)
    with tempfile.TemporaryDirectory() as name:
        small = measured(Path(name) / "small", few, asked.days)
        large = measured(Path(name) / "large", asked.devices, asked.days)
    how = f"{asked.days} days by the hour, SQLite, one process, one run"
    rows = [
        Row(US, f"{what.removesuffix('_s').removesuffix('_mib')}_{n}", value, "MiB" if "mib" in what else "s", how)
        for n, timed in ((few, small), (asked.devices, large))
        for what, value in timed.items()
    ]
    growth = (large["whole_s"] / asked.devices) / (small["whole_s"] / few)
    targets = [
        Target("window.seconds", large["whole_s"], 60.0, "<="),
        Target("window.peak_mib", large["peak_mib"], 1024.0, "<="),
        Target("window.growth", growth, 1.2, "<="),
    ]
    text = report("window", rows, targets)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
