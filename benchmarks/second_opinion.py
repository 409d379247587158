"""What NVIDIA's kernel tables say of measured changes, beside the forecast: `python -m benchmarks.second_opinion`.

Reads files in the format of `benchmarks.forecast` (measurements, pairs, and with `--ours` the predictions it wrote),
asks the tables about both sides of every pair, and prints the errors of the forecast, of the tables and of their
blend on the pairs that both predict. The blend's weights are learned again without the GPU, the model or the source
that they are scored on. Answers are remembered in a file, so only new questions need the package: `--python` names
the interpreter of an environment that has it.
"""

import argparse
import csv
import gzip
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.blend import FOLDS, Pair, blended, learn, left_out, macro, per_kind
from benchmarks.report import Row, Target, report
from pertoken.forecast.opinion import KernelTables, OperatingPoint, ask

ANSWERS = Path(__file__).parent / "data" / "kernel_answers.jsonl.gz"
"""Questions and what aiconfigurator 0.12.0 answered; its output, no measurement of anyone."""
Blank = TypeVar("Blank", float, None)
PROMPT_LEN, GENERATED_LEN = 1024.0, 512.0
"""Tokens where a row gives none: the same on both sides of a pair."""


def point(row: Mapping[str, str]) -> OperatingPoint:
    """The operating point of a measured row; blank cells take what an engine does by default."""
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
    """The cell as a number; a blank or a word ("peak", "unknown") is what `blank` says."""
    try:
        found = float(row[column])
    except ValueError:
        return blank
    return found if math.isfinite(found) else blank


class Answers:
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
def _remembered() -> Answers:
    return Answers()


def log_ratio(before: Mapping[str, str], after: Mapping[str, str]) -> float | None:
    """As `Answers.log_ratio`, from the committed answers alone: needs no package and starts nothing."""
    return _remembered().log_ratio(before, after)


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def pairs_of(
    measurements: Iterable[Mapping[str, str]],
    pairs: Iterable[Mapping[str, str]],
    ours: Mapping[tuple[str, str], float],
    answers: Answers,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Pair]:
    """The pairs that the forecast and the tables both predict, low-trust ones left out.

    `ours`: log-ratios by (before, after); a pair it does not hold is left out.
    """
    by_key = {row["key"]: row for row in measurements}
    found = []
    for done, pair in enumerate(pairs):
        progress(done)
        keys = pair["before"], pair["after"]
        if pair["trust"] == "low" or keys not in ours or not pair["ratio_output_tok_s"]:
            continue
        tables = answers.log_ratio(by_key[keys[0]], by_key[keys[1]])
        if tables is None:
            continue
        found.append(
            Pair(
                pair["kind"],
                pair["source"],
                pair["model"],
                pair["gpu_before"],
                pair["gpu_after"],
                math.log(float(pair["ratio_output_tok_s"])),
                ours[keys],
                tables,
            )
        )
    return found


def rows(pairs: Sequence[Pair]) -> tuple[list[Row], list[Target]]:
    """Errors of the forecast, the tables and the blend on common pairs, and whether the blend beats both."""
    predicted = {
        "forecast": [pair.ours for pair in pairs],
        "kernel tables": [pair.tables for pair in pairs],
        "blend": blended(pairs, learn(pairs)),
        **{f"blend, {name}": left_out(pairs, of) for name, of in FOLDS.items()},
    }
    found, averages = [], {}
    for subject, logs in predicted.items():
        errors = per_kind(pairs, logs)
        averages[subject] = macro(errors)
        for kind, (count, median, p90) in [*errors.items(), ("macro", (len(pairs), *averages[subject]))]:
            for what, value in (("median", median), ("p90", p90)):
                found.append(Row(subject, f"{kind} {what}", round(100 * value, 2), "%", f"{count} pairs"))
    folds = [averages[f"blend, {name}"] for name in FOLDS]
    targets = []
    for column, what in enumerate(("median", "p90")):
        mine = sum(fold[column] for fold in folds) / len(folds)
        best = min(averages["forecast"][column], averages["kernel tables"][column])
        targets.append(Target(f"opinion.blend_{what}_over_best", round(mine / best, 4), 1.0, "<="))
    return found, targets


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_opinion", description=__doc__)
    parser.add_argument("--measurements", type=Path, required=True, help="operating points, CSV")
    parser.add_argument("--pairs", type=Path, required=True, help="before/after pairs, CSV")
    parser.add_argument(
        "--ours",
        type=Path,
        help="CSV written by benchmarks.forecast; without it the tables are only asked",
    )
    parser.add_argument(
        "--python",
        help="of an environment with aiconfigurator; without it only remembered answers are used",
    )
    parser.add_argument("--answers", type=Path, default=ANSWERS, help="file that remembers answers")
    parser.add_argument("--learned", action="store_true", help="print the weights for opinion.toml on standard error")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    chosen = parser.parse_args(arguments)
    for path in (chosen.measurements, chosen.pairs, *([chosen.ours] if chosen.ours else [])):
        if not path.is_file():
            parser.error(f"{path} is not a file")
    measurements, pairs = rows_of(chosen.measurements), rows_of(chosen.pairs)
    tables = KernelTables(chosen.python) if chosen.python else None
    answers = Answers(chosen.answers, tables)

    def progress(done: int) -> None:
        if sys.stderr.isatty() or done % 1000 == 0:
            print(f"\r{done} of {len(pairs)} pairs", end="", file=sys.stderr, flush=True)

    try:
        everything = {(pair["before"], pair["after"]): 0.0 for pair in pairs}
        common = pairs_of(measurements, pairs, read_ours(chosen.ours) if chosen.ours else everything, answers, progress)
    finally:
        print(file=sys.stderr)
        if tables is not None:
            tables.close()
            answers.save()
    if not chosen.ours:
        print(f"{len(common)} pairs answered", file=sys.stderr)
        return
    if chosen.learned:
        for kind, (weight, sd) in learn(common).items():
            print(f"{kind} = {{ weight = {weight:g}, log_sd = {sd:.3f} }}", file=sys.stderr)
    text = report("second_opinion", *rows(common))
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n")


def read_ours(path: Path) -> dict[tuple[str, str], float]:
    """Log-ratios of `benchmarks.forecast`'s predictions; abstentions are left out."""
    return {
        (row["before"], row["after"]): math.log(float(row["predicted"]))
        for row in rows_of(path)
        if row["predicted"] and row["abstained"] in ("", "0", "False", "false")
    }


if __name__ == "__main__":
    main()
