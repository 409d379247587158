"""`python -m benchmarks.proof [--seed N] [--runs 400]`: whether verdicts and intervals hold on known effects.

Every run is a history of six weeks, a change with a known effect on its device-seconds per token, and the week after.
Runs are made for each effect, residual and with and without siblings. The figures depend on seed and runs alone.
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

from benchmarks.proof.histories import SHAPE
from benchmarks.proof.runs import Condition, Outcomes, added, run
from benchmarks.report import Row, Target, report
from pertoken.proof.verification.verdict import Verdict

CLAIMED = (Verdict.REALIZED, Verdict.PARTIAL)
POWER = -0.10
"""Effect whose detection is a target."""
FAST_DRIFT = 0.01
"""Per week: some rows show what a drift far above the shape's does."""

OutcomesByCondition = Mapping[Condition, Outcomes]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=400, help="per effect, residual and number of siblings")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the result to this file, too")
    arguments = parser.parse_args()
    began = time.perf_counter()
    outcomes_of = run(arguments.seed, arguments.runs, conditions(), arguments.processes)
    seconds = time.perf_counter() - began
    rows = [
        Row("pertoken", "seconds", round(seconds, 1), "s", f"{arguments.processes} processes, seed {arguments.seed}"),
        *(row for condition, outcomes in outcomes_of.items() for row in condition_rows(condition, outcomes)),
        *summary_rows(outcomes_of),
    ]
    text = report("proof", rows, targets(outcomes_of))
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    print(text)


def conditions() -> list[Condition]:
    """Return all conditions; the residual that the targets are about comes first."""
    siblings = (0, SHAPE["history"]["siblings"])
    effects = SHAPE["effects"]["values"]
    usual = [Condition(sd, n, effect) for sd in SHAPE["residual"]["sd"] for n in siblings for effect in effects]
    sd = SHAPE["residual"]["sd"][0]
    jumps = [Condition(sd, 0, effect, jump_sd=jump_sd) for jump_sd in SHAPE["jumps"]["sd"] for effect in (0.0, POWER)]
    return usual + [Condition(sd, n, 0.0, FAST_DRIFT) for n in siblings] + jumps


def chosen(
    outcomes_of: OutcomesByCondition, sd: float, siblings: int | None = None, effect: float | None = None
) -> Outcomes:
    """Outcomes of a residual at the drift of the shape, by siblings and effect where these are given."""
    return added(
        outcomes
        for condition, outcomes in outcomes_of.items()
        if condition.sd == sd
        and condition.drift_sd is None
        and not condition.jump_sd
        and siblings in (None, condition.siblings)
        and effect in (None, condition.effect)
    )


def condition_rows(of: Condition, outcomes: Outcomes) -> Iterator[Row]:
    method = f"residual {of.sd:.0%}, {of.siblings or 'no'} siblings, effect {of.effect:+.0%}, {outcomes.runs} runs"
    if of.drift_sd is not None:
        method += f", drift {of.drift_sd:.1%} per week"
    if of.jump_sd:
        method += f", level jumps by {of.jump_sd:.0%}"
    for verdict in Verdict:
        if outcomes.verdicts[verdict]:
            yield Row("pertoken", verdict.value, round(outcomes.share(verdict), 4), "share", method)
    for code, count in sorted(outcomes.codes.items()):
        yield Row("pertoken", f"inconclusive: {code}", round(count / outcomes.runs, 4), "share", method)
    yield Row("pertoken", "covered by the 80 % interval", round(outcomes.covered / outcomes.runs, 4), "share", method)
    if outcomes.widths:
        yield Row("pertoken", "width of the 90 % interval", round(float(np.median(outcomes.widths)), 4), "1", method)
    yield Row("pertoken", "widened by placebo dates", round(outcomes.widened / outcomes.runs, 4), "share", method)
    yield Row("naive before/after", "claims a saving", round(outcomes.naive / outcomes.runs, 4), "share", method)


def summary_rows(outcomes_of: OutcomesByCondition) -> Iterator[Row]:
    for siblings in (0, SHAPE["history"]["siblings"]):
        for sd in SHAPE["residual"]["sd"]:
            outcomes = chosen(outcomes_of, sd, siblings)
            method = f"residual {sd:.0%}, {siblings or 'no'} siblings, all effects, {outcomes.runs} runs"
            covered = outcomes.covered / outcomes.runs
            yield Row("pertoken", "covered by the 80 % interval", round(covered, 4), "share", method)
            yield Row("pertoken", "inconclusive", round(outcomes.share(Verdict.INCONCLUSIVE), 4), "share", method)


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
    coverage = round(every.covered / every.runs, 4)
    return [
        Target("proof.coverage", coverage, 0.75, ">="),
        Target("proof.coverage_upper", coverage, 0.90, "<="),
        Target("proof.false_realized", round(null.share(*CLAIMED), 4), 0.05, "<="),
        Target("proof.false_realized_upper95", round(upper_95(false, null.runs), 4), 0.08, "<="),
        Target("proof.power_10pct", round(tenth.share(*CLAIMED), 4), 0.80, ">="),
        Target("proof.inconclusive", round(every.share(Verdict.INCONCLUSIVE), 4), 0.25, "<="),
        Target("proof.width_10pct", round(float(np.median(tenth.widths)), 4) if tenth.widths else None, 0.08, "<="),
        Target(
            "proof.inconclusive_noisy", round(chosen(outcomes_of, noisy).share(Verdict.INCONCLUSIVE), 4), 0.50, ">="
        ),
        Target("proof.false_realized_noisy", round(noisy_null.share(*CLAIMED), 4), 0.08, "<="),
    ]


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
