"""The fit of `[busy]` in `power.toml`: `python -m benchmarks.load.watts --runs F --measurements M --pairs P`.

Public rows with watts and runs under load, each source and device weighing the same; where several sources measured a
device, their median corrects the curve. Printed: the constants, the median error of each group, and that of each
configuration and device of the runs when it is left out.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.forecast.performance.measurements import BadFile, read
from benchmarks.forecast.power import NAMES, Drawn, Watts, fit_drawn
from benchmarks.load.predict import Configuration
from benchmarks.load.runs import BadFile as BadRuns
from benchmarks.load.runs import Run
from benchmarks.load.runs import read as read_runs
from pertoken.forecast.candidates import Array
from pertoken.forecast.power import CandidateWatts, products_share

SOURCE = "load"
SOURCES = 3
"""Measurements of one device from which their median predicts it better than the curve of all."""


def drawn_by(runs: Sequence[Run]) -> tuple[Drawn, list[str]]:
    """Return watts of runs under the work that was measured, and the configuration of each.

    Running sequences follow from Little's law: tokens/s times the time of a token.
    """
    known = [run for run in runs if np.isfinite(run.measured).all()]
    columns: list[tuple[float, ...]] = []
    for run in known:
        configuration = Configuration(run)
        token_s = np.array([run.measured[1] / 1000])
        running = np.maximum(run.measured[0] * token_s, 1.0)
        share = float(products_share(configuration.candidate, running, token_s)[0])
        device = configuration.device
        limits = (float(column[0]) for column in (device.idle_w, device.limit_w, device.full_w))
        columns.append((*limits, share, run.measured[3]))
    idle, limit, full, shares, watts = (np.array(column) for column in zip(*columns, strict=True))
    group = np.array([f"{SOURCE} {run.cells['gpu']}" for run in known])
    return Drawn(CandidateWatts(idle, limit, full), shares, watts, group), [run.config for run in known]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, and print what the fit is worth."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load.watts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, what in (("runs", "runs under load"), ("measurements", "operating points"), ("pairs", "pairs of them")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=f"{what}, CSV")
    chosen = parser.parse_args(arguments)
    try:
        public = Watts(read(chosen.measurements, chosen.pairs)[0])
        under_load, configs = drawn_by(read_runs(chosen.runs))
    except (BadFile, BadRuns) as error:
        parser.exit(2, f"{error}\n")
    drawn = Drawn.of(public, public.fit_rows()).and_those(under_load)
    config = np.array([*[""] * (len(drawn.watts) - len(configs)), *configs])
    constants = fit_drawn(drawn)
    print(", ".join(f"{name} = {value:.3f}" for name, value in zip(NAMES, constants, strict=True)))
    print(", ".join(f"{gpu}: {np.exp(log):.2f}" for gpu, log in devices(drawn, constants).items()))
    for group in np.unique(drawn.group):
        rows = drawn.group == group
        print(f"{group}: median error {missed(drawn, drawn.take(rows)):.3f}")
    on_load = sorted({group for group in drawn.group if group.startswith(SOURCE)})
    for labels, names in ((config, sorted(set(configs))), (drawn.group, on_load)):
        left = {name: missed(drawn.take(labels != name), drawn.take(labels == name)) for name in names}
        errors = ", ".join(f"{name} {error:.3f}" for name, error in left.items())
        print(f"left out: {errors}; median {statistics.median(left.values()):.3f}")


def devices(drawn: Drawn, constants: Array) -> dict[str, float]:
    """Return the logarithm of measured over modelled watts of devices that `SOURCES` or more measured: the median over
    their sources."""
    left = -drawn.errors(constants)
    by_source: dict[str, list[float]] = {}
    for group in np.unique(drawn.group):
        by_source.setdefault(group.rpartition(" ")[2], []).append(float(np.median(left[drawn.group == group])))
    return {gpu: statistics.median(logs) for gpu, logs in by_source.items() if len(logs) >= SOURCES}


def missed(known: Drawn, held: Drawn) -> float:
    """Return the median error on some rows of what others are fitted to."""
    constants = fit_drawn(known)
    levels = devices(known, constants)
    level = np.array([levels.get(group.rpartition(" ")[2], 0.0) for group in held.group])
    return float(np.median(np.abs(np.expm1(held.errors(constants) + level))))


if __name__ == "__main__":
    main(sys.argv[1:])
