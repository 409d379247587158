"""Cost of `pertoken agent` on the host it measures: `python -m benchmarks.agent [--gpus 8] [--seconds 60] …`.

The whole agent (its main process and its sampler, the scrape and the database commit included) runs beside a bare
pynvml loop and the peers that are installed, over the same stand-in driver, at the same time and interval, with one
stand-in vLLM page. A second agent does the same with discovery on; at other intervals than 1 s a second nvitop-exporter
runs at its own default. The stand-in is a library in C that answers at once
and counts the calls of each of them: what a real driver's calls take comes on top. It needs a C compiler.
"""

import argparse
import importlib.util
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from math import isnan
from pathlib import Path
from typing import Any

import psutil

from benchmarks.agent.usage import use
from benchmarks.report import Row, Target, report
from tests.standin_nvml import Machine, eight
from tests.standin_nvml.native import COMPILER, build, calls_made, environment

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
CHILD_PATIENCE_S = 5.0
LOOK_S = 0.02
WARM_UP_TICKS = 3
PEER_WARM_UP_S = 15.0
"""What peers may import before they tick."""
AGENT, LOOKING, SAMPLER, BARE = OURS = (
    "pertoken agent",
    "pertoken agent with discovery",
    "its sampler",
    "bare pynvml loop",
)
DRIVER = "calls that reached the stand-in, counted by it, over the measured time"
DEFAULT_PEER = "nvitop-exporter at its default interval"
DEFAULT_PEER_INTERVAL_S = 1
"""The default of nvitop-exporter's `--interval` (1.7.2)."""
PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nvitop-exporter": ("nvitop_exporter", ("--port", "0", "--interval", "{interval}")),
    DEFAULT_PEER: ("nvitop_exporter", ("--port", "0")),
    "zeus": ("zeus.monitor", ("power", "--update-period", "{interval}")),
}
"""Peers that are measured where they are installed: the module that is run, and its arguments. None of them stores
anything; zeus reads power alone."""
RATIO_LIMITS: Mapping[int, tuple[str, float]] = {1: ("nvitop-exporter", 0.40), 10: (DEFAULT_PEER, 0.10)}
"""By interval of the agent in seconds: the peer to whose CPU time the agent's is held, and the limit of the ratio.

At 1 s both read all GPUs at the same interval. 10 s is the agent's default; there each runs as it is installed.
"""
MAX_DRIVER_CALLS_PER_TICK = 72
"""At 1 s. Process lists are read every few seconds, so that a longer interval has more of them in each tick."""
CPU = "CPU-time clocks of its processes, over the measured time"
PSS = "Pss of smaps_rollup of its processes, summed, once the others ended; two Pythons of the benchmark share pages"


@contextmanager
def running(command: list[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, ended at the end: by SIGTERM and the end of its input. What it left behind is killed."""
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for child in psutil.wait_procs(children, timeout=CHILD_PATIENCE_S)[1]:
                child.kill()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def agent(folder: Path, url: str, interval_s: int, env: Mapping[str, str]) -> Iterator[tuple[int, float]]:
    """A whole agent on a folder: its pid, and the seconds from exec until its first device row could be read."""
    command = [sys.executable, "-m", "pertoken", "agent", "--db", str(folder), "--interval", f"{interval_s}s"]
    log = folder.parent / "agent.log"
    before = ticks(folder)
    started_s = time.monotonic()
    with running([*command, "--engine", url], env, log) as process:
        while ticks(folder) <= before:
            if process.poll() is not None or time.monotonic() - started_s > PATIENCE_S:
                raise SystemExit(f"the agent recorded nothing:\n{log.read_text()}")
            time.sleep(LOOK_S)
        yield process.pid, time.monotonic() - started_s


def sampler_of(pid: int) -> int:
    """Return the one child an agent keeps."""
    return psutil.Process(pid).children()[0].pid


def ticks(folder: Path) -> int:
    """Ticks of device rows stored so far."""
    counted_ticks = query(folder, "SELECT COUNT(DISTINCT ts) FROM device_sample")
    return counted_ticks[0][0] if counted_ticks else 0


def query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of the agent's database; none while it has no tables yet."""
    with suppress(sqlite3.OperationalError):
        connection = sqlite3.connect(f"file:{folder}/telemetry.db?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    return []


def measure(gpus: int, seconds: float, interval_s: int, starts: int, scratch: Path) -> tuple[list[Row], list[Target]]:
    """Run everything side by side for `seconds`; returns what was seen."""
    folder, looking, log = scratch / "db", scratch / "looking" / "db", scratch / "others.log"
    folder.mkdir()
    looking.mkdir(parents=True)
    settings = scratch / "none.toml"
    settings.touch()
    # By its URL alone: other servers of this machine are not to be measured. The second agent looks for them too.
    plain = {**os.environ, "PERTOKEN_CONFIG": str(settings), "PERTOKEN_AGENT_DISCOVER": "false"}
    with ExitStack() as stack:
        engine = stack.enter_context(running([sys.executable, "-m", "benchmarks.agent.engine_page"], plain, log))
        url = line_of(engine)
        library = build(Machine(gpus=eight(processes=((engine.pid, 60 * 2**30),))[:gpus]), scratch / "driver")
        peers = {
            name: command
            for name, command in PEERS.items()
            if name != DEFAULT_PEER or interval_s != DEFAULT_PEER_INTERVAL_S
        }
        asked = {name: scratch / f"{name}.calls" for name in (AGENT, LOOKING, BARE, *peers)}
        envs = {name: environment(library, plain, file) for name, file in asked.items()}
        envs[LOOKING]["PERTOKEN_AGENT_DISCOVER"] = "true"
        say(f"first starts of the agent: {gpus} stand-in GPUs, engine at {url}")
        first_starts_s: list[float] = []
        next_starts_s: list[float] = []
        for n in range(starts):
            (scratch / f"start-{n}").mkdir()
            for starts_s in (first_starts_s, next_starts_s):
                with agent(scratch / f"start-{n}", url, interval_s, envs[AGENT]) as (_, start_s):
                    starts_s.append(start_s)
        pid, _ = stack.enter_context(agent(folder, url, interval_s, envs[AGENT]))
        others = stack.enter_context(ExitStack())
        command = [sys.executable, "-m", "benchmarks.agent.bare_nvml", str(interval_s)]
        bare = others.enter_context(running(command, envs[BARE], log))
        looking_pid, _ = others.enter_context(agent(looking, url, interval_s, envs[LOOKING]))
        pids = {AGENT: pid, LOOKING: looking_pid, SAMPLER: sampler_of(pid), BARE: bare.pid}
        for name, (module, arguments) in peers.items():
            if importlib.util.find_spec(module.partition(".")[0]) is not None:
                command = [
                    sys.executable,
                    "-m",
                    module,
                    *(argument.format(interval=interval_s) for argument in arguments),
                ]
                pids[name] = others.enter_context(running(command, envs[name], log)).pid
        time.sleep(WARM_UP_TICKS * interval_s + (PEER_WARM_UP_S if len(pids) > len(OURS) else 0))
        pids = {name: pid for name, pid in pids.items() if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}
        say(f"measuring {', '.join(pids)} for {seconds:g} s")
        since_ts = int(time.time())
        start, calls = {name: use(pid) for name, pid in pids.items()}, counted(asked, pids)
        time.sleep(seconds)
        end, last_calls = {name: use(pid) for name, pid in pids.items()}, counted(asked, pids)
        pids = {name: pid for name, pid in pids.items() if not isnan(end[name].cpu_s - start[name].cpu_s)}
        if not {*OURS} <= pids.keys():
            raise SystemExit(f"ended while it was measured: {', '.join({*OURS} - pids.keys())}")
        costs = query(folder, f"SELECT tick_ms, missed_ticks, driver_calls FROM agent_sample WHERE ts > {since_ts}")
        engines = query(folder, f"SELECT COUNT(DISTINCT epoch_id) FROM deployment_sample WHERE ts > {since_ts}")
        engine_rows = query(looking, "SELECT kind, found_by, COUNT(*) FROM engine GROUP BY kind, found_by")
        others.close()
        alone = use(pid)
    measured_s = {name: end[name].at_s - start[name].at_s for name in pids}
    share = {name: (end[name].cpu_s - start[name].cpu_s) / measured_s[name] for name in pids}
    asked_n = {name: last_calls[name] - calls[name] for name in calls if name in pids}
    per_tick = {name: n / measured_s[name] * interval_s for name, n in asked_n.items()}

    # Other servers of this machine would be read and paid for, too.
    others_n = sum(n for _, found_by, n in engine_rows if found_by == "process")
    ratios = {
        peer: share[LOOKING] / share[peer] if peer in share and not others_n else None
        for peer in peers
        if peer.startswith("nvitop-exporter")
    }
    compared = (
        f"not measured: discovery found {others_n} other servers on this machine; stop them" if others_n else None
    )
    servers = ", ".join(f"{n} {kind} ({found_by})" for kind, found_by, n in engine_rows)
    first_start_s, next_start_s = statistics.median(first_starts_s), statistics.median(next_starts_s)
    started = f"from exec to its first device row read from the database, looked at every {1000 * LOOK_S:g} ms"
    median = f"median of {starts}"
    rows = [
        Row(AGENT, "cpu_share", share[AGENT], "of one core", CPU),
        Row(AGENT, "cpu_share_main", share[AGENT] - share[SAMPLER], "of one core", "less that of its sampler"),
        Row(AGENT, "cpu_per_tick", share[AGENT] * interval_s * 1000, "ms", "cpu_share x interval"),
        Row(AGENT, "driver_calls_per_tick_own", mean(costs, 2), "calls", "mean of agent_sample"),
        Row(AGENT, "driver_calls_per_tick_most", max(row[2] for row in costs), "calls", "with process lists"),
        Row(AGENT, "tick_time", statistics.median(row[0] for row in costs), "ms", "median of agent_sample"),
        Row(AGENT, "engines", engines[0][0], "engines", "read each tick, named by URL: discovery is off"),
        Row(AGENT, "missed_ticks", sum(row[1] for row in costs), "ticks", "sum of agent_sample"),
        Row(AGENT, "ticks", len(costs), "ticks", "rows of agent_sample in the measured time"),
        Row(AGENT, "first_sample_new_folder", first_start_s, "s", f"{started}; tables are made first; {median}"),
        Row(AGENT, "first_sample", next_start_s, "s", f"{started}; in a folder that was used before; {median}"),
        Row(AGENT, "pss", alone.pss_mib, "MiB", PSS),
        Row(LOOKING, "cpu_share", share[LOOKING], "of one core", CPU),
        Row(LOOKING, "engines", servers, "engines", "found by looking at processes, or named (setting), and read"),
        Row(SAMPLER, "cpu_share", share[SAMPLER], "of one core", f"part of the agent's: {CPU}"),
        Row(BARE, "cpu_share", share[BARE], "of one core", CPU),
        Row("both", "cpu_share_ratio", share[AGENT] / share[BARE], "", "agent / bare loop"),
        *(
            Row(LOOKING, "cpu_share_ratio", ratio, "", compared or f"agent with discovery / {peer}, in this run")
            for peer, ratio in ratios.items()
        ),
    ]
    for name in peers:
        value = share.get(name)
        rows.append(
            Row(
                name,
                "cpu_share",
                value,
                "of one core",
                CPU if name in pids else "absent: not installed, or it did not run",
            )
        )
    rows += [Row(name, "driver_calls_per_tick", n, "calls", DRIVER) for name, n in per_tick.items()]
    for name in pids:
        rows.append(Row(name, "rss", end[name].rss_mib, "MiB", "Rss of smaps_rollup at the end, summed"))
        rows.append(Row(name, "rss_growth", end[name].rss_mib - start[name].rss_mib, "MiB", "over the measured time"))
    targets = [
        Target("agent.rss_mib", alone.pss_mib, 64, "<="),
        Target("agent.first_sample_s", first_start_s, 1.0, "<="),
    ]
    if interval_s in RATIO_LIMITS:
        peer, limit = RATIO_LIMITS[interval_s]
        targets.insert(0, Target("agent.cpu_ratio", ratios[peer], limit, "<="))
    if interval_s == 1:
        targets.insert(1, Target("agent.driver_calls_per_tick", per_tick[AGENT], MAX_DRIVER_CALLS_PER_TICK, "<="))
    return rows, targets


def growth(gpus: int, ticks: int, scratch: Path) -> Row:
    """Return the increase of the agent's memory over `ticks` ticks, which follow each other at once."""
    log, settings, folder = scratch / "growth.log", scratch / "none.toml", scratch / "growth"
    settings.touch()
    folder.mkdir()
    plain = {**os.environ, "PERTOKEN_CONFIG": str(settings), "PERTOKEN_AGENT_DISCOVER": "false"}
    with running([sys.executable, "-m", "benchmarks.agent.engine_page"], plain, log) as engine:
        url = line_of(engine)
        library = build(Machine(gpus=eight(processes=((engine.pid, 60 * 2**30),))[:gpus]), scratch / "growth-driver")
        say(f"{ticks} ticks, one after the other")
        command = [sys.executable, "-m", "benchmarks.agent.growth", str(folder), url, str(ticks)]
        with running(command, environment(library, plain), log) as process:
            text = line_of(process)
    if not text:
        raise SystemExit(f"the ticks did not end:\n{log.read_text()}")
    looks: dict[str, float] = json.loads(text)["pss_mib"]
    seen, pss_mib = ", ".join(f"{mib:.2f} after {n}" for n, mib in looks.items()), list(looks.values())
    how = f"Pss in MiB: {seen} of the agent's own ticks, on a clock that goes 1 s from each to the next"
    return Row(AGENT, "pss_growth", pss_mib[-1] - pss_mib[0], "MiB", how)


def counted(asked: Mapping[str, Path], pids: Mapping[str, int]) -> dict[str, int]:
    """Driver calls so far of those that run."""
    return {name: calls_made(file) for name, file in asked.items() if name in pids}


def mean(rows: list[tuple[Any, ...]], column: int) -> float:
    """Of one column."""
    return statistics.fmean(row[column] for row in rows)


def line_of(process: subprocess.Popen[str]) -> str:
    """Return the next line a process of ours prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(what: str) -> None:
    """Progress, beside the result."""
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--gpus", type=int, default=8, choices=range(1, 9), help="stand-in GPUs [default: 8]")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured time [default: 60]")
    parser.add_argument("--interval", type=int, default=1, help="seconds between ticks [default: 1]")
    parser.add_argument("--starts", type=int, default=3, help="starts on a new and on a used folder [default: 3]")
    parser.add_argument(
        "--growth", type=int, metavar="TICKS", help="also show what these ticks add to its memory (3600: 7 minutes)"
    )
    parser.add_argument("--out", type=Path, help="write the result there as well")
    given = parser.parse_args()
    if COMPILER is None:
        parser.error("the stand-in driver needs a C compiler (cc, gcc or clang)")
    with tempfile.TemporaryDirectory(prefix="pertoken-benchmark-") as scratch:
        rows, targets = measure(given.gpus, given.seconds, given.interval, given.starts, Path(scratch))
        if given.growth is not None:
            rows.append(growth(given.gpus, given.growth, Path(scratch)))
    setting = f"{given.gpus} GPUs, {given.interval} s interval, {given.seconds:g} s measured"
    rows.insert(0, Row("benchmark", "setting", setting, "", "stand-in NVML driver in C; one stand-in vLLM 0.32 page"))
    text = report("agent", rows, targets)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)
