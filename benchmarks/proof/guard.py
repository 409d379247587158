"""`python -m benchmarks.proof.guard [--seed N] [--runs 500]`: false alarms of the output guard, and what it catches.

A history is six weeks of requests from two production traces whose mix wanders, a change, and the week after. Nulls
change nothing of the outputs: traffic, mix, or prompts and outputs together move at the change. Two kinds of pages are
read: one that counts requests, their lengths and their ends, and one that counts prompt and generated tokens alone.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.proof.histories import HOUR_S, MONDAY, SHAPE, TRACES, WEEK_H
from benchmarks.report import Row, Target, report
from pertoken.proof.verification.guard import Guard, guard
from pertoken.proof.verification.question import Outputs, Question, Signal
from pertoken.window.columns import Floats
from pertoken.window.epochs import OutputCounts
from pertoken.window.like_for_like import HourlyOutcomes

LIMIT = 2048
"""Tokens at which outputs are cut."""
TOKENS = ("prompt_tokens", "generated_tokens")
"""Counts of an engine that counts no requests."""


@dataclass(frozen=True, slots=True)
class Case:
    """Change of outputs beside the traffic that moves with it."""

    name: str
    is_null: bool
    lengths: float = 1.0
    """Factor on prompts and outputs together."""
    outputs: float = 1.0
    """Factor on outputs alone."""
    run_on: float = 0.0
    """Part of the requests that run to the limit."""
    empty: float = 0.0
    """Part of the requests that generate one token."""
    failed: float = 0.0
    creep_per_day: float = 0.0
    """Of the logarithm of all lengths, over the whole history."""
    missing: float = 0.02
    """Part of the hours that was not measured."""


CASES = (
    Case("nothing but traffic and mix", True),
    Case("prompts and outputs × 0.6", True, lengths=0.6),
    Case("prompts and outputs × 1.6", True, lengths=1.6),
    Case("lengths creep by 0.3 % a day", True, creep_per_day=0.003),
    Case("a fifth of the hours is missing", True, missing=0.2),
    Case("all outputs run to the limit", False, run_on=1.0),
    Case("a third of the outputs runs to the limit", False, run_on=0.33),
    Case("outputs × 0.5", False, outputs=0.5),
    Case("one request in ten is empty", False, empty=0.1),
    Case("one request in ten fails", False, failed=0.1),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proof.guard", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=500, help="of each case")
    parser.add_argument("--out", type=Path, help="write the result to this file, too")
    arguments = parser.parse_args()
    shares = {
        (case, pages): alarms
        for number, case in enumerate(CASES)
        for pages, alarms in shares_of(np.random.default_rng([arguments.seed, number]), case, arguments.runs).items()
    }
    rows = [
        Row("pertoken", f"{case.name}; {pages}", share, "ratio", "alarms") for (case, pages), share in shares.items()
    ]
    text = report("proof.guard", rows, targets(shares))
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    print(text)


def targets(shares: Mapping[tuple[Case, str], float]) -> tuple[Target, ...]:
    """Return the false alarms of the worst null, and what the guard catches of pages that count requests."""
    nulls = max(share for (case, _), share in shares.items() if case.is_null)
    caught = min(share for (case, pages), share in shares.items() if not case.is_null and pages == "requests")
    broken = min(share for (case, _), share in shares.items() if case.run_on == 1.0)
    return (
        Target("proof.guard_false_alarms", nulls, 0.02, "<="),
        Target("proof.guard_caught", caught, 0.8, ">="),
        Target("proof.guard_broken_caught", broken, 0.95, ">="),
    )


def shares_of(rng: np.random.Generator, case: Case, runs: int) -> dict[str, float]:
    """Return the part of the runs with an alarm, by kind of pages."""
    alarms = {"requests": 0, "tokens alone": 0}
    for question in questions(rng, case, runs):
        alarms["requests"] += bool(guard_of(question).alarms)
        assert question.outputs is not None
        counts = question.outputs.counts
        tokens = OutputCounts(counts.ts, {name: counts.counts[name] for name in TOKENS})
        alone = Question(question.deployment, question.changed_at, question.until, outputs=Outputs(tokens))
        alarms["tokens alone"] += bool(guard_of(alone).alarms)
    return {pages: count / runs for pages, count in alarms.items()}


def guard_of(question: Question) -> Guard:
    """Return the guard of a question. Raises AssertionError where the length of outputs could not be compared."""
    result = guard(question)
    assert result is not None
    lengths = [reason for signal, reason in result.not_compared if signal is Signal.LENGTH]
    assert not lengths or "like prompts" in lengths[0], lengths
    return result


def questions(rng: np.random.Generator, case: Case, runs: int) -> Iterator[Question]:
    """Yield the questions of a case."""
    before = SHAPE["history"]["weeks_before"] * WEEK_H
    hours = before + SHAPE["history"]["hours_after"]
    for _ in range(runs):
        ts = MONDAY + HOUR_S * (np.arange(hours) + int(rng.integers(0, WEEK_H)))
        counts = _counts(rng, case, ts // HOUR_S, np.arange(hours) >= before)
        measured = rng.random(hours) >= case.missing
        kept = OutputCounts(ts[measured], {name: values[measured] for name, values in counts.items()})
        empty = np.zeros(0)
        nothing = HourlyOutcomes(np.zeros(0, np.int64), empty, empty, empty, None)
        yield Question(nothing, int(ts[before]), int(ts[-1]) + HOUR_S, outputs=Outputs(kept))


def _counts(rng: np.random.Generator, case: Case, hour: np.ndarray, changed: np.ndarray) -> dict[str, Floats]:
    """Return the counts of each hour: requests by the shape of load and mix, their lengths drawn from both traces."""
    load, mix, hours = SHAPE["load"], SHAPE["mix"], len(hour)
    day = 1 + 0.5 * np.sin(2 * np.pi * (hour % 24 - 9) / 24)
    level = np.exp(rng.uniform(*np.log(load["requests_per_hour"])))
    traffic = 1 + rng.uniform(-1, 1) * load["traffic_change"] * changed
    requests = rng.poisson(level * day * traffic * np.exp(_ar1(rng, hours, load["demand_sd"], load["demand_ar1"])))
    code = rng.uniform(*mix["code_share"]) + _ar1(rng, hours, mix["wobble_sd"], mix["wobble_ar1"])
    code = np.clip(code + rng.uniform(-1, 1) * mix["shift"] * changed, 0.02, 0.98)
    factor = np.exp(case.creep_per_day * np.arange(hours) / 24) * np.where(changed, case.lengths, 1.0)
    totals = {name: np.zeros(hours) for name in (*TOKENS, "log_lengths", "log_lengths_2", "ended_by_length", "empty")}
    for trace, share in (("code", code), ("conversation", 1 - code)):
        count = rng.poisson(requests * share)
        prompt, outputs = (_drawn(TRACES[trace][name]) for name in TOKENS)
        totals["prompt_tokens"] += _sum(rng, count, prompt[None, :] * factor[:, None])
        lengths = np.minimum(LIMIT, outputs[None, :] * (factor * np.where(changed, case.outputs, 1.0))[:, None])
        shares = np.where(changed, case.run_on, 0.0), np.where(changed, case.empty, 0.0)
        for part, of_part in (
            (1 - sum(shares), lengths),
            (shares[0], lengths * 0 + LIMIT),
            (shares[1], lengths * 0 + 1),
        ):
            of_requests = count * part
            logs = np.log(np.maximum(of_part, 1.0))
            totals["generated_tokens"] += _sum(rng, of_requests, of_part)
            totals["log_lengths"] += _sum(rng, of_requests, logs)
            totals["log_lengths_2"] += _sum(rng, of_requests, logs**2)
            totals["ended_by_length"] += rng.poisson(of_requests * (of_part >= LIMIT).mean(axis=1))
            totals["empty"] += rng.poisson(of_requests * (of_part <= 1).mean(axis=1))
    failed = rng.poisson(requests * np.where(changed, case.failed, 0.001)).astype(np.float64)
    ended = {"requests": requests, "lengths": requests, "ended_by_stop": requests - totals["ended_by_length"]}
    return {**totals, **{name: np.maximum(values, 0.0) for name, values in ended.items()}, "failed": failed}


def _drawn(quantiles: list[float]) -> Floats:
    places = np.linspace(0.005, 0.995, 100)
    return np.asarray(np.interp(places, np.linspace(0, 1, len(quantiles)), quantiles), np.float64)


def _sum(rng: np.random.Generator, count: Floats, values: Floats) -> Floats:
    """Return the sum of `count` draws of each hour's values, by their two moments."""
    noise = np.sqrt(count) * values.std(axis=1) * rng.standard_normal(len(values))
    return np.asarray(np.maximum(count * values.mean(axis=1) + noise, 0.0), np.float64)


def _ar1(rng: np.random.Generator, hours: int, sd: float, rho: float) -> Floats:
    values = rng.standard_normal(hours) * sd
    for at in range(1, hours):
        values[at] = rho * values[at - 1] + np.sqrt(1 - rho**2) * values[at]
    return values


if __name__ == "__main__":
    main()
