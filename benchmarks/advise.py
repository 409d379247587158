"""An advice run over a large fleet: from the start of the process to stored advice.

`python -m benchmarks.advise [--deployments N] [--days D] [--runs R] [--out FILE]`

1,000 deployments of 140 services on 125 hosts, and five hosts that nobody uses: hours of 28 days and the newest minutes
in one SQLite file, and a tenth of that in another. `pertoken advise` runs over each as a process of its own, with all
rules over the last seven days, in turns. Measured from outside: seconds until advice is stored, those of phases that do
not read telemetry, from the first of them on, CPU, the largest memory of a process, and the longest time in which the
progress bar does not move. Making the files is not measured.
"""

import argparse
import contextlib
import json
import os
import pty
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Target, report
from pertoken.migrations import upgrade
from pertoken.store.connect.location import locate
from pertoken.store.schema import telemetry as t

HOUR, MINUTE, DAY = 3600, 60, 86_400
GPUS = 8
DEPLOYMENTS_OF_AN_IDLE_HOST = 200
REPLICAS = (24, 1, 10, 2, 8, 1, 4)
"""Of services in turn: 50 deployments."""
MODELS = (
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-8B",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen3-32B",
    "mistralai/Mistral-7B-Instruct-v0.3",
)
SINCE = "7d"
POLL_S = 0.02
READING = "reading"
"""How the names of phases begin in which telemetry is read."""
SETTINGS = "[slo]\nttft_ms = 2000\ntpot_ms = 60\n"
US = "pertoken"


@dataclass(frozen=True)
class Load:
    """Load of one service of the generated fleet."""

    busy_percent: int
    """At its busiest hour; 30 % of it at the quietest."""
    running: int
    """Requests in the batch while busy."""
    waiting: int
    tpot_ms: int
    max_num_seqs: int
    weight_dtype: str = "bf16"


LOADS = (
    Load(40, 12, 0, 14, 256),
    Load(8, 2, 0, 11, 256),
    Load(95, 31, 6, 22, 32),
    Load(0, 0, 0, 12, 256),
    Load(70, 48, 0, 25, 256, "fp8"),
    Load(25, 6, 0, 12, 128),
)
"""Of services in turn: one waits at its batch limit, one serves nothing."""

LENGTHS = "64,128,256,512,1024,2048,4096"
SECONDS = "0.01,0.02,0.03,0.05,0.1,0.5,1"
HISTOGRAMS = {"prompt_len": 1, "generated_len": 1, "ttft_s": 2, "tpot_s": 2, "e2e_s": 2}
"""Metric -> its set of upper bounds."""
METRICS = ("prefix_queries", "prefix_hits", 'requests_finished{reason="stop"}')


def make(
    folder: Path, deployments: int, days: int, end: int, *, minutes_s: int | None = None, gpus: int = GPUS
) -> None:
    """Make a database whose newest rows are of the minute before `end`.

    `minutes_s`: length of the interval that has minutes, too; None: since the full hour. `gpus` of a host.
    """
    where = locate(str(folder))
    for group in ("telemetry", "advice"):
        upgrade(where, group)
    hour = end // HOUR * HOUR
    first = hour if minutes_s is None else end - minutes_s
    with closing(sqlite3.connect(where.file("telemetry"), isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        connection.execute("CREATE TEMP TABLE load(epoch_id, device_id, busy, running, waiting, tpot_ms)")
        _owners(connection, deployments, hour - DAY * days, end, gpus)
        connection.execute("CREATE TEMP TABLE bucket(ts)")
        connection.executemany("INSERT INTO bucket VALUES (?)", ((ts,) for ts in range(hour - DAY * days, hour, HOUR)))
        roll_ups(connection, HOUR)
        _histograms(connection)
        connection.execute("DELETE FROM bucket")
        connection.executemany("INSERT INTO bucket VALUES (?)", ((ts,) for ts in range(first, end, MINUTE)))
        roll_ups(connection, MINUTE)
        connection.execute("COMMIT")
        connection.execute("ANALYZE")


def _put(connection: sqlite3.Connection, table: Any, **values: object) -> None:
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table.name} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))


def _services(deployments: int) -> Iterator[tuple[str, str, Load]]:
    """Yield (served model, path of its weights, load) of each deployment."""
    made = 0
    kinds = zip(cycle(REPLICAS), cycle(MODELS), cycle(LOADS), strict=False)
    for number, (replicas, model, load) in enumerate(kinds):
        for _ in range(min(replicas, deployments - made)):
            yield f"{model.partition('/')[2].lower()}-{number}", model, load
        made += replicas
        if made >= deployments:
            return


def _owners(connection: sqlite3.Connection, deployments: int, start: int, end: int, gpus: int) -> None:
    served = list(_services(deployments))
    idle_hosts = max(1, deployments // DEPLOYMENTS_OF_AN_IDLE_HOST)
    seen = {"first_ts": start, "last_ts": end - 1}
    for n in range(-(-deployments // gpus) * gpus + idle_hosts * gpus):
        host_id, device_id = 1 + n // gpus, 10_000 + n
        if n % gpus == 0:
            cloud = {"cloud": "aws", "instance_type": "p5.48xlarge", "region": "us-east-1", "purchase": "on_demand"}
            host = {"host_id": host_id, "name": f"gpu-{host_id}", "agent_version": "0", "interval_s": 10}
            _put(connection, t.host, **host, **cloud, **seen)
        device = {"kind": "gpu", "vendor": "nvidia", "name": "NVIDIA H100 80GB HBM3", "slot": n % gpus}
        memory = {"memory_bytes": 80 * 2**30, "power_limit_mw": 700_000}
        _put(connection, t.device, device_id=device_id, host_id=host_id, uuid=f"GPU-{n}", **device, **memory, **seen)
        if n >= deployments:
            connection.execute("INSERT INTO load VALUES (NULL, ?, 0, 0, 0, 1)", (device_id,))
            continue
        name, model, load = served[n]
        own_id = 20_000 + n
        engine = {"kind": "vllm", "base_url": f"http://10.0.{host_id}.1:{8000 + n % gpus}", "found_by": "process"}
        _put(connection, t.engine, engine_id=own_id, host_id=host_id, **engine, **seen)
        deployment = {"deployment_id": own_id, "engine_id": own_id, "host_id": host_id}
        _put(connection, t.deployment, **deployment, served_model=name, model_path=model, **seen)
        knobs = {"tp": 1, "pp": 1, "dp": 1, "weight_dtype": load.weight_dtype, "max_num_seqs": load.max_num_seqs}
        knobs |= {"max_model_len": 16_384}
        epoch = {"epoch_id": own_id, "deployment_id": own_id, "engine_version": "0.32.0"}
        _put(connection, t.epoch, **epoch, start_ts=start, knobs=json.dumps(knobs))
        _put(connection, t.epoch_device, epoch_id=own_id, device_id=device_id)
        values = (own_id, device_id, load.busy_percent, load.running, load.waiting, load.tpot_ms)
        connection.execute("INSERT INTO load VALUES (?, ?, ?, ?, ?, ?)", values)


def roll_ups(connection: sqlite3.Connection, seconds: int) -> None:
    """Insert a row of each owner in `load` and each time in `bucket`; load rises and falls over a day.

    Each owner has an hour of its own.
    """
    ms, samples = seconds * 1000, seconds // 10
    busy = f"{ms // 100} * busy * (30 + (device_id * 7 + ts / 3600) % 24 * 3) / 100"
    generated = f"({busy}) * running / tpot_ms"
    requests = f"({generated}) / 250"
    interval = {"ts": "ts", "duration_ms": str(ms), "observed_ms": str(ms), "samples": str(samples), "revision": "1"}
    deployment = {
        "epoch_id": "epoch_id",
        "incomplete_n": "0",
        "busy_ms": busy,
        "busy_provenance": "1",
        "whole_ms": str(ms),
        "whole_busy_ms": busy,
        "whole_provenance": "1",
        "prompt_tokens": f"{requests} * 900",
        "cached_tokens": f"{requests} * 180",
        "computed_tokens": f"{requests} * 720",
        "generated_tokens": generated,
        "requests_finished": requests,
        "preemptions": "0",
        "running_1e2_sum": f"{samples} * 100 * running * ({busy}) / {ms}",
        "waiting_1e2_sum": f"{samples} * 100 * waiting",
        "kv_use_1e4_sum": f"{samples} * 60 * running * ({busy}) / {ms}",
    }
    device = {
        "device_id": "device_id",
        "throttled_n": "0",
        "util_1e4_sum": f"{samples} * 10000 * ({busy}) / {ms}",
        "memory_used_bytes_sum": f"{samples} * {70 * 2**30}",
        "power_mw_sum": f"{samples} * (90000 + 400000 * ({busy}) / {ms})",
        "sm_clock_mhz_sum": f"{samples} * 1800",
        "temperature_c_sum": f"{samples} * 50",
        "sm_active_1e4_sum": f"{samples} * 8000 * ({busy}) / {ms}",
        "sm_occupancy_1e4_sum": f"{samples} * 3000 * ({busy}) / {ms}",
        "tensor_active_1e4_sum": f"{samples} * 2000 * ({busy}) / {ms}",
        "dram_active_1e4_sum": f"{samples} * 6000 * ({busy}) / {ms}",
        "energy_counter_mj": f"{seconds} * (90000 + 400000 * ({busy}) / {ms})",
        "energy_integral_mj": f"{seconds} * (90000 + 400000 * ({busy}) / {ms})",
    }
    host = {"host_id": "host_id"}
    for table, values, owners in (
        (t.deployment_rollup[seconds], deployment, "load, bucket WHERE epoch_id IS NOT NULL"),
        (t.device_rollup[seconds], device, "load, bucket"),
        (t.host_rollup[seconds], host, "host, bucket"),
    ):
        columns = [column.name for column in table.columns]
        known = {**interval, **values}
        made = [known.get(name, str(samples) if name.endswith("_n") else "0") for name in columns]
        connection.execute(f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(made)} FROM {owners}")


def _histograms(connection: sqlite3.Connection) -> None:
    connection.executemany("INSERT INTO histogram_set VALUES (?, ?)", ((1, LENGTHS), (2, SECONDS)))
    buckets = LENGTHS.count(",") + 1
    for metric, set_id in HISTOGRAMS.items():
        connection.execute(
            "WITH RECURSIVE b(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM b WHERE n < ?)"
            " INSERT INTO histogram_1h SELECT epoch_id, ts, ?, ?, n,"
            " 40 + (epoch_id + n * 7 + ts / 3600) % 90 + 300 * (n = 1 + epoch_id % 4), 1"
            " FROM load, bucket, b WHERE busy > 0",
            (buckets - 1, metric, set_id),
        )
    for metric in METRICS:
        connection.execute(
            "INSERT INTO engine_counter_1h SELECT epoch_id, ts, ?, 900 + (epoch_id * 13 + ts / 3600) % 99, 1"
            " FROM load, bucket WHERE busy > 0",
            (metric,),
        )


@dataclass(frozen=True)
class Run:
    """One run of `pertoken advise`."""

    seconds: float
    """Until advice was stored."""
    rules_s: float
    """Of these, after the run's window was read, without phases that read other windows."""
    process_s: float
    """Until the process had printed the report too and ended."""
    cpu_s: float
    peak_mib: float
    """Of its largest process."""
    progress_gap_s: float
    """Longest time in which the progress bar stood still, from the start of the process to stored advice."""
    gap_in: str
    """The step that the bar named then."""
    stored: int
    proposed: int


def advised(folder: Path, output: Path) -> Run:
    """Run `pertoken advise` over a database without advice, its progress bar on a terminal."""
    where = locate(str(folder))
    for suffix in ("", "-wal", "-shm"):
        Path(f"{where.file('advice')}{suffix}").unlink(missing_ok=True)
    upgrade(where, "advice")
    settings = folder / "settings.toml"
    settings.write_text(SETTINGS)
    command = [sys.executable, "-m", "pertoken", "advise", "--json", "--since", SINCE]
    command += ["--db", str(folder), "--config", str(settings)]
    reader, terminal = pty.openpty()
    os.set_blocking(reader, False)
    drawn: list[tuple[float, str]] = []
    stored_s: float | None = None
    with closing(sqlite3.connect(f"file:{where.file('advice')}?mode=ro", uri=True)) as advice, output.open("wb") as out:
        began = time.perf_counter()
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        # An installed package has its bytecode.
        process = subprocess.Popen(command, stdout=out, stderr=terminal, env={**environment, "COLUMNS": "160"})
        os.close(terminal)
        status = 0
        while not (waited := os.wait4(process.pid, os.WNOHANG))[0]:
            now = time.perf_counter() - began
            if text := _read(reader):
                drawn.append((now, text))
            with contextlib.suppress(sqlite3.OperationalError):  # it is locked while it is written
                if stored_s is None and _count(advice, "recommendation"):
                    stored_s = now
            time.sleep(POLL_S)
        _, status, used = waited
        process_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0 or stored_s is None:
            raise SystemExit(f"pertoken advise ended with {process.returncode}: {''.join(text for _, text in drawn)}")
        stored, proposed = _count(advice, "recommendation"), _count(advice, "recommendation WHERE state = 'OPEN'")
    os.close(reader)
    gap_s, gap_in, rules_s = progress(drawn, stored_s)
    return Run(
        seconds=stored_s,
        rules_s=rules_s,
        process_s=process_s,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss / 1024,
        progress_gap_s=gap_s,
        gap_in=gap_in,
        stored=stored,
        proposed=proposed,
    )


def progress(drawn: Sequence[tuple[float, str]], stored_s: float) -> tuple[float, str, float]:
    """Return the longest stand of a progress bar, the step named in it, and the time of phases that do not read.

    These are counted from the first phase that reads on. `drawn` is what was drawn at which second; a bar that is drawn
    as it stands did not move.
    """
    moved: list[tuple[float, str]] = [(0.0, "starting")]
    for second, text in drawn:
        if second > stored_s:
            break
        bar = _step(text)
        if bar is not None and bar != moved[-1][1]:
            moved.append((second, bar))
    times = [second for second, _ in moved]
    gaps = [(until - since, step) for since, until, (_, step) in zip(times, [*times[1:], stored_s], moved, strict=True)]
    gap_s, gap_in = max(gaps)
    began = next((n for n, (_, step) in enumerate(gaps) if step.startswith(READING)), 0)
    return gap_s, gap_in, sum(seconds for seconds, step in gaps[began:] if not step.startswith(READING))


def _step(text: str) -> str | None:
    """Return the step that a progress bar names, with what of it is done; None if no bar was drawn."""
    bars = re.findall(r"\]\s+(?:\d+%|\d+/\d+)\s+([^\r\n\x1b]*)", text)
    return str(bars[-1]).strip() if bars else None


def _read(reader: int) -> str:
    try:
        return os.read(reader, 65_536).decode(errors="replace")
    except (BlockingIOError, OSError):  # nothing was written, or the process has ended
        return ""


def _count(connection: sqlite3.Connection, rows: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])


def _median(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    return statistics.median(map(of, runs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advise", description=__doc__.splitlines()[0])
    parser.add_argument("--deployments", type=int, default=1000)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--make", type=Path, help="Make the larger database in this folder and end.")
    asked = parser.parse_args()
    sizes = (max(GPUS, asked.deployments // 10), asked.deployments)
    if asked.make is not None:
        make(asked.make, asked.deployments, asked.days, int(time.time()) // MINUTE * MINUTE)
        return
    runs: dict[int, list[Run]] = {n: [] for n in sizes}
    with tempfile.TemporaryDirectory() as name:
        for n in sizes:
            make(Path(name) / str(n), n, asked.days, int(time.time()) // MINUTE * MINUTE)
        os.sync()  # else the system writes the new databases to the disk during the runs
        for _ in range(asked.runs):
            for n in sizes:
                runs[n].append(advised(Path(name) / str(n), Path(name) / "advice.json"))
    how = f"{asked.days} days by the hour in one SQLite file, median of {asked.runs}"
    rows = []
    for n, repeats in runs.items():
        slowest = max(repeats, key=lambda run: run.progress_gap_s)
        rows += [
            Row(US, f"seconds_{n}", _median(repeats, lambda run: run.seconds), "s", how),
            Row(US, f"rules_seconds_{n}", _median(repeats, lambda run: run.rules_s), "s", how),
            Row(US, f"process_seconds_{n}", _median(repeats, lambda run: run.process_s), "s", f"{how}, report printed"),
            Row(US, f"cpu_seconds_{n}", _median(repeats, lambda run: run.cpu_s), "s", f"{how}, report printed"),
            Row(US, f"peak_mib_{n}", max(run.peak_mib for run in repeats), "MiB", "largest process of all runs"),
            Row(US, f"progress_gap_{n}", slowest.progress_gap_s, "s", f"longest of all runs, after: {slowest.gap_in}"),
            Row(US, f"stored_{n}", repeats[0].stored, "rows", "advice stored, refusals included"),
            Row(US, f"proposed_{n}", repeats[0].proposed, "rows", "of these proposed"),
        ]
    few, many = ((n, _median(repeats, lambda run: run.seconds)) for n, repeats in runs.items())
    large = runs[sizes[1]]
    targets = [
        Target("advise.seconds_1000", many[1], 15.0, "<="),
        Target("advise.growth", (many[1] / many[0]) / (few[1] / few[0]), 1.2, "<="),
        Target("advise.progress_gap_s", max(large_run.progress_gap_s for large_run in large), 2.0, "<="),
    ]
    text = report("advise", rows, targets)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
