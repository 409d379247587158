"""What `pertoken agent` costs the host it measures: `python -m benchmarks.agent [--gpus 8] [--seconds 60] …`.

The whole agent (its main process and its sampler, the scrape and the database commit included) runs beside a bare
pynvml loop over the same stand-in driver, at the same time and interval, with one stand-in vLLM page. The stand-in
driver is Python inside the measured processes, where a real one is C and a system call: what that costs is told by
the bare loop, which does nothing else.
"""

import argparse
import importlib.util
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.report import Row, Target, report
from tests.standin_nvml import Machine, eight, environment

ROOT = Path(__file__).parents[1]
PATIENCE_S = 60.0
CHILD_PATIENCE_S = 5.0
STARTS = 3
LOOK_S = 0.02
WARM_UP_TICKS = 3
PEER_WARM_UP_S = 15.0
"""What peers may import before they tick."""
OURS = ("pertoken agent", "its sampler", "bare pynvml loop")
PEERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "nvitop-exporter": ("nvitop_exporter", ("--port", "0", "--interval", "{interval}")),
    "zeus": ("zeus.monitor", ("power", "--update-period", "{interval}")),
}
"""Peers that are measured where they are installed: the module that is run, and its arguments. Neither stores
anything; zeus reads power alone."""
CALL = "its own CPU time over its calls: pynvml, the stand-in driver (in Python) and its loop"
CPU = "utime+stime of its processes in /proc, over the measured time"
PEER = f"{CPU}; the stand-in driver lacks some of what it asks, and refuses that"
PSS = (
    "Pss of smaps_rollup at the end, summed; the benchmark's other Python processes share pages with these, "
    "so alone it is higher, and at most RSS"
)


@dataclass(frozen=True, slots=True)
class Use:
    """What a process and its children used so far, and hold now."""

    cpu_s: float
    rss_mib: float
    pss_mib: float
    at_s: float


def use(pid: int) -> Use:
    """Of the process and all it started that still run."""
    root = psutil.Process(pid)
    cpu_s = rss = pss = 0.0
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        cpu_s += times.user + times.system
        sizes = _rollup(process.pid)
        rss, pss = rss + sizes["Rss"], pss + sizes["Pss"]
    return Use(cpu_s, rss / 1024, pss / 1024, time.monotonic())


def _rollup(pid: int) -> dict[str, int]:
    """Sizes of a process in KiB."""
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {words[0].rstrip(":"): int(words[1]) for words in lines}


@contextmanager
def running(command: list[str], env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of ours, ended at the end: by SIGINT, as at a terminal, and the end of its input. What it started
    and left behind is killed."""
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
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
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
    """The one child an agent keeps."""
    return psutil.Process(pid).children()[0].pid


def ticks(folder: Path) -> int:
    """Ticks of device rows stored so far."""
    found = query(folder, "SELECT COUNT(DISTINCT ts) FROM device_sample")
    return found[0][0] if found else 0


def query(folder: Path, sql: str) -> list[tuple[int, ...]]:
    """Rows of the agent's database; none while it has no tables yet."""
    with suppress(sqlite3.OperationalError):
        connection = sqlite3.connect(f"file:{folder}/telemetry.db?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    return []


def measure(gpus: int, seconds: float, interval_s: int, scratch: Path) -> tuple[list[Row], list[Target]]:
    """Run everything side by side for `seconds`; returns what was seen."""
    folder, log = scratch / "db", scratch / "others.log"
    folder.mkdir()
    settings = scratch / "none.toml"
    settings.touch()
    # By its URL alone: other servers of this machine are not to be measured. Looking costs the same.
    plain = {**os.environ, "PERTOKEN_CONFIG": str(settings), "PERTOKEN_AGENT_DISCOVER": "false"}
    with ExitStack() as stack:
        engine = stack.enter_context(running([sys.executable, "-m", "benchmarks.engine_page"], plain, log))
        url = line_of(engine)
        env = environment(Machine(gpus=eight(processes=((engine.pid, 60 * 2**30),))[:gpus]), plain)
        say(f"first starts of the agent: {gpus} stand-in GPUs, engine at {url}")
        first_starts_s = []
        for n in range(STARTS):
            (scratch / f"start-{n}").mkdir()
            with agent(scratch / f"start-{n}", url, interval_s, env) as (_, first_start_s):
                first_starts_s.append(first_start_s)
        with agent(folder, url, interval_s, env):
            pass
        pid, next_start_s = stack.enter_context(agent(folder, url, interval_s, env))
        bare = stack.enter_context(running([sys.executable, "-m", "benchmarks.bare_nvml", str(interval_s)], env, log))
        pids = dict(zip(OURS, (pid, sampler_of(pid), bare.pid), strict=True))
        for name, (module, arguments) in PEERS.items():
            if importlib.util.find_spec(module.partition(".")[0]) is not None:
                command = [sys.executable, "-m", module, *(each.format(interval=interval_s) for each in arguments)]
                pids[name] = stack.enter_context(running(command, env, log)).pid
        time.sleep(WARM_UP_TICKS * interval_s + (PEER_WARM_UP_S if len(pids) > len(OURS) else 0))
        say(f"measuring {', '.join(pids)} for {seconds:g} s")
        since_ts = int(time.time())
        start = {name: use(each) for name, each in pids.items()}
        time.sleep(seconds)
        end = {name: use(each) for name, each in pids.items()}
        costs = query(folder, f"SELECT tick_ms, missed_ticks, driver_calls FROM agent_sample WHERE ts > {since_ts}")
        engines = query(folder, f"SELECT COUNT(DISTINCT epoch_id) FROM deployment_sample WHERE ts > {since_ts}")
        assert bare.stdin is not None
        bare.stdin.close()
        told = json.loads(line_of(bare))
    share = {name: (end[name].cpu_s - start[name].cpu_s) / (end[name].at_s - start[name].at_s) for name in pids}
    calls = statistics.fmean(driver_calls for _, _, driver_calls in costs)
    per_call_s, bare_share = told["cpu_s"] / told["calls"], told["cpu_s"] / (told["ticks"] * interval_s)
    driver = calls * per_call_s / interval_s

    ours = "pertoken agent"
    first_start_s = statistics.median(first_starts_s)
    started = f"from exec to its first device row read from the database, looked at every {1000 * LOOK_S:g} ms"
    rows = [
        Row(ours, "cpu_share", share[ours], "of one core", CPU),
        Row(ours, "cpu_share_driver_calls", driver, "of one core", "its driver calls at the bare loop's price of one"),
        Row(ours, "cpu_share_own", share[ours] - driver, "of one core", "cpu_share less cpu_share_driver_calls"),
        Row(ours, "cpu_per_tick", share[ours] * interval_s * 1000, "ms", "cpu_share x interval"),
        Row(ours, "driver_calls_per_tick", calls, "calls", "mean of agent_sample over the measured time"),
        Row(ours, "driver_calls_per_tick_most", max(each[2] for each in costs), "calls", "with process lists"),
        Row(ours, "tick_time", statistics.median(each[0] for each in costs), "ms", "median of agent_sample"),
        Row(ours, "engines", engines[0][0], "engines", "read each tick, named by URL: discovery is off"),
        Row(ours, "missed_ticks", sum(each[1] for each in costs), "ticks", "sum of agent_sample"),
        Row(ours, "ticks", len(costs), "ticks", "rows of agent_sample in the measured time"),
        Row(
            ours, "first_sample_new_folder", first_start_s, "s", f"{started}; tables are made first; median of {STARTS}"
        ),
        Row(ours, "first_sample", next_start_s, "s", f"{started}; in a folder that was used before"),
        Row("its sampler", "cpu_share", share["its sampler"], "of one core", f"part of the agent's: {CPU}"),
        Row("bare pynvml loop", "cpu_share", bare_share, "of one core", "its own CPU time over its ticks"),
        Row("bare pynvml loop", "driver_calls_per_tick", told["calls"] / told["ticks"], "calls", "counted by it"),
        Row("bare pynvml loop", "cpu_per_call", per_call_s * 1e6, "us", CALL),
        Row("both", "cpu_share_ratio", share[ours] / bare_share, "", "agent / bare loop"),
    ]
    for name in PEERS:
        value = share.get(name)
        rows.append(Row(name, "cpu_share", value, "of one core", PEER if name in pids else "absent: not installed"))
    for name in pids:
        rows.append(Row(name, "pss", end[name].pss_mib, "MiB", PSS))
        rows.append(Row(name, "rss", end[name].rss_mib, "MiB", "Rss of smaps_rollup at the end, summed"))
        rows.append(Row(name, "rss_growth", end[name].rss_mib - start[name].rss_mib, "MiB", "over the measured time"))
    return rows, [
        Target("agent.cpu_share", share[ours], 0.005, "<="),
        Target("agent.driver_calls_per_tick", calls, 72, "<="),
        Target("agent.rss_mib", end[ours].pss_mib, 64, "<="),
        Target("agent.first_sample_s", first_start_s, 1.0, "<="),
    ]


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line a process of ours prints."""
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
    parser.add_argument("--out", type=Path, help="write the result there as well")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pertoken-benchmark-") as scratch:
        rows, targets = measure(given.gpus, given.seconds, given.interval, Path(scratch))
    asked = f"{given.gpus} GPUs, {given.interval} s interval, {given.seconds:g} s measured"
    rows.insert(0, Row("benchmark", "setting", asked, "", "stand-in NVML driver; one stand-in vLLM 0.32 page"))
    text = report("agent", rows, targets)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
