"""Verdicts on real noise: repeated benchmarks on machines that nobody changed, with effects of a known size injected.

A file has the columns series, suite, unit, hours, value. The runs of a quarter of a day are averaged, and are one
bucket of a history with 28 buckets a week: runs lie hours apart, and buckets of an hour would mostly be empty. Six
weeks are the baseline, the seventh follows the change; each series is cut into as many histories as it has runs for.
Nothing was restarted, so that the effect is that of a change without a restart. Series are of half 0 or 1 by the CRC-32
of their name: the floor of levels was chosen on half 0, and half 1 judges it.
"""

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from benchmarks.proof.histories import SHAPE
from benchmarks.report import Row, Target
from pertoken.proof.verification.estimate import EffectVerdict
from pertoken.proof.verification.question import Cycle, Promise, Question
from pertoken.proof.verification.verify import verify
from pertoken.window.like_for_like import HourlyOutcomes, student_quantile

Floats = NDArray[np.float64]
CYCLE = Cycle(bucket_s=6 * 3600, buckets=28)
BEFORE, AFTER = 6 * CYCLE.buckets, CYCLE.buckets
MIN_MEASURED = 0.9
"""Minimum share of the buckets with a run: below it a series has too few runs."""
TIMES = ("ns", "us", "µs", "ms", "s", "sec", "secs", "second", "seconds", "nanoseconds", "microseconds", "milliseconds")
"""First words of units of time. All other units are of work per time, so that their inverse is the cost."""
START = 4 * 86_400
CLAIMED = (EffectVerdict.REALIZED, EffectVerdict.PARTIAL)
Z95, Z975 = 1.6449, 1.9600


@dataclass(frozen=True, slots=True, eq=False)
class Null:
    """Seven weeks of one series: cost by bucket, NaN without a run, and the runs of the day before and after."""

    cost: Floats
    day_before: Floats
    day_after: Floats


def read_nulls(path: Path, half: int | None = None) -> Iterator[Null]:
    """Yield the histories of a file, or of one half of its series. Raises ValueError, KeyError for other columns."""
    series: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            key = row["series"], row["suite"], row["unit"]
            if half in (None, crc32(row["series"].encode()) % 2):
                series[key].append((float(row["hours"]), float(row["value"])))
    for (_, _, unit), runs in series.items():
        yield from _nulls(unit, np.array(sorted(runs)))


def _nulls(unit: str, runs: Floats) -> Iterator[Null]:
    runs = runs[runs[:, 1] > 0]
    hours, cost = runs[:, 0], runs[:, 1] if unit.split()[0].lower() in TIMES else 1 / runs[:, 1]
    bucket_h = CYCLE.bucket_s / 3600
    bucket = (hours // bucket_h).astype(int)
    count = np.bincount(bucket)
    mean = np.where(count > 0, np.bincount(bucket, cost) / np.maximum(count, 1), np.nan)
    for first in range(0, len(mean) - BEFORE - AFTER + 1, BEFORE + AFTER):
        part = mean[first : first + BEFORE + AFTER]
        if np.isfinite(part).mean() >= MIN_MEASURED:
            changed_h = (first + BEFORE) * bucket_h
            days = [cost[(hours >= start) & (hours < start + 24)] for start in (changed_h - 24, changed_h)]
            yield Null(part, *days)


def verdict_of(null: Null, effect: float) -> EffectVerdict:
    """Return the verdict on a history with an effect from its seventh week on."""
    known = np.flatnonzero(np.isfinite(null.cost))
    ts = START + CYCLE.bucket_s * known
    ones = np.ones(len(known))
    cost = null.cost[known] * np.where(known >= BEFORE, 1 + effect, 1.0)
    hours = HourlyOutcomes(ts, cost, ones, ones / 2, None, started_ts=np.full(len(ts), START))
    changed_at, until = (START + CYCLE.bucket_s * bucket for bucket in (BEFORE, BEFORE + AFTER))
    promise = Promise(*SHAPE["effects"]["promised"])
    return verify(Question(hours, changed_at, until, promise=promise, cycle=CYCLE)).verdict


def naive_claim(null: Null, effect: float) -> int:
    """Return -1 for a saving and 1 for a loss by Welch's 90 % interval of the week after against the week before."""
    before, after = null.cost[BEFORE - AFTER : BEFORE], null.cost[BEFORE:] * (1 + effect)
    parts = [values[np.isfinite(values)] for values in (before, after)]
    error = math.sqrt(sum(float(values.var(ddof=1)) / len(values) for values in parts))
    difference = float(parts[1].mean() - parts[0].mean())
    return int(np.sign(difference)) if abs(difference) > Z95 * error else 0


def bound_claim(null: Null, effect: float) -> int:
    """Return the claim by a noise bound of t·√2·SD of the repeats of the day before: -1 a saving, 1 a loss.

    It is that of Throttle (`throttle-pro` 0.6), which asks for at least three unchanged repeats within 24 hours.
    """
    if len(null.day_before) < 3 or not len(null.day_after):
        return 0
    bound = student_quantile(Z975, len(null.day_before) - 1) * math.sqrt(2) * float(null.day_before.std(ddof=1))
    difference = float(null.day_after.mean() * (1 + effect) - null.day_before.mean())
    return int(np.sign(difference)) if abs(difference) > bound else 0


def nulls_report(path: Path, half: int | None = None) -> tuple[list[Row], list[Target]]:
    """Return the rows and targets of a file, or of one half of its series."""
    nulls = list(read_nulls(path, half))
    if not nulls:
        raise ValueError(f"{path} has no series with runs in {MIN_MEASURED:.0%} of the quarters of seven weeks")
    verdicts = {effect: Counter(verdict_of(null, effect) for null in nulls) for effect in SHAPE["effects"]["values"]}
    rows = list(_rows(nulls, verdicts))
    none, fifth = verdicts[0.0], verdicts[-0.2]

    def share(counts: Counter[EffectVerdict], names: Iterable[EffectVerdict]) -> float:
        return round(sum(counts[name] for name in names) / len(nulls), 4)

    conclusive = (*CLAIMED, EffectVerdict.REGRESSED, EffectVerdict.NO_EFFECT)
    return rows, [
        Target("proof.nulls_false_realized", share(none, CLAIMED), 0.02, "<="),
        Target("proof.nulls_false_regressed", share(none, (EffectVerdict.REGRESSED,)), 0.02, "<="),
        Target("proof.nulls_conclusive", share(none, conclusive), 0.60, ">="),
        Target("proof.nulls_power_20", share(fifth, CLAIMED), 0.50, ">="),
    ]


def _rows(nulls: list[Null], verdicts: dict[float, Counter[EffectVerdict]]) -> Iterator[Row]:
    for effect, counts in verdicts.items():
        method = f"real noise, effect {effect:+.0%}, {len(nulls)} histories"
        for verdict, count in sorted(counts.items()):
            yield Row("pertoken", verdict.value, round(count / len(nulls), 4), "share", method)
        claims: tuple[tuple[str, Any], ...] = (
            ("naive before/after", naive_claim),
            ("t·√2·SD of a day", bound_claim),
        )
        for subject, claim in claims:
            signs = [claim(null, effect) for null in nulls]
            yield Row(subject, "claims a saving", round(signs.count(-1) / len(nulls), 4), "share", method)
            yield Row(subject, "claims a loss", round(signs.count(1) / len(nulls), 4), "share", method)
