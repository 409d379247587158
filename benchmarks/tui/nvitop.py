"""The same GPUs in nvitop and in pertoken: wall time from the start to the first frame with figures.

The driver is the tests' stand-in library in C, which answers at once. nvitop is run by a Python of its own, named by
`--nvitop` or found on the PATH; where there is none it is reported as absent.
"""

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row
from benchmarks.tui.terminal import Terminal
from tests.standin_nvml import Machine, eight
from tests.standin_nvml.native import COMPILER, build, environment

GPUS = 8


def first_frames(peer: str | None, runs: int, how: str) -> list[Row]:
    """Return rows of `pertoken up` and nvitop over the same stand-in, started in turns."""
    what = "start to first frame, wall"
    peer = peer or shutil.which("nvitop")
    if COMPILER is None:
        return [Row("pertoken up", what, None, "s", "no C compiler here to build the stand-in driver with")]
    took: dict[str, list[float]] = {"pertoken up": [], "nvitop": []}
    with tempfile.TemporaryDirectory() as scratch:
        library = build(Machine(gpus=eight()[:GPUS]), Path(scratch) / "driver")
        env = environment(library, dict(os.environ), Path(scratch) / "calls")
        for n in range(runs):
            folder = str(Path(scratch) / f"db{n}")
            command = [sys.executable, "-P", "-m", "pertoken", "up", "--db", folder, "--interval", "1s"]
            took["pertoken up"].append(_first(command, ("H100", "GPUs"), env))
            if peer is not None:
                took["nvitop"].append(_first([peer], ("700W", "GiB"), env))
    rows = [Row("pertoken up", what, statistics.median(took["pertoken up"]), "s", f"{how}; agent and advisor included")]
    if peer is None:
        return [*rows, Row("nvitop", what, None, "s", "absent: not on the PATH, and no --nvitop was given")]
    return [*rows, Row("nvitop", what, statistics.median(took["nvitop"]), "s", how)]


def _first(command: Sequence[str], shown: tuple[str, ...], env: dict[str, str]) -> float:
    with Terminal(command, env=env) as terminal:
        return terminal.until(*shown)[0]
