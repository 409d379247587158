"""`python -m benchmarks.proof [--seed N] [--runs 500]`: whether verdicts and intervals hold on known effects.

Every run is a history of six weeks, a change with a known effect on its device-seconds per token, and the week after.
Runs are made for each effect, residual and with and without siblings, and for each kind of history of `shape.toml`. The
figures depend on seed and runs alone. `--nulls FILE` judges real noise instead: see `benchmarks.proof.nulls`.
"""

import argparse
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

# One thread a process: the matrices are small, and the processes fill the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.proof.histories import KINDS, SHAPE, USUAL, Condition
from benchmarks.proof.nulls import CLAIMED, nulls_report
from benchmarks.proof.runs import Outcomes, added, run
from benchmarks.report import Row, Target, report
from pertoken.proof.verification.estimate import EffectVerdict

POWER = -0.10
"""Effect whose detection is a target."""
STATIONARY = ("lengths × 0.85 or × 1.18", "creep of 0.05 to 0.15 % a day", "a sibling jumps by 8 %")
"""Kinds whose level is the same in every process and week, beside the usual one."""

OutcomesByCondition = Mapping[Condition, Outcomes]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=500, help="per effect, residual and number of siblings")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the result to this file, too")
    parser.add_argument("--parts", type=Path, help="keep finished parts in this file, and go on from it")
    parser.add_argument("--nulls", type=Path, help="judge the real noise in this CSV file instead")
    parser.add_argument("--half", type=int, choices=(0, 1), help="of the series of --nulls, by a hash of their names")
    arguments = parser.parse_args()
    if arguments.nulls is not None:
        rows, met = nulls_report(arguments.nulls, arguments.half)
        write(report("proof", rows, met), arguments.out)
        return
    began = time.perf_counter()
    outcomes_of = run(arguments.seed, arguments.runs, conditions(), arguments.processes, arguments.parts)
    seconds = time.perf_counter() - began
    rows = [
        Row("pertoken", "seconds", round(seconds, 1), "s", f"{arguments.processes} processes, seed {arguments.seed}"),
        *(row for condition, outcomes in outcomes_of.items() for row in condition_rows(condition, outcomes)),
        *summary_rows(outcomes_of),
    ]
    write(report("proof", rows, targets(outcomes_of)), arguments.out)


def write(text: str, out: Path | None) -> None:
    if out is not None:
        out.write_text(text + "\n")
    print(text)


def conditions() -> list[Condition]:
    """Return all conditions; the residual that the targets are about comes first."""
    siblings = (0, SHAPE["history"]["siblings"])
    effects = SHAPE["effects"]["values"]
    usual = [Condition(sd, n, effect) for sd in SHAPE["residual"]["sd"] for n in siblings for effect in effects]
    sd = SHAPE["residual"]["sd"][0]
    return usual + [
        Condition(sd, n, effect, kind)
        for kind in KINDS
        for n in (siblings[1:] if kind.sibling_jump else siblings[:1])
        for effect in (0.0, POWER)
    ]


def chosen(
    outcomes_of: OutcomesByCondition, sd: float, siblings: int | None = None, effect: float | None = None
) -> Outcomes:
    """Outcomes of a residual at the drift of the shape, by siblings and effect where these are given."""
    return added(
        outcomes
        for condition, outcomes in outcomes_of.items()
        if condition.sd == sd
        and condition.kind == USUAL
        and siblings in (None, condition.siblings)
        and effect in (None, condition.effect)
    )


def condition_rows(of: Condition, outcomes: Outcomes) -> Iterator[Row]:
    method = f"residual {of.sd:.0%}, {of.siblings or 'no'} siblings, effect {of.effect:+.0%}, {outcomes.runs} runs"
    if of.kind != USUAL:
        method += f", {of.kind.name}"
    for verdict in EffectVerdict:
        if outcomes.verdicts[verdict]:
            yield Row("pertoken", verdict.value, round(outcomes.share(verdict), 4), "share", method)
    for code, count in sorted(outcomes.codes.items()):
        yield Row("pertoken", f"inconclusive: {code}", round(count / outcomes.runs, 4), "share", method)
    if outcomes.widths:
        yield Row("pertoken", "covered by the 80 % interval", round(outcomes.coverage, 4), "share", method)
    if outcomes.widths:
        yield Row("pertoken", "width of the 90 % interval", round(float(np.median(outcomes.widths)), 4), "1", method)
    yield Row("pertoken", "widened by placebo dates", round(outcomes.widened / outcomes.runs, 4), "share", method)
    yield Row("naive before/after", "claims a saving", round(outcomes.naive / outcomes.runs, 4), "share", method)


def summary_rows(outcomes_of: OutcomesByCondition) -> Iterator[Row]:
    for siblings in (0, SHAPE["history"]["siblings"]):
        for sd in SHAPE["residual"]["sd"]:
            outcomes = chosen(outcomes_of, sd, siblings)
            method = f"residual {sd:.0%}, {siblings or 'no'} siblings, all effects, {outcomes.runs} runs"
            covered = outcomes.coverage
            yield Row("pertoken", "covered by the 80 % interval", round(covered, 4), "share", method)
            yield Row("pertoken", "inconclusive", round(outcomes.share(EffectVerdict.INCONCLUSIVE), 4), "share", method)


def targets(outcomes_of: OutcomesByCondition) -> list[Target]:
    """Targets over the runs with and without siblings, at the first residual of the shape."""
    usual, noisy = SHAPE["residual"]["sd"][0], max(SHAPE["residual"]["sd"])
    every, null, tenth = (
        chosen(outcomes_of, usual),
        chosen(outcomes_of, usual, effect=0.0),
        chosen(outcomes_of, usual, effect=POWER),
    )
    false = sum(null.verdicts[verdict] for verdict in CLAIMED)
    noisy_null = chosen(outcomes_of, noisy, effect=0.0)
    coverage = round(every.coverage, 4)
    return [
        Target("proof.coverage", coverage, 0.75, ">="),
        Target("proof.coverage_upper", coverage, 0.90, "<="),
        Target("proof.false_realized", round(null.share(*CLAIMED), 4), 0.05, "<="),
        Target("proof.false_realized_upper95", round(upper_95(false, null.runs), 4), 0.08, "<="),
        Target("proof.power_10pct", round(tenth.share(*CLAIMED), 4), 0.80, ">="),
        Target("proof.inconclusive", round(every.share(EffectVerdict.INCONCLUSIVE), 4), 0.25, "<="),
        Target("proof.width_10pct", round(float(np.median(tenth.widths)), 4) if tenth.widths else None, 0.08, "<="),
        Target(
            "proof.inconclusive_noisy",
            round(chosen(outcomes_of, noisy).share(EffectVerdict.INCONCLUSIVE), 4),
            0.50,
            ">=",
        ),
        Target("proof.false_realized_noisy", round(noisy_null.share(*CLAIMED), 4), 0.08, "<="),
        *kind_targets(outcomes_of),
    ]


def kind_targets(outcomes_of: OutcomesByCondition) -> Iterator[Target]:
    """Yield the worst false verdict over all kinds, and the power in those whose level does not change."""

    def worst(*verdicts: EffectVerdict) -> float:
        nulls = (outcomes for condition, outcomes in outcomes_of.items() if not condition.effect)
        return round(max(outcomes.share(*verdicts) for outcomes in nulls), 4)

    yield Target("proof.kinds_false_realized", worst(*CLAIMED), 0.02, "<=")
    yield Target("proof.kinds_false_regressed", worst(EffectVerdict.REGRESSED), 0.02, "<=")
    powers = [
        outcomes.share(*CLAIMED)
        for condition, outcomes in outcomes_of.items()
        if condition.effect == POWER and condition.kind.name in STATIONARY
    ]
    yield Target("proof.kinds_power_10pct", round(min(powers), 4), 0.80, ">=")
    measured = [outcomes.coverage for outcomes in outcomes_of.values() if outcomes.widths]
    yield Target("proof.kinds_coverage", round(min(measured), 4), 0.75, ">=")
    yield Target("proof.kinds_coverage_upper", round(max(measured), 4), 0.90, "<=")


def upper_95(count: int, runs: int) -> float:
    """Upper bound of a share at 95 % confidence: Clopper and Pearson (1934), found by bisection."""
    low, high = count / runs, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        below = sum(
            math.exp(
                math.lgamma(runs + 1)
                - math.lgamma(k + 1)
                - math.lgamma(runs - k + 1)
                + k * math.log(middle)
                + (runs - k) * math.log1p(-middle)
            )
            for k in range(count + 1)
        )
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return high


if __name__ == "__main__":
    main()
