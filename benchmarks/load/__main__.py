"""Finite runs under open-loop load that others measured: `python -m benchmarks.load --runs F --out O`.

Each run with published lengths is predicted from its configuration and rate alone, as the finite run it was: its
requests arrive at random, the engine is played step by step, and it ends with the last answer. With `--calibrate-on
RATE` each configuration is also calibrated on its run at that rate, which is left out then; `--out` gets these
predictions. Printed: one JSON object with median errors by configuration (tokens/s where the server did not keep up,
TTFT where it did), beside an interpolation between the measured neighbours and a roofline; errors of $/Mtok; coverage
and half widths of the 80 % intervals.
"""

import argparse
import csv
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.load.baselines import neighbours, roofline
from benchmarks.load.calibrate import calibrate
from benchmarks.load.predict import CALIBRATED, UNMEASURED, Configuration, Known, Refused
from benchmarks.load.runs import OUTPUTS, BadFile, Run, accelerator, by_configuration, read
from benchmarks.load.score import (
    NAMES,
    WIDEST_RATIO,
    Scored,
    abstained,
    covered,
    errors,
    medians,
    other_requests_s,
    quantized,
    usd_per_mtok,
)
from benchmarks.report import Row, Target, report
from pertoken.catalog.market import load_market

LIMITS = (0.10, 0.15, 0.30, 0.20)
CALIBRATED_LIMITS = (0.08, 0.12, 0.20, 0.12)
"""Largest median over configurations of medians over rates, in the order of `OUTPUTS`."""
WITHOUT_GRAPHS = "sglang"
"""Engine whose runs take the same time for each layer at every batch, as if each kernel were launched alone, though
their source names no flag: they are judged apart."""
COVERED, WIDEST, WIDEST_CALIBRATED = 0.80, 1.7, 1.4
SUBJECT, CALIBRATED_SUBJECT = "forecast", "forecast, calibrated"
ByConfig = dict[str, list[Scored]]


def predicted(runs: Sequence[Run], calibrate_on: float | None) -> tuple[dict[str, ByConfig], dict[str, str]]:
    """Return the scored runs of each subject by configuration, and why configurations were refused."""
    scored_by_subject: dict[str, ByConfig] = {name: {} for name in (SUBJECT, "interpolate the neighbours", "roofline")}
    refused = {}
    for name, some in by_configuration(runs).items():
        try:
            configuration = Configuration(some[0])
        except Refused as reason:
            refused[name] = str(reason)
            continue
        apart = ", without graphs" if WITHOUT_GRAPHS in some[0].cells["engine"].lower() else ""
        predictions = configuration.predict(some, Known.nothing(), UNMEASURED)
        scored_by_subject.setdefault(f"{SUBJECT}{apart}", {})[name] = [
            Scored(run, np.array(p.likely), p) for run, p in zip(some, predictions, strict=True)
        ]
        for subject, values in (
            ("interpolate the neighbours", neighbours(some)),
            ("roofline", roofline(configuration, some)),
        ):
            scored_by_subject.setdefault(f"{subject}{apart}", {})[name] = [
                Scored(run, likely) for run, likely in zip(some, values, strict=True)
            ]
        seen = _calibrating(runs, some, calibrate_on)
        if seen is None:
            continue
        known = calibrate(configuration if seen in some else Configuration(seen), seen)
        others = [run for run in some if run is not seen]
        predictions = configuration.predict(others, known, CALIBRATED)
        scored = [Scored(run, np.array(p.likely), p) for run, p in zip(others, predictions, strict=True)]
        scored_by_subject.setdefault(f"{CALIBRATED_SUBJECT}{apart}", {})[name] = scored
    return scored_by_subject, refused


def _calibrating(runs: Sequence[Run], some: Sequence[Run], rate: float | None) -> Run | None:
    """Return the measured run at this rate of some runs, or else of their configuration under another load."""
    alike = [*some, *(run for run in runs if run.config == some[0].config)]
    return next((run for run in alike if run.rate == rate and np.isfinite(run.measured[:3]).any()), None)


def rows_of(scored_by_subject: Mapping[str, ByConfig]) -> list[Row]:
    """Median errors by subject and configuration, and over all."""
    rows = []
    for subject, by_config in scored_by_subject.items():
        for output, name in enumerate(NAMES):
            errors_by_config = medians(by_config, output)
            for config, median in errors_by_config.items():
                n = len(errors(by_config[config], output))
                rows.append(Row(subject, f"{name}.{config}", round(median, 4), "ratio", f"median of {n} rates"))
            if errors_by_config:
                over = f"median over {len(errors_by_config)} configurations"
                rows.append(Row(subject, name, round(statistics.median(errors_by_config.values()), 4), "ratio", over))
    others = other_requests_s(scored_by_subject[SUBJECT])
    if others:
        method = "a request's own time from the other configurations"
        rows.append(Row(SUBJECT, "ttft.left_out", round(statistics.median(others.values()), 4), "ratio", method))
    return rows


def interval_rows(scored_by_subject: Mapping[str, ByConfig]) -> list[Row]:
    """Coverage and half widths of each output."""
    rows = []
    for subject in (SUBJECT, CALIBRATED_SUBJECT):
        for name, inside, widths in zip(NAMES, *covered(scored_by_subject.get(subject, {})), strict=True):
            if inside:
                n = f"{len(inside)} runs"
                rows.append(Row(subject, f"coverage.{name}", round(float(np.mean(inside)), 4), "ratio", n))
                rows.append(Row(subject, f"half_width.{name}", round(statistics.median(widths), 4), "ratio", n))
    return rows


def abstained_rows(scored_by_subject: Mapping[str, ByConfig]) -> list[Row]:
    """Return the share of intervals that are too wide to be of use."""
    method = f"80 % intervals with high over low above {WIDEST_RATIO}"
    return [
        Row(subject, "abstained", round(abstained(scored_by_subject[subject]), 4), "ratio", method)
        for subject in (SUBJECT, CALIBRATED_SUBJECT)
        if subject in scored_by_subject
    ]


def price_rows(scored_by_subject: Mapping[str, ByConfig]) -> list[Row]:
    """$/Mtok of 16-bit and FP8 weights at each rate: the errors of both, and of their ratio."""
    rows = []
    for subject in (SUBJECT, CALIBRATED_SUBJECT):
        by_config = scored_by_subject.get(subject, {})
        for before, after in quantized(by_config):
            ends = [{scored.run.rate: scored for scored in by_config[name]} for name in (before, after)]
            for rate in sorted(ends[0].keys() & ends[1].keys()):
                cheap, fast = ends[0][rate], ends[1][rate]
                if not all(scored.run.measured[0] > 0 for scored in (cheap, fast)):
                    continue
                ratios = []
                for name, scored in ((before, cheap), (after, fast)):
                    usd = _usd_per_hour(scored.run)
                    likely, seen = (usd_per_mtok(usd, tok_s) for tok_s in (scored.likely[0], scored.run.measured[0]))
                    ratios.append((likely, seen))
                    method = f"predicted ${likely:.3f}, measured ${seen:.3f} at ${usd:.2f}/h"
                    rows.append(
                        Row(subject, f"usd_per_mtok.{name}.r{rate:g}", round(likely / seen - 1, 4), "ratio", method)
                    )
                change, real = (ratios[1][place] / ratios[0][place] for place in (0, 1))
                method = f"FP16 to FP8: predicted {change:.3f}, measured {real:.3f}"
                what = f"usd_per_mtok.{before}-{after}.r{rate:g}"
                rows.append(Row(subject, what, round(change / real - 1, 4), "ratio", method))
    return rows


def _usd_per_hour(run: Run) -> float:
    """Median listed on-demand price of its devices."""
    device = accelerator(run)
    offers = load_market().offers(device.name) if device else ()
    devices = run.cells.number("n_gpus") or 1.0
    return devices * statistics.median([offer.nano_usd_per_device_hour for offer in offers] or [1e9]) / 1e9


def targets_of(scored_by_subject: Mapping[str, ByConfig]) -> list[Target]:
    """Return the targets of the predictions; a tier that was not requested is left out."""
    targets = []
    for subject, prefix, limits, widest in (
        (SUBJECT, "load", LIMITS, WIDEST),
        (CALIBRATED_SUBJECT, "load.calibrated", CALIBRATED_LIMITS, WIDEST_CALIBRATED),
    ):
        by_config = scored_by_subject.get(subject)
        if not by_config:
            continue
        for output, (name, limit) in enumerate(zip(NAMES, limits, strict=True)):
            errors_by_config = medians(by_config, output)
            value = round(statistics.median(errors_by_config.values()), 4) if errors_by_config else None
            targets.append(Target(f"{prefix}.{name}", value, limit, "<="))
        inside, widths = ([inside for some in lists for inside in some] for lists in covered(by_config))
        coverage = round(float(np.mean(inside)), 4) if inside else None
        targets.append(Target(f"{prefix}.coverage", coverage, COVERED, ">="))
        width = round(statistics.median(widths), 4) if widths else None
        targets.append(Target(f"{prefix}.half_width", width, widest, "<="))
    return targets


def write(path: Path, by_config: ByConfig) -> None:
    """Write predictions as CSV, a line for each run."""
    with path.open("w", encoding="utf-8", newline="") as out:
        lines = csv.writer(out)
        lines.writerow(["id", *(f"{name}{end}" for name in OUTPUTS for end in ("", "_low80", "_high80"))])
        for scored in by_config.values():
            for scored_run in scored:
                if scored_run.prediction is not None:
                    ends = zip(
                        scored_run.prediction.likely, scored_run.prediction.low, scored_run.prediction.high, strict=True
                    )
                    lines.writerow(
                        [
                            scored_run.run.id,
                            *("" if np.isnan(value) else f"{value:.6g}" for some in ends for value in some),
                        ]
                    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Predict, score, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=Path, required=True, help="runs under load, CSV")
    parser.add_argument("--out", type=Path, required=True, help="predictions, CSV")
    parser.add_argument("--calibrate-on", type=float, metavar="RATE", help="requests/s of the run to calibrate on")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    try:
        runs = read(chosen.runs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    if not runs:
        parser.exit(2, f"{chosen.runs}: no run with published lengths\n")
    scored_by_subject, refused = predicted(runs, chosen.calibrate_on)
    # A configuration without a run to calibrate on is predicted without.
    written = (f"{subject}{apart}" for subject in (SUBJECT, CALIBRATED_SUBJECT) for apart in ("", ", without graphs"))
    write(
        chosen.out,
        {name: scored for subject in written for name, scored in scored_by_subject.get(subject, {}).items()},
    )
    for name, reason in refused.items():
        print(f"{name}: refused: {reason}", file=sys.stderr)
    rows = [
        *rows_of(scored_by_subject),
        *interval_rows(scored_by_subject),
        *abstained_rows(scored_by_subject),
        *price_rows(scored_by_subject),
    ]
    rows += [Row(SUBJECT, f"refused.{name}", None, "", reason) for name, reason in refused.items()]
    text = report("load", rows, targets_of(scored_by_subject))
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
