"""Figures of the forecast's accuracy: errors by kind, by tier and regime, and limits."""

import sys

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.baselines import noise_floor
from benchmarks.forecast.folds import FIGURES, MACRO, Score, clusters, macro, score
from benchmarks.forecast.performance.measurements import Measurements, Pairs
from benchmarks.forecast.power import Watts, by_kind, log_ratios
from benchmarks.report import Row, Target
from pertoken.forecast.candidates import Array

UNSEEN = "unseen"
"""Subject of pairs of the sources that judge, by tables that saw nothing like them."""
LIMITS = {"median": (0.12, "<="), "p90": (0.40, "<="), "coverage": (0.85, ">="), "abstained": (0.03, "<=")}


def regimes(running: Array) -> dict[str, NDArray[np.bool_]]:
    """Return which rows run few, some and many sequences at once."""
    return {
        "up to 4 running": running <= 4,
        "5 to 32 running": (running > 4) & (running <= 32),
        "over 32 running": running > 32,
    }


def tables(
    pairs: Pairs, predicted: Array, half: Array | None, abstained: NDArray[np.bool_], rows: NDArray[np.bool_]
) -> dict[str, Score]:
    """Return scores by kind of the pairs marked in `rows`."""
    kinds, labels = pairs.column("kind"), clusters(pairs)
    scores = {}
    for kind in dict.fromkeys([*MACRO, *sorted(set(kinds))]):
        chosen = np.flatnonzero((kinds == kind) & rows)
        if len(chosen):
            scores[kind] = score(
                pairs.log_ratio[chosen],
                predicted[chosen],
                half[chosen] if half is not None else None,
                labels[chosen],
                abstained[chosen],
            )
    return scores


def macro_of(scores: dict[str, Score]) -> Score:
    """Return the macro average over the kinds it is defined on."""
    return macro(score for kind, score in scores.items() if kind in MACRO)


def energy_tables(
    watts: Watts, pairs: Pairs, log_tok_s: Array, abstained: NDArray[np.bool_]
) -> dict[str, dict[str, Score]]:
    """Return scores by kind of ratios of joules per generated token, where they were measured and forecast."""
    with np.errstate(all="ignore"):
        forecast = log_ratios(watts, pairs, log_tok_s)[1]
        constant = np.log(watts.devices_n[pairs.after] / watts.devices_n[pairs.before]) - log_tok_s
    known = abstained | (np.isfinite(forecast) & np.isfinite(constant))
    ratios = {
        "energy per token": forecast,
        "energy per token, constant power": constant,
        "energy per token, no change": np.zeros(len(log_tok_s)),
    }
    return {
        name: by_kind(pairs, np.where(abstained, 0.0, np.where(known, log_ratios, np.nan)))
        for name, log_ratios in ratios.items()
    }


def energy_rows(scores_by_kind: dict[str, dict[str, Score]]) -> list[Row]:
    """Return them as rows of the report."""
    method = "|predicted/measured - 1| of J/token ratios, forecast tok/s, clusters equal, low-trust pairs out"
    return [
        Row(name, f"{kind}.{figure}", _rounded(getattr(score, figure)), "ratio", f"{method}; n={score.n}")
        for name, scores in scores_by_kind.items()
        for kind, score in [*scores.items(), ("mean of kinds", macro(scores.values()))]
        for figure in ("median", "p90")
        if np.isfinite(getattr(score, figure))
    ]


def print_energy(scores_by_kind: dict[str, dict[str, Score]]) -> None:
    """Print median / p90 errors in percent, for people."""
    for name, scores in scores_by_kind.items():
        mean = macro(scores.values())
        print(f"\n{name}: mean of kinds {100 * mean.median:.1f} / {100 * mean.p90:.1f} %", file=sys.stderr)
        for kind, of_kind in scores.items():
            print(
                f"  {kind:20} n={of_kind.n:<5} {100 * of_kind.median:5.1f} / {100 * of_kind.p90:5.1f} %",
                file=sys.stderr,
            )


def print_tables(tables: dict[str, dict[str, Score]]) -> None:
    """Print median / p90 errors in percent, for people."""
    for name, scores in tables.items():
        print(f"\n{name}: macro {_line(macro_of(scores))}", file=sys.stderr)
        for kind, of_kind in scores.items():
            print(f"  {kind:20} n={of_kind.n:<5} clusters={of_kind.clusters:<3} {_line(of_kind)}", file=sys.stderr)


def _line(score: Score) -> str:
    return (
        f"{100 * score.median:5.1f} / {100 * score.p90:5.1f} %  covers {100 * score.coverage:3.0f} %  "
        f"high/likely {score.half_width:4.2f}  sign {100 * score.sign:3.0f} %  abstained {100 * score.abstained:.1f} %"
    )


def as_rows(tables: dict[str, dict[str, Score]], measurements: Measurements) -> list[Row]:
    """Return every figure as a row of the report."""
    rows = []
    method = "|predicted/measured - 1| of output tok/s ratios, clusters (source, model, GPU) equal, low-trust pairs out"
    for name, scores in tables.items():
        for kind, of_kind in [*scores.items(), ("macro", macro_of(scores))]:
            for figure in FIGURES:
                rows.append(
                    Row(name, f"{kind}.{figure}", _rounded(getattr(of_kind, figure)), "ratio", _n(method, of_kind))
                )
    for name, (n, median, p90) in noise_floor(measurements).items():
        rows.append(Row("noise floor", f"{name}.median", round(median, 4), "max/min", f"{n} repeated configurations"))
        rows.append(Row("noise floor", f"{name}.p90", round(p90, 4), "max/min", f"{n} repeated configurations"))
    rows += [
        Row("not better", f"{kind}.{figure}", None, "", "beside no change and additive")
        for figure in ("median", "p90")
        for kind in not_better(tables, figure)
    ]
    return rows


def _n(method: str, score: Score) -> str:
    return f"{method}; n={score.n}"


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


def not_better(tables: dict[str, dict[str, Score]], figure: str) -> list[str]:
    """Return kinds of change in which the forecast is not below both *no change* and *additive*."""
    ours = tables[judged(tables)]
    return [
        kind
        for kind, our_score in ours.items()
        if kind in tables["no change"]
        and getattr(our_score, figure)
        >= min(getattr(tables[other][kind], figure) for other in ("no change", "additive"))
    ]


def judged(tables: dict[str, dict[str, Score]]) -> str:
    """Return the subject that limits hold for: unseen pairs, where they were predicted."""
    return UNSEEN if UNSEEN in tables else "shipped table"


def targets(tables: dict[str, dict[str, Score]]) -> list[Target]:
    """Return the limits on unseen pairs; on the shipped table's figures where folds were not asked for."""
    mean = macro_of(tables[judged(tables)])
    return [
        Target(f"forecast.{figure}", None if np.isnan(value := getattr(mean, figure)) else value, limit, op)
        for figure, (limit, op) in LIMITS.items()
    ]
