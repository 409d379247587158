"""NVIDIA's kernel tables compared with measured changes and the forecast: `python -m benchmarks.second_opinion`.

Reads files in the format of `benchmarks.forecast`, asks the tables about both sides of every pair, and prints the
errors of the forecast, of the tables and of their blend on the pairs that both predict. The forecast is refitted and
the blend's weights are learned again without the GPU, the model or the source that they are scored on; the tables were
not made from these measurements. KernelRates are remembered in a file, so only new questions need the package:
`--python` names the interpreter of an environment that has it.
"""

import argparse
import gzip
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.forecast.blend import FOLDS, Pair, learn, left_out, macro, per_kind
from benchmarks.forecast.fit import Evidence
from benchmarks.forecast.fit_table import prior
from benchmarks.forecast.folds import apart
from benchmarks.forecast.nested import left_out as without
from benchmarks.forecast.pairs import as_changes, reasons
from benchmarks.forecast.performance.measurements import BadFile, Measurements, Pairs, read
from benchmarks.report import Row, Target, report
from pertoken.forecast.candidates import Array
from pertoken.forecast.kinds import UNKNOWN_TO_TABLES
from pertoken.forecast.second_opinion.opinion import KernelTables, OperatingPoint, ask

ANSWERS = Path(__file__).parents[1] / "data" / "kernel_answers.jsonl.gz"
"""Questions and what aiconfigurator 0.12.0 answered; its output, no measurement of anyone."""
Blank = TypeVar("Blank", float, None)
PROMPT_LEN, GENERATED_LEN = 1024.0, 512.0
"""Tokens where a row gives none: the same on both sides of a pair."""


def point(row: Mapping[str, str]) -> OperatingPoint:
    """Return the operating point of a measured row; blank cells take what an engine does by default."""
    devices = int(_number(row, "n_gpus", 1))
    pp, attention_dp = int(_number(row, "pp", 1)), int(_number(row, "attn_dp", 1))
    tp = int(_number(row, "tp", devices))
    if tp * pp * attention_dp < devices and devices % (pp * attention_dp) == 0:
        tp = devices // (pp * attention_dp)
    return OperatingPoint(
        model=row["model"],
        accelerator=row["gpu"],
        engine=row["engine"].lower().partition(" ")[0],
        weight_dtype=row["weight_dtype"],
        kv_dtype=row["kv_dtype"] or None,
        prompt_len=_number(row, "input_tokens", PROMPT_LEN),
        generated_len=_number(row, "output_tokens", GENERATED_LEN),
        concurrency=_number(row, "batch_or_concurrency", None),
        tp=tp,
        pp=pp,
        attention_dp=attention_dp,
        ep=int(_number(row, "ep", 1)),
    )


def _number(row: Mapping[str, str], column: str, blank: Blank) -> float | Blank:
    """Return the cell as a number; a blank or a word ("peak", "unknown") counts as `blank`."""
    try:
        value = float(row[column])
    except ValueError:
        return blank
    return value if math.isfinite(value) else blank


class KernelRates:
    """Remembered answers of the kernel tables, and the tables themselves for new questions where there are any."""

    def __init__(self, path: Path = ANSWERS, tables: KernelTables | None = None) -> None:
        self._path, self._tables = path, tables
        self._known: dict[str, dict[str, Any]] = {}
        if path.exists():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                self._known = dict(json.loads(line) for line in lines)

    def log_rate(self, row: Mapping[str, str]) -> float | None:
        """Logarithm of output tokens/s of a measured row's configuration; None where the tables do not cover it."""
        question = ask(point(row))
        if isinstance(question, str):
            return None
        line = json.dumps(question, sort_keys=True)
        if line not in self._known and self._tables is not None:
            self._known[line] = self._tables.answer(question)
        answer = self._known.get(line, {})
        return math.log(answer["tok_s"]) if "tok_s" in answer else None

    def log_ratio(self, before: Mapping[str, str], after: Mapping[str, str]) -> float | None:
        """Logarithm of the ratio of output tokens/s of two measured rows' configurations, after over before."""
        rates = self.log_rate(before), self.log_rate(after)
        return None if rates[0] is None or rates[1] is None else rates[1] - rates[0]

    def save(self) -> None:
        """Write all answers, in the order of their questions and without a date, so that the same ones are one file."""
        text = "".join(json.dumps(item) + "\n" for item in sorted(self._known.items()))
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_bytes(gzip.compress(text.encode(), mtime=0))


@cache
def _remembered() -> KernelRates:
    return KernelRates()


def log_ratio(before: Mapping[str, str], after: Mapping[str, str]) -> float | None:
    """As `KernelRates.log_ratio`, from the committed answers alone: needs no package and starts nothing."""
    return _remembered().log_ratio(before, after)


def common(
    measurements: Measurements, pairs: Pairs, answers: KernelRates, progress: Callable[[str], None]
) -> dict[int, Pair]:
    """Return the pairs that the tables predict, by row number, without the forecast's part; low-trust ones and
    those that the forecast abstains from are left out, and so is what tables are not asked about: drafts that begin or
    end, a cache in FP8 where hardware does not convert it, the prefix cache and chunked prefill."""
    why, drafted = reasons(measurements, pairs), measurements.candidates.drafted_len
    asked = ~np.isin(as_changes(measurements, pairs).column("kind"), list(UNKNOWN_TO_TABLES))
    common_pairs = {}
    for place, row in enumerate(pairs.rows):
        if place % 200 == 0:
            progress(f"asking the tables: {place} of {len(pairs.rows)} pairs")
        before, after = (measurements.rows[end[place]] for end in (pairs.before, pairs.after))
        tables = answers.log_ratio(before, after)
        if tables is None or row["trust"] == "low" or why[place] or not np.isfinite(pairs.log_ratio[place]):
            continue
        if not asked[place] or drafted[pairs.before[place]] != drafted[pairs.after[place]]:
            continue
        seen, opinion = measurements.tok_s[pairs.before[place]], answers.log_rate(before)
        doubt = abs(opinion - math.log(seen)) if opinion is not None and seen > 0 else math.inf
        common_pairs[place] = Pair(
            kind=row["kind"],
            source=row["source"],
            model=row["model"],
            gpu_before=row["gpu_before"],
            gpu_after=row["gpu_after"],
            measured=float(pairs.log_ratio[place]),
            ours=math.nan,
            tables=tables,
            doubt=doubt,
        )
    return common_pairs


def with_ours(common_pairs: Mapping[int, Pair], ours: Array) -> list[Pair]:
    """Return the pairs that the forecast predicts too."""
    return [replace(pair, ours=float(ours[place])) for place, pair in common_pairs.items() if np.isfinite(ours[place])]


def rows(folds: Mapping[str, Sequence[Pair]]) -> tuple[list[Row], list[Target]]:
    """Errors of the forecast, the tables and the blend on common pairs, fold by fold, and whether the blend beats
    both on their mean."""
    result_rows: list[Row] = []
    averages: dict[str, list[tuple[float, float]]] = {}
    for fold, pairs in folds.items():
        predicted = {
            "forecast": [pair.ours for pair in pairs],
            "kernel tables": [pair.tables for pair in pairs],
            "blend": left_out(pairs, FOLDS[fold]),
        }
        for subject, logs in predicted.items():
            errors = per_kind(pairs, logs)
            mean = macro(errors)
            averages.setdefault(subject, []).append(mean)
            for kind, (count, median, p90) in [*errors.items(), ("macro", (len(pairs), *mean))]:
                for what, value in (("median", median), ("p90", p90)):
                    method = f"{count} pairs, refitted without their {fold}"
                    result_rows.append(Row(subject, f"{fold} out, {kind} {what}", round(100 * value, 2), "%", method))
    targets = []
    for column, what in enumerate(("median", "p90")):
        mean_of = {name: sum(fold[column] for fold in folds) / len(folds) for name, folds in averages.items()}
        for name, value in mean_of.items():
            result_rows.append(Row(name, f"macro {what}", round(100 * value, 2), "%", "mean of the folds"))
        for other in ("forecast", "kernel tables"):
            ratio = mean_of["blend"] / mean_of[other]
            targets.append(Target(f"opinion.blend_{what}_over_{other.replace(' ', '_')}", round(ratio, 4), 1.0, "<="))
    return result_rows, targets


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask, learn, score, and print one JSON object."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.second_opinion",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--measurements", type=Path, required=True, help="operating points, CSV")
    parser.add_argument("--pairs", type=Path, required=True, help="before/after pairs, CSV")
    parser.add_argument("--python", help="of an environment with aiconfigurator; without it, remembered answers only")
    parser.add_argument("--answers", type=Path, default=ANSWERS, help="file that remembers answers")
    parser.add_argument("--learned", action="store_true", help="print the weights for opinion.toml on standard error")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    chosen = parser.parse_args(arguments)
    try:
        measurements, pairs = read(chosen.measurements, chosen.pairs)
    except BadFile as error:
        parser.exit(2, f"{error}\n")

    def progress(step: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{step}", end="", file=sys.stderr, flush=True)

    tables = KernelTables(chosen.python) if chosen.python else None
    answers = KernelRates(chosen.answers, tables)
    try:
        common_pairs = common(measurements, pairs, answers, progress)
    finally:
        if tables is not None:
            tables.close()
            answers.save()
    known = measurements, as_changes(measurements, pairs)
    evidence = Evidence(*known)
    folds = {}
    for fold in FOLDS:
        raw = without(*known, evidence, prior(), apart(*known, fold), progress)
        folds[fold] = with_ours(common_pairs, raw.log_ratio)
    progress("")
    if chosen.learned:
        learned = learn([pair for fold in folds.values() for pair in fold])
        print(f"[blend]\nweight = {learned.weight:g}\n\n[blend.log_sd]", file=sys.stderr)
        for kind, sd in [*learned.log_sd.items(), ("other", learned.other_log_sd)]:
            print(f"{kind} = {sd:.3f}", file=sys.stderr)
    text = report("second_opinion", *rows(folds))
    print(text)
    if chosen.json:
        chosen.json.write_text(f"{text}\n", encoding="utf-8")
