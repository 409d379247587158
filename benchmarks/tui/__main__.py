"""The screens of a large fleet, as processes on terminals of their own.

`python -m benchmarks.tui [--runs R] [--watch SECONDS] [--nvitop PROGRAM] [--out FILE]`

1,000 GPUs on 125 hosts with hours of 30 days and minutes of 24 h in one SQLite file, so that every query is paid by the
process that shows the answer; one host of it in another; and 1,000 hosts of one GPU in a third. While screens are open,
each file goes on being written, a commit every two seconds. CPU seconds are those of the process, all threads.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.report import Row, Target, report
from benchmarks.tui.fleet import Recorded
from benchmarks.tui.nvitop import first_frames
from benchmarks.tui.terminal import Terminal

US = "pertoken"
T = TypeVar("T")
_IMPORT = "import time, pertoken.tui.app; print(time.process_time())"
_KEYED = "from benchmarks.tui.keyed import main; main()"
SHOWN = ("gpu-1", "tok/s", "$")
"""A host's name, its tokens and dollars: figures, not a frame around none."""
KEYS = ("\x1b[B", "\x1b[B", "\x1b[A", "o", "O", "\x1b[B", "/", "9", "\x1b", "2", "1", "?", "\x1b", "\t", "4", "1")
"""Down, up, sort, reverse, a filter, screens, help: what fingers do."""


def top(recorded: Recorded) -> list[str]:
    """Return the command that shows a database."""
    return [sys.executable, "-P", "-m", "pertoken", "top", "--db", str(recorded.folder)]


def import_s() -> float:
    """CPU seconds of a new interpreter that imports the app, the interpreter's own start included."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-P", "-c", _IMPORT]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def first_paint(recorded: Recorded) -> tuple[float, float]:
    """Wall and CPU seconds from exec to the first frame with figures."""
    recorded.advance()
    with Terminal(top(recorded)) as terminal:
        return terminal.until(*SHOWN)


def opened_ms(recorded: Recorded, runs: int) -> list[tuple[float, float]]:
    """Wall and CPU milliseconds from `enter` on a host to its page with plots, in a running app."""
    times = []
    with recorded.recording(), Terminal(top(recorded)) as terminal:
        terminal.until(*SHOWN)
        terminal.drain(10.0)  # what is read and loaded once, after the first frame
        terminal.press("\x1b[B")
        for _ in range(runs):
            terminal.settle(0.5)
            cpu_s = terminal.cpu_s()
            wall_s = terminal.answer("\r", "Where a dollar goes", "Tokens, tok/s")
            times.append((1000 * wall_s, 1000 * (terminal.cpu_s() - cpu_s)))
            terminal.press("\x1b")
            terminal.press("\x1b[B")
    return times


def keys_ms(recorded: Recorded, rounds: int) -> list[tuple[str, float, float]]:
    """Each key with wall and CPU milliseconds until the frame that follows it, while the app refreshes."""
    file = recorded.folder / "keys.txt"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-c", _KEYED, str(recorded.folder), str(file)]
    with recorded.recording(), Terminal(command, env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as terminal:
        terminal.until(*SHOWN)
        terminal.drain(10.0)
        for _ in range(rounds):
            for key in KEYS:
                terminal.press(key)
        terminal.settle(1.0)
    times = [line.split() for line in file.read_text().splitlines()]
    return [(key, 1000 * float(wall_s), 1000 * float(cpu_s)) for key, wall_s, cpu_s in times]


def by_key(keys: Sequence[tuple[str, float, float]]) -> list[Row]:
    """Rows of CPU milliseconds by key: the first press, which may open a screen for the first time, and the others."""
    rows = []
    for key in dict.fromkeys(key for key, _, _ in keys):
        first, *later = [cpu_ms for name, _, cpu_ms in keys if name == key]
        shown = f"key {key}, CPU"
        rows.append(Row(US, f"{shown}, first", round(first, 1), "ms", "of the thread that draws"))
        rows.append(Row(US, f"{shown}, later", _median(later), "ms", f"median of {len(later)}"))
    return rows


def cpu_share(recorded: Recorded, watch_s: float) -> float:
    """CPU seconds per second of screens that nobody touches."""
    with recorded.recording(), Terminal(top(recorded)) as terminal:
        terminal.until(*SHOWN)
        terminal.drain(20.0)  # what is read once, after the first frame
        began_s, cpu_s = time.perf_counter(), terminal.cpu_s()
        terminal.drain(watch_s)
        return (terminal.cpu_s() - cpu_s) / (time.perf_counter() - began_s)


def measure(runs: int, watch_s: float, peer: str | None) -> tuple[list[Row], list[Target]]:
    """Make the databases and measure all of it."""
    with tempfile.TemporaryDirectory() as folder:
        fleet, host = Recorded(Path(folder) / "fleet", 125, 8), Recorded(Path(folder) / "host", 2, 8)
        wide = Recorded(Path(folder) / "wide", 1000, 1, days=2, minutes_s=7200)
        import_s()  # its bytecode is written
        first_paint(host)
        imported = _noted("import, CPU s", [import_s() for _ in range(runs)])
        fleets = _noted("first paint of a fleet, wall and CPU s", [first_paint(fleet) for _ in range(runs)])
        hosts = _noted("first paint of a host, wall and CPU s", [first_paint(host) for _ in range(runs)])
        opened = _noted("open a host, ms", opened_ms(fleet, runs))
        keys = _noted("keys, ms", keys_ms(fleet, 4))
        share = _noted("CPU share", cpu_share(wide, watch_s))
    how = f"median of {runs} starts"
    peers = first_frames(peer, runs, f"{how}, interleaved, 8 GPUs of the same stand-in driver")
    figures = {
        "tui.first_paint_fleet_s": (_median([cpu for _, cpu in fleets]), 1.2),
        "tui.first_paint_host_s": (_median([cpu for _, cpu in hosts]), 0.9),
        "tui.import_s": (_median(imported), 0.45),
        "tui.open_host_ms": (_median([wall for wall, _ in opened]), 300.0),
        "tui.key_p95_ms": (_p95([wall for _, wall, _ in keys]), 50.0),
        "tui.cpu_share": (share, 0.03),
    }
    rows = [
        Row(US, "first paint, 125 hosts, CPU", figures["tui.first_paint_fleet_s"][0], "s", how),
        Row(US, "first paint, 125 hosts, wall", _median([wall for wall, _ in fleets]), "s", how),
        Row(US, "first paint, one host's file, CPU", figures["tui.first_paint_host_s"][0], "s", how),
        Row(US, "first paint, one host's file, wall", _median([wall for wall, _ in hosts]), "s", how),
        Row(US, "import of the app, CPU", figures["tui.import_s"][0], "s", f"median of {runs} interpreters"),
        Row(US, "open a host, wall", figures["tui.open_host_ms"][0], "ms", f"median of {runs}, page with its plots"),
        Row(US, "open a host, CPU", _median([cpu for _, cpu in opened]), "ms", f"median of {runs}, all threads"),
        Row(US, "key to drawn, wall, p95", figures["tui.key_p95_ms"][0], "ms", f"{len(keys)} keys while refreshing"),
        Row(US, "key to drawn, wall, median", _median([wall for _, wall, _ in keys]), "ms", f"{len(keys)} keys"),
        Row(US, "key to drawn, CPU, p95", _p95([cpu for _, _, cpu in keys]), "ms", "of the thread that draws"),
        Row(US, "key to drawn, CPU, median", _median([cpu for _, _, cpu in keys]), "ms", "of the thread that draws"),
        *by_key(keys),
        Row(US, "CPU of open screens", share, "cores", f"1,000 hosts, refresh of 2 s, {watch_s:.0f} s untouched"),
        *peers,
        Row("machine", "load average before the last run", os.getloadavg()[0], "", "1 minute"),
    ]
    return rows, [Target(name, round(value, 4), limit, "<=") for name, (value, limit) in figures.items()]


def _noted(what: str, measured: T) -> T:
    print(f"{what}: {measured}", file=sys.stderr, flush=True)
    return measured


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 4)


def _p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tui", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--watch", type=float, default=60.0)
    parser.add_argument("--nvitop", help="Program to start as the peer; default: nvitop of the PATH.")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows, targets = measure(asked.runs, asked.watch, asked.nvitop)
    text = report("tui", rows, targets)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
