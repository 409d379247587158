"""Fit the forecast's efficiency table: `python -m benchmarks.fit_forecast PATH [--out efficiency.toml]`.

PATH is a folder with `measurements.csv` and `pairs.csv`. The same files always give the same table: constants are
fitted by maximum a posteriori on rows and pairs, widths of intervals are those of the design. It prints what changed
against the shipped table, and how far ratios move if only rows under a licence that allows copying are used.
"""

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.forecast.fit import Evidence, as_efficiency, design, fit, parameters
from benchmarks.forecast.folds import MACRO, cluster_weights, clusters, predict, quantile
from benchmarks.forecast.pairs import as_changes
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, measured, read
from pertoken.forecast.candidates import Array
from pertoken.forecast.efficiency import Deviation, efficiency, table, tag_names
from pertoken.forecast.terms import OVERHEAD_S, TERMS

SHIPPED = Path(__file__).parents[2] / "pertoken/forecast/efficiency.toml"
MLPERF = "MLPerf results: Apache-2.0 repositories; table in an Apache-2.0 repository; name MLCommons"
LICENSED = ("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", MLPERF)


def prior() -> Deviation:
    """Deviations of single deployments, from the design."""
    rows = design()["deviation"]["groups"]
    groups = np.array([[float(term in _terms(row)) for term in TERMS] for row in rows.values()])
    sd = np.array([design()["deviation"]["sd"][row["sd"]] for row in rows.values()])
    return Deviation(tuple(rows), groups, sd, design()["deviation"]["noise"], design()["deviation"]["misfit"])


def _terms(row: Mapping[str, Any]) -> tuple[str, ...]:
    return TERMS if row["terms"] == ["all"] else tuple(row["terms"])


def path_sources(measurements: Measurements, evidence: Evidence) -> dict[str, int]:
    """Return how many sources with rows in the fit ran each path of kernels."""
    sources: defaultdict[str, set[str]] = defaultdict(set)
    used = np.flatnonzero(evidence.row_weight > 0)
    for path, source in zip(measurements.paths[used], measurements.column("source")[used], strict=True):
        sources[str(path)].add(str(source))
    return {path: len(names) for path, names in sorted(sources.items())}


def text(values: Array, paths: Mapping[str, int], evidence: Evidence, as_of: str) -> str:
    """Return the table as TOML."""
    known, least = parameters(), design()["evidence"]["least_adjustment"]
    lines = [
        "# What engines reach of their hardware: written by `python -m benchmarks.fit_forecast`, never by hand.",
        "# base and by.TAG: logarithms of how much longer a term takes than at its listed rate (for overheads, than",
        f"# its unit); adjustments below {least} are left out. like: the term that it shares a base with. The base is",
        "# a dense model in 16 bits on Hopper under TensorRT-LLM. deviation: how far single deployments are from that,",
        "# as standard deviations of log times: of groups of terms, and `misfit` of what any sum of terms misses.",
        "# interval: the half width of the 80 % interval of a log-ratio is hypot(floor, log_sd x what the calibration",
        "# left open, disagreement x what it changed), of kinds that are not measured at least `unmeasured`.",
        "# paths: public sources whose rows ran these kernels; forecasts of others rest on listed rates alone.",
        "",
        f"tags = [{', '.join(map(_quoted, design()['tags']))}]",
        "",
        "[fit]",
        f"rows = {int((evidence.row_weight > 0).sum())}",
        f"pairs = {int((evidence.pair_weight > 0).sum())}",
        f"parameters = {len(values)}",
        f'as_of = "{as_of}"',
        f'source = "public measurements, {", ".join(design()["evidence"]["sources"])}"',
    ]
    for place, term in enumerate(TERMS):
        unit = f"{OVERHEAD_S[term]:g} s" if term in OVERHEAD_S else "listed rate"
        like = design()["like"].get(term)
        base = f"base = {as_efficiency(values).base[place]:.3f}" if like is None else f'like = "{like}"'
        lines += ["", f"[terms.{term}]", f'unit = "{unit}"', base]
        adjusted = [
            f"{_quoted(tag_names()[tag])} = {value:.3f}"
            for tag, value in zip(known.tag[known.terms[:, place]], values[known.terms[:, place]], strict=True)
            if tag >= 0 and abs(value) >= least
        ]
        if adjusted:
            lines.append(f"by = {{ {', '.join(adjusted)} }}")
    deviations = design()["deviation"]
    sds = ", ".join(f"{name} = {sd}" for name, sd in deviations["sd"].items())
    lines += ["", "[deviation]", f"noise = {prior().noise}", f"misfit = {prior().misfit}", f"sd = {{ {sds} }}"]
    lines += ["", "[deviation.groups]"]
    for name, row in deviations["groups"].items():
        lines.append(f"{name} = {{ sd = {_quoted(row['sd'])}, terms = [{', '.join(map(_quoted, _terms(row)))}] }}")
    widths = dict(design()["interval"])
    kinds = ", ".join(map(_quoted, widths.pop("measured")))
    lines += ["", "[interval]", *(f"{name} = {value}" for name, value in widths.items()), f"measured = [{kinds}]"]
    lines += ["", "[paths]", *(f"{_quoted(path)} = {n}" for path, n in paths.items())]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return f'"{name}"'


def licensed(measurements: Measurements, pairs: Pairs) -> tuple[Measurements, Pairs]:
    """Only rows that may be copied, and pairs of two of them."""
    places = np.flatnonzero(np.isin(measurements.column("licence"), LICENSED))
    moved = np.full(len(measurements.rows), -1)
    moved[places] = np.arange(len(places))
    keep = np.flatnonzero((moved[pairs.before] >= 0) & (moved[pairs.after] >= 0))
    kept = Pairs(
        rows=tuple(pairs.rows[place] for place in keep),
        before=moved[pairs.before[keep]],
        after=moved[pairs.after[keep]],
        log_ratio=pairs.log_ratio[keep],
        log_energy_ratio=pairs.log_energy_ratio[keep],
    )
    return measured([measurements.rows[place] for place in places]), kept


def differences(measurements: Measurements, pairs: Pairs, all_rows: Array, some: Array) -> list[str]:
    """Return how far ratios of each kind move between two fits: the median and the ninth decile of the cluster-weighted
    difference, in percent."""
    lines, kinds, labels = [], pairs.column("kind"), clusters(pairs)
    one, other = (predict(measurements, pairs, as_efficiency(values), prior()).log_ratio for values in (all_rows, some))
    for kind in MACRO:
        rows = np.flatnonzero((kinds == kind) & np.isfinite(one) & np.isfinite(other))
        if len(rows):
            moved, weights = np.abs(np.expm1(other[rows] - one[rows])), cluster_weights(labels[rows])
            half, most = (100 * quantile(moved, weights, share) for share in (0.5, 0.9))
            lines.append(f"  {kind}: median {half:.1f} %, p90 {most:.1f} %")
    return lines


def write_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Rows as they were read."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        out = csv.DictWriter(lines, fieldnames=list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print the differences, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="folder with measurements.csv and pairs.csv")
    parser.add_argument(
        "--out", type=Path, default=SHIPPED, help="where the table is written (default: the shipped one)"
    )
    parser.add_argument(
        "--as-of", default=None, help="date the measurements were collected (default: the shipped one's)"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep fitted tables in this folder, and use them")
    parser.add_argument("--licensed", type=Path, help="folder to write the rows that may be copied to, and their pairs")
    options = parser.parse_args(arguments)
    try:
        measurements, published = read(options.path / "measurements.csv", options.path / "pairs.csv")
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    pairs = as_changes(measurements, published)
    as_of = options.as_of or table()["fit"]["as_of"]

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)

    progress("fitting all rows")
    evidence = Evidence(measurements, pairs, options.keep)
    values = fit(evidence)
    some_measurements, some_pairs = licensed(measurements, published)
    if options.licensed:
        options.licensed.mkdir(parents=True, exist_ok=True)
        write_rows(options.licensed / "measurements.csv", some_measurements.rows)
        write_rows(options.licensed / "pairs.csv", some_pairs.rows)
    progress("fitting licensed rows only")
    some = fit(Evidence(some_measurements, as_changes(some_measurements, some_pairs)))
    progress("")
    shipped = efficiency()
    moved = (
        np.abs(as_efficiency(values).by_tag - shipped.by_tag).max(),
        np.abs(as_efficiency(values).base - shipped.base).max(),
    )
    print(f"against the shipped table: base moves by up to {moved[1]:.3f}, adjustments by up to {moved[0]:.3f} (log)")
    print(f"licensed rows only ({len(some_measurements.rows)} of {len(measurements.rows)}): ratios move by")
    print("\n".join(differences(measurements, pairs, values, some)))
    options.out.write_text(text(values, path_sources(measurements, evidence), evidence, as_of), encoding="utf-8")
