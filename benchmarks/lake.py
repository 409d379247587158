"""`python -m benchmarks.lake [--gpus 10000 1000000] [--days 30] [--out FILE]`: questions over a generated lake.

A lake of 100 cells is written with pertoken's own tables: GPUs in hosts of 8, four GPUs to a deployment, dollars of
each device-hour split in busy and idle by a random share, tokens of each deployment-hour. Cells of one day are copies
(hard links) of `--distinct` different ones. Each question is asked in a process of its own, which reports its time
and its peak of resident memory, and every engine must give the same rows. `--spark 1 2` asks the same of a Spark master
with one and with two workers of one core on loopback, `--postgres` of a PostgreSQL that holds the smallest lake's
rows, all in turns. A lake that the free disk does not hold is written with fewer days, which the result states.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import lake_postgres as postgres
from benchmarks.report import Row, Target, report
from pertoken.lake import questions
from pertoken.lake.manifest import LakeFiles, Manifest, folder_of, start_of
from pertoken.lake.publish import write_day
from pertoken.lake.questions import LakeSession
from pertoken.lake.reading import COSTS, TOKENS, Range, schema
from pertoken.window.reading import DAY
from tests.lake.spark import spark_cluster

US = "pertoken"
CELLS = 100
FIRST = date(2026, 10, 1)
FREE_SHARE = 0.6
"""Share of the free disk that a lake may take."""
QUESTIONS: Mapping[str, Callable[[Any], Any]] = {
    "per_mtok_by_model_and_hour": partial(questions.per_mtok, by="model", hourly=True),
    "dollars_by_provider": partial(questions.dollars, by=["provider"]),
    "unused_by_cell": partial(questions.unused, by=["cell"]),
    "spend_by_month": questions.months,
    "services_by_idle": partial(questions.unused, by=["cell", "service"]),
}
MODELS = 40
ANSWER_S = 3.0
"""Limit of the global price by model and hour over a day of 1,000,000 GPUs, seconds."""
BYTES = 8.0
"""Limit of bytes for a device-hour, lines of the bill and tokens together."""
GROWTH = 11.0
"""Limit of the time over ten times as many rows."""


def day_tables(gpus: int, random: np.random.Generator) -> dict[str, pa.Table]:
    """Return one day of a cell: a line for busy and one for idle of each device and hour, ordered as published."""
    devices: Any = np.arange(gpus, dtype=np.int64)
    deployments = devices // 4
    hours: Any = np.arange(24, dtype=np.int8)
    n = gpus * 24
    busy_share = np.repeat(random.beta(2, 2, (gpus // 4 or 1, 24)).round(6), 4, axis=0)[:gpus]
    rate = np.where(deployments % 3 == 0, 2_000_000_000, 3_500_000_000)[:, None]
    busy = (busy_share * rate).astype(np.int64)
    use = np.repeat(np.array(["busy", "idle"]), n)
    dollars = np.concatenate([busy.T.reshape(-1), (rate - busy).T.reshape(-1)])
    device: Any = np.tile(devices, 24 * 2)
    hour: Any = np.tile(np.repeat(hours, gpus), 2)
    deployment = deployments[device]
    order = np.lexsort((device, hour, use, deployment))
    device, hour, deployment, use, dollars = (column[order] for column in (device, hour, deployment, use, dollars))
    columns = {
        "hour": hour, "device_id": device, "accelerator": _named("H100 SXM5", len(device)),
        "host": _numbered("host-", device // 8), "provider": _named("aws", len(device)),
        "region": _named("us-east-1", len(device)), "epoch_id": deployment, "owner_epoch_id": deployment,
        "deployment_id": deployment,
        "model": _numbered("model-", deployment % MODELS), "service": _numbered("service-", deployment % 200),
        "namespace": _numbered("team-", deployment % 25), "workload": _numbered("chat-", deployment % 200),
        "use": use, "nano_usd": dollars,
    }  # fmt: skip
    costs = _table(COSTS, columns)
    owners = np.repeat(np.arange(gpus // 4 or 1, dtype=np.int64), 24)
    generated = random.integers(10**5, 10**7, len(owners))
    tokens = {
        "hour": np.tile(hours, gpus // 4 or 1), "provider": _named("aws", len(owners)),
        "region": _named("us-east-1", len(owners)), "epoch_id": owners, "owner_epoch_id": owners,
        "deployment_id": owners,
        "model": _numbered("model-", owners % MODELS), "service": _numbered("service-", owners % 200),
        "namespace": _numbered("team-", owners % 25), "workload": _numbered("chat-", owners % 200),
        "prompt_tokens": generated * 4, "cached_tokens": generated * 2, "generated_tokens": generated,
        "observed_ms": np.full(len(owners), 3_600_000, np.int64), "unpriced": np.zeros(len(owners), bool),
        "nano_usd": np.bincount(deployments, minlength=gpus // 4)[owners] * rate[::4, 0].repeat(24),
    }  # fmt: skip
    return {COSTS: costs, TOKENS: _table(TOKENS, tokens)}


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    fields = schema(name)
    missing = {field.name for field in fields} - columns.keys()
    n = len(next(iter(columns.values())))
    arrays = [
        pa.nulls(n, field.type) if field.name in missing else pa.array(columns[field.name]).cast(field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=fields)


def _named(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))


def _numbered(prefix: str, numbers: np.ndarray[Any, Any]) -> pa.Array:
    names = pa.array([f"{prefix}{number}" for number in range(int(numbers.max()) + 1)])
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)


def write_lake(folder: Path, gpus: int, days: int, distinct: int) -> tuple[int, int]:
    """Write a lake; return its days, fewer than asked where the disk is too small, and its bytes."""
    lake, random = LakeFiles(str(folder)), np.random.default_rng(7)
    n_bytes = 0
    for n in range(days):
        day = FIRST + timedelta(n)
        for number in range(distinct):
            made, written = write_day(
                lake, Manifest(f"cell-{number}", day, start_of(day) + DAY, 1, "", 0, ()),
                day_tables(gpus // CELLS, random), (),
            )  # fmt: skip
            n_bytes += written * (CELLS // distinct)
            for copy in range(number + distinct, CELLS, distinct):
                _copy(folder, made, f"cell-{copy}")
        used = n_bytes // (n + 1) * distinct // CELLS
        if used > shutil.disk_usage(folder).free * FREE_SHARE:
            return n + 1, n_bytes
    return days, n_bytes


def _copy(folder: Path, made: Manifest, cell: str) -> None:
    from dataclasses import replace

    copied = replace(made, cell=cell)
    target = folder / folder_of(cell, made.day)
    target.mkdir(parents=True)
    for file in made.files:
        os.link(folder / made.folder / file.name, target / file.name)
    (target / copied.name()).write_bytes(copied.content())


def ask(folder: str, name: str, days: int, engine: str) -> None:
    """Answer one question; print seconds, resident memory, the number of rows and their hash as JSON."""
    start = start_of(FIRST)
    asked_range = Range(start, start + days * DAY)
    began = time.perf_counter()
    if engine.startswith("postgresql"):
        connection = postgres.connect(engine)
        opened_s = time.perf_counter() - began
        rows = postgres.rows(connection, QUESTIONS[name], asked_range)
        seconds = time.perf_counter() - began
    else:
        with LakeSession(folder, asked_range, engine) as session:
            opened_s = time.perf_counter() - began
            rows = session.rows(QUESTIONS[name])
            seconds = time.perf_counter() - began
            assert not session.coverage.faults
    status = Path("/proc/self/status").read_text(encoding="ascii")  # `ru_maxrss` is inherited from the parent
    peak_mb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    content = sha256(repr([sorted(row.items()) for row in rows]).encode()).hexdigest()
    print(json.dumps([{"seconds": seconds, "opened_s": opened_s, "peak_mb": peak_mb, "rows": len(rows)}, content]))


def asked(folder: Path, name: str, days: int, engine: str) -> tuple[dict[str, float], str]:
    """Ask one question in a process of its own; return its figures and the hash of its rows."""
    command = [sys.executable, "-m", "benchmarks.lake", "--ask", str(folder), name, str(days), engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures, content = json.loads(done.stdout.splitlines()[-1])
    return figures, content


def measured(folder: Path, gpus: int, days: int, n_bytes: int, engines: Mapping[str, str]) -> Iterator[Row]:
    """Yield figures of one lake: its size, and each question over a day and over all days, engines in turns.

    Raises AssertionError where two engines give other rows.
    """
    device_hours = gpus // CELLS * CELLS * 24 * days
    yield Row(US, f"device_hours.{gpus}", device_hours, "rows", f"{CELLS} cells, {days} days")
    yield Row(US, f"bytes_per_device_hour.{gpus}", n_bytes / device_hours, "B", "costs and tokens")
    for n_days in sorted({1, days}):
        for name in QUESTIONS:
            contents = set()
            for subject, engine in engines.items():
                result, content = asked(folder, name, n_days, engine)
                contents.add(content)
                assert len(contents) == 1, f"{subject} gives other rows for {name}"
                method = f"{n_days} days, {result['rows']:.0f} rows, opening {result['opened_s']:.2f} s of it"
                yield Row(subject, f"{name}.{gpus}.{n_days}d", result["seconds"], "s", method)
                yield Row(subject, f"{name}.{gpus}.{n_days}d.peak", result["peak_mb"], "MB", "resident, this process")


def main() -> None:
    """Print the result; exit with 1 if a figure misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--distinct", type=int, default=10, help="different cells of a day; a divisor of 100")
    parser.add_argument("--spark", metavar="N", type=int, nargs="*", default=[], help="workers of a Spark cluster")
    parser.add_argument("--postgres", action="store_true", help="ask a PostgreSQL with the rows of the smallest lake")
    parser.add_argument("--ask", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.ask:
        folder, name, days, engine = options.ask
        return ask(folder, name, int(days), engine)
    rows: list[Row] = []
    for gpus in sorted(options.gpus):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            lake, beside = Path(folder) / "lake", Path(folder) / "beside"
            lake.mkdir()
            began = time.perf_counter()
            days, n_bytes = write_lake(lake, gpus, options.days, options.distinct)
            print(f"{gpus:,} GPUs, {days} days written in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            engines = {US: "duckdb"}
            if options.postgres and gpus == min(options.gpus):
                beside.mkdir()
                began = time.perf_counter()
                engines["PostgreSQL"] = servers.enter_context(postgres.filled(beside, lake))
                print(f"PostgreSQL filled in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            for n_workers in options.spark:
                logs = Path(folder) / f"spark-{n_workers}"
                logs.mkdir()
                engines[f"Spark, {n_workers} worker{'s' * (n_workers > 1)}"] = servers.enter_context(
                    spark_cluster(logs, n_workers)
                )[0]
            rows += measured(lake, gpus, days, n_bytes, engines)
    targets = targets_of(rows, options.gpus)
    printed = report("lake", rows, targets)
    print(printed)
    if options.out:
        options.out.write_text(printed + "\n", encoding="utf-8")
    sys.exit(not all(target.met for target in targets))


def targets_of(rows: Sequence[Row], sizes: Sequence[int]) -> list[Target]:
    """Return the limits: the time of the largest day, bytes of a device-hour, and growth with rows."""
    value = {(row.subject, row.what): row.value for row in rows}
    smallest, largest = min(sizes), max(sizes)
    name = "per_mtok_by_model_and_hour"
    answer = value.get((US, f"{name}.{largest}.1d"))
    targets = [
        Target("lake.answer_seconds", _number(answer), ANSWER_S, "<="),
        Target("lake.bytes_per_device_hour", _number(value[US, f"bytes_per_device_hour.{largest}"]), BYTES, "<="),
    ]
    if largest > smallest:
        ratio = (_number(answer) or 0.0) / (_number(value[US, f"{name}.{smallest}.1d"]) or 1.0)
        per_ten = ratio ** (1 / np.log10(largest / smallest))
        targets.append(Target("lake.growth_of_ten_times_the_rows", float(per_ten), GROWTH, "<="))
    return targets


def _number(value: float | str | None) -> float | None:
    return float(value) if isinstance(value, int | float) else None


if __name__ == "__main__":
    main()
