"""`python -m benchmarks.recovery [--seeds 20] [--first-seed N]`: planted problems found, healthy hosts left alone.

Each seed is a fleet of 8 hosts and 7 days. Its simulator shares the catalog and the forecast's term formulas with the
advisor, and nothing else (import-linter). A problem is found where one of the rules that count for it is first or
second among the open advice on its target.
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.recovery.judged import Judged, Result, judge
from benchmarks.report import Row, Target, report

US = "pertoken"
HOSTS, DAYS = 8, 7
DOLLAR = 1.0
"""Bankable dollars a month below which a healthy service is left alone."""


def rows_of(results: dict[int, Result]) -> list[Row]:
    """What was found, by kind, and what is off: each problem that was missed or lies outside, by name."""
    judged = [each for result in results.values() for each in result.problems]
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for each in judged:
        by_kind[each.kind].append(each)
    rows = []
    for kind, some in sorted(by_kind.items()):
        found = sum(each.found for each in some)
        priced = [each for each in some if each.inside is not None]
        inside = sum(bool(each.inside) for each in priced)
        how = f"truth inside the interval in {inside} of {len(priced)} that were priced"
        rows.append(Row(US, f"found.{kind}", found / len(some), f"of {len(some)}", how))
    for each in judged:
        if not each.found:
            rows.append(Row(US, f"missed.{each.seed}.{each.kind}", each.place, "place", each.target))
        elif each.inside is False:
            rows.append(Row(US, f"outside.{each.seed}.{each.kind}", each.truth_usd, "$/month", str(each.interval_usd)))
    for seed, result in results.items():
        for name, usd in result.healthy.items():
            if usd >= DOLLAR:
                rows.append(Row(US, f"disturbed.{seed}.{name}", usd, "$/month", "bankable, on a healthy service"))
    made, advised = (sum(getattr(each, name) for each in results.values()) for name in ("made_s", "advised_s"))
    rows.append(Row(US, "seconds_making", made, "s", "wall time, all seeds"))
    rows.append(Row(US, "seconds_advising", advised, "s", "wall time, all seeds"))
    return rows


def targets_of(results: dict[int, Result]) -> list[Target]:
    """The three figures of the benchmark."""
    judged = [each for result in results.values() for each in result.problems]
    healthy = [usd < DOLLAR for result in results.values() for usd in result.healthy.values()]
    inside = [each.inside for each in judged if each.inside is not None]

    def share(of: list[bool]) -> float | None:
        return sum(of) / len(of) if of else None

    return [
        Target("recovery.found", share([each.found for each in judged]), 0.95, ">="),
        Target("recovery.quiet_on_healthy", share(healthy), 0.95, ">="),
        Target("recovery.coverage", share([bool(each) for each in inside]), 0.75, ">="),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results = {}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with tempfile.TemporaryDirectory() as folder:
            results[seed] = judge(seed, HOSTS, DAYS, Path(folder))
    text = report("recovery", rows_of(results), targets_of(results))
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
