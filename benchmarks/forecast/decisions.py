"""Cost of decisions by the forecast: `python -m benchmarks.decisions [--measurements M.csv --pairs P.csv]`.

Each pair of measurements is a decision: keep the configuration before the change, or pay for the one after it. The
bill of a token is the hourly price of the devices over output tokens/s; prices are those of
`data/device_prices.csv`, and pairs without both prices are left out. Moves and changes of ranks count in both
directions; nobody raises precision to save. An adviser makes a change where the bill that it claims is low enough.

Regret is the mean of the bill paid over the best of both, in shares of the bill before. Losing changes are those made
that raise the bill. Every (kind, source, model, GPU) weighs the same. Pairs and tables are those of
`benchmarks.forecast`: of sources that chose nothing, by tables refitted without the pair's source, model and GPUs.
Beside the forecast stand a rule of thumb, the mean of both, and *never change*.
"""

import argparse
import csv
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast.accuracy import unseen
from benchmarks.forecast.baselines import rule_of_thumb
from benchmarks.forecast.folds import cluster_weights, clusters, judges, quantile
from benchmarks.forecast.pairs import reasons
from benchmarks.forecast.performance.cells import Cells
from benchmarks.forecast.performance.devices import device
from benchmarks.forecast.performance.measurements import CARRIED, DATA, FILES, BadFile, Measurements, Pairs, read
from benchmarks.forecast.power import Watts
from benchmarks.report import Row, Target, report
from pertoken.forecast.candidates import Array

REVERSIBLE = ("move_gpu", "tp_change")
"""Kinds of change that a person makes in both directions to save."""
KINDS = ("quantize_fp8", "quantize_int8", "quantize_int4", "quantize_fp4", *REVERSIBLE, "smaller_model")
"""Kinds of change of which the rule of thumb has an opinion; the targets are of these."""
OTHER_KINDS = ("raise_batch", "raise_batch_far", "switch_engine", "parallelism_same_n", "kv_fp8", "speculative")
MIN_CLAIM = {"forecast": 0.1, "mean of both": 0.1, "rule of thumb": 0.0}
"""Smallest claimed share of the bill for which an adviser makes a change. That of the forecast was chosen on the half
of the sources that does not judge: one of eleven changes made loses there, and one of five without it."""
LIMITS = {"regret": 0.035, "loss": 0.09, "claim": 0.08}


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions on some changes: logarithms of the bill after over before, measured and claimed by each adviser."""

    measured: Array
    claimed: Mapping[str, Array]
    weights: Array


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one adviser's decisions, in shares of the bill before or of the changes made."""

    regret: float
    loss: float | None
    """Share of the changes made that raise the bill; None where none was made."""
    captured: float | None
    """Share of the possible saving; None where no change saves."""
    claim: float | None
    """Median distance between the claimed and the measured saving of the changes made."""
    made: float


def hourly_usd(measurements: Measurements) -> Array:
    """Return the price of each row's devices; NaN where one is not known."""
    with (DATA / "device_prices.csv").open(encoding="utf-8", newline="") as lines:
        usd_by_device = {row["device"]: float(row["usd_per_hour"]) for row in csv.DictReader(lines)}
    prices = []
    for row in measurements.rows:
        accelerator = device(row["gpu"])
        usd = usd_by_device.get(accelerator.name) if accelerator else None
        devices_n = row.number("n_gpus")
        prices.append(usd * devices_n if usd and devices_n and devices_n > 0 else np.nan)
    return np.array(prices)


def in_both_directions(pairs: Pairs) -> Pairs:
    """Return the pairs, and after them those of reversible kinds from the row after to the row before."""
    places = np.flatnonzero(np.isin(pairs.column("kind"), REVERSIBLE))
    back = pairs.take(places)
    rows = (Cells({**row, "gpu_before": row["gpu_after"], "gpu_after": row["gpu_before"]}) for row in back.rows)
    return Pairs(
        (*pairs.rows, *rows),
        np.concatenate([pairs.before, back.after]),
        np.concatenate([pairs.after, back.before]),
        np.concatenate([pairs.log_ratio, -back.log_ratio]),
        np.concatenate([pairs.log_energy_ratio, -back.log_energy_ratio]),
    )


def decided(pairs: Pairs, log_price: Array, log_speed: Mapping[str, Array], rows: NDArray[np.bool_]) -> Decisions:
    """Return the decisions on the pairs marked in `rows`.

    `log_price` and each adviser's `log_speed`: logarithms of the ratio after over before of each pair.
    """
    labels = np.char.add(np.char.add(pairs.column("kind"), "|"), clusters(pairs))[rows]
    return Decisions(
        (log_price - pairs.log_ratio)[rows],
        {name: (log_price - speed)[rows] for name, speed in log_speed.items()},
        cluster_weights(labels),
    )


def outcome(decisions: Decisions, adviser: str | None) -> Outcome:
    """Return what decisions by an adviser lead to; None never changes. An unknown claim makes no change."""
    bill, weights = np.exp(decisions.measured), decisions.weights
    claimed = np.exp(decisions.claimed[adviser]) if adviser else np.full(len(bill), np.nan)
    made = claimed < 1 - MIN_CLAIM[adviser] if adviser else np.zeros(len(bill), dtype=bool)
    paid, best = np.where(made, bill, 1.0), np.minimum(bill, 1.0)
    possible = float((weights * (1 - best)).sum())
    made_weights = weights[made]
    return Outcome(
        regret=float(np.average(paid - best, weights=weights)),
        loss=float(np.average(bill[made] > 1, weights=made_weights)) if made.any() else None,
        captured=float((weights * (1 - paid)).sum()) / possible if possible else None,
        claim=quantile(np.abs(claimed - bill)[made], made_weights, 0.5) if made.any() else None,
        made=float(np.average(made, weights=weights)),
    )


def outcomes(decisions: Decisions) -> dict[str, Outcome]:
    """Return the outcome of each adviser, and of never changing."""
    return {**{name: outcome(decisions, name) for name in decisions.claimed}, "never change": outcome(decisions, None)}


def table(
    pairs: Pairs, log_price: Array, log_speed: Mapping[str, Array], judged: NDArray[np.bool_]
) -> dict[str, Decisions]:
    """Return the decisions of all kinds that the rule of thumb knows, of the other kinds, and of each kind."""
    kinds = pairs.column("kind")
    groups = {"all": KINDS, "other kinds": OTHER_KINDS, **{kind: (kind,) for kind in (*KINDS, *OTHER_KINDS)}}
    chosen = {name: judged & np.isin(kinds, members) for name, members in groups.items()}
    return {name: decided(pairs, log_price, log_speed, rows) for name, rows in chosen.items() if rows.any()}


def as_rows(decisions_by_name: Mapping[str, Decisions]) -> list[Row]:
    """Return every figure as a row of the report."""
    return [
        Row(
            adviser,
            f"{name}.{figure}",
            None if value is None else round(value, 4),
            "share",
            f"{len(decisions.measured)} decisions",
        )
        for name, decisions in decisions_by_name.items()
        for adviser, result in outcomes(decisions).items()
        for figure, value in asdict(result).items()
    ]


def targets(decisions_by_name: Mapping[str, Decisions]) -> list[Target]:
    """Return the limits on kinds that the rule of thumb knows; its own regret is at least that of the forecast."""
    result = outcomes(decisions_by_name["all"]) if "all" in decisions_by_name else {}
    forecast, thumb = result.get("forecast"), result.get("rule of thumb")
    regret = forecast.regret if forecast else 0.0
    return [
        *(Target(f"decisions.{name}", getattr(forecast, name, None), limit, "<=") for name, limit in LIMITS.items()),
        Target("decisions.regret_thumb", getattr(thumb, "regret", None), regret, ">="),
    ]


def print_outcomes(decisions_by_name: Mapping[str, Decisions]) -> None:
    """Print the figures in percent, for people."""
    for name, decisions in decisions_by_name.items():
        print(f"\n{name}: {len(decisions.measured)} decisions", file=sys.stderr)
        for adviser, result in outcomes(decisions).items():
            figures = (
                f"{figure} {'–' if value is None else f'{100 * value:.1f} %'}"
                for figure, value in asdict(result).items()
            )
            print(f"  {adviser:15} {'  '.join(figures)}", file=sys.stderr)


def main() -> None:
    """Decide on each pair, score, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=Path, default=CARRIED / FILES[0])
    parser.add_argument("--pairs", type=Path, default=CARRIED / FILES[1])
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep fitted tables in this folder, and use them")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    try:
        measurements, pairs = read(options.measurements, options.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")
    published, pairs = pairs, in_both_directions(pairs)
    usd = hourly_usd(measurements)
    log_price = np.log(usd[pairs.after] / usd[pairs.before])
    judged = np.isfinite(log_price) & np.isfinite(pairs.log_ratio) & (pairs.column("trust") != "low")
    judged &= np.isin(pairs.column("kind"), (*KINDS, *OTHER_KINDS))
    judged &= np.array([judges(str(source)) for source in pairs.column("source")])
    predicted, _ = unseen(measurements, pairs, Watts(measurements), judged, lambda _: None, options.keep, published)
    judged &= np.isfinite(predicted.log_ratio)
    silent = np.array([bool(reason) for reason in reasons(measurements, pairs)])
    forecast, thumb = np.where(silent, np.nan, predicted.log_ratio), rule_of_thumb(measurements, pairs)
    log_speed = {"forecast": forecast, "rule of thumb": thumb, "mean of both": (forecast + thumb) / 2}
    decisions_by_name = table(pairs, log_price, log_speed, judged)
    print_outcomes(decisions_by_name)
    text = report("decisions", as_rows(decisions_by_name), targets(decisions_by_name))
    if options.json:
        options.json.write_text(f"{text}\n", encoding="utf-8")
    print(text)
