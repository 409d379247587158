"""`python -m benchmarks.recovery [--seeds 20] [--first-seed N]`: planted problems found, healthy hosts left alone.

Each seed is a fleet of 8 hosts and 7 days. Its simulator shares the catalog and the forecast's term formulas with the
advisor, and nothing else (import-linter). A problem is found where one of the rules that count for it is first or
second among the open advice on its target.
"""

import argparse
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.recovery.judged import Judged, Result, judge
from benchmarks.report import Row, Target, report

US = "pertoken"
HOSTS, DAYS = 8, 7
DOLLAR = 1.0
"""Bankable dollars a month below which a healthy service is left alone."""


def rows_of(results: dict[int, Result]) -> list[Row]:
    """Return the recovery rate by kind, and a row for each problem that was missed or priced outside its interval."""
    judged = [problem for result in results.values() for problem in result.problems]
    by_kind: dict[str, list[Judged]] = defaultdict(list)
    for problem in judged:
        by_kind[problem.kind].append(problem)
    rows = []
    for kind, some in sorted(by_kind.items()):
        n_matched = sum(problem.recovered for problem in some)
        priced = [problem for problem in some if problem.inside is not None]
        inside = sum(bool(problem.inside) for problem in priced)
        how = f"truth inside the interval in {inside} of {len(priced)} that were priced"
        rows.append(Row(US, f"found.{kind}", n_matched / len(some), f"of {len(some)}", how))
    for problem in judged:
        if not problem.recovered:
            rows.append(Row(US, f"missed.{problem.seed}.{problem.kind}", problem.place, "place", problem.target))
        elif problem.inside is False:
            rows.append(
                Row(
                    US,
                    f"outside.{problem.seed}.{problem.kind}",
                    problem.truth_usd,
                    "$/month",
                    str(problem.interval_usd),
                )
            )
    for seed, result in results.items():
        for name, usd in result.healthy.items():
            if usd >= DOLLAR:
                rows.append(Row(US, f"disturbed.{seed}.{name}", usd, "$/month", "bankable, on a healthy service"))
    made, advised = (sum(getattr(result, name) for result in results.values()) for name in ("made_s", "advised_s"))
    rows.append(Row(US, "seconds_making", made, "s", "wall time, all seeds added up; several run at a time"))
    rows.append(Row(US, "seconds_advising", advised, "s", "wall time, all seeds"))
    return rows


def targets_of(results: dict[int, Result]) -> list[Target]:
    """Return the three figures of the benchmark."""
    judged = [problem for result in results.values() for problem in result.problems]
    healthy = [usd < DOLLAR for result in results.values() for usd in result.healthy.values()]
    inside = [problem.inside for problem in judged if problem.inside is not None]

    def share(of: list[bool]) -> float | None:
        return sum(of) / len(of) if of else None

    return [
        Target("recovery.found", share([problem.recovered for problem in judged]), 0.95, ">="),
        Target("recovery.quiet_on_healthy", share(healthy), 0.95, ">="),
        Target("recovery.coverage", share([bool(covered) for covered in inside]), 0.85, ">="),
    ]


def result_of(seed: int) -> Result:
    """Make the fleet of a seed in a temporary folder, advise on it, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        return judge(seed, HOSTS, DAYS, Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="fleets at a time")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    with ProcessPoolExecutor(asked.workers) as pool:
        results = dict(zip(seeds, pool.map(result_of, seeds), strict=True))
    text = report("recovery", rows_of(results), targets_of(results))
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
