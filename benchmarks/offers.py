"""`python -m benchmarks.offers [--seeds 11 301 302 303]`: the money of moves in generated fleets, and how wide it is.

Each seed is a demo of 24 hosts and 14 days. Counted are open priced rows that break a promise: a move without a named
price, an interval without width on list prices, and a likely bill that rises without capacity of more worth.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Row, Target, report
from pertoken.demo.making import SETTINGS_FILE, make
from pertoken.provenance import Provenance
from pertoken.store.connect.location import locate

US = "pertoken"
SEEDS = (11, 301, 302, 303)
HOSTS, DAYS = 24, 14
PLACES = ("placement.accelerator", "placement.instance_type", "placement.provider", "placement.region")
MAX_WIDTH = 0.8
"""Limit of the median of (high - low) / likely of bankable rows."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Open priced rows of one fleet, and those that break a promise, by rule."""

    seed: int
    n_priced: int
    without_offer: tuple[str, ...]
    without_width: tuple[str, ...]
    pays_more: tuple[str, ...]
    widths: tuple[float, ...]
    """(high - low) / likely of the bankable rows."""


def advice(seed: int, hosts: int, days: float, folder: Path) -> list[Mapping[str, Any]]:
    """Make the demo of a seed and return its recommendations by the command line."""
    make(locate(str(folder)), seed, hosts, days, int(time.time()))
    command = [sys.executable, "-m", "pertoken", "advise", "--json", "--db", str(folder)]
    done = subprocess.run(
        [*command, "--config", str(folder / SETTINGS_FILE)], capture_output=True, text=True, check=True
    )
    recommendations: list[Mapping[str, Any]] = json.loads(done.stdout)["recommendations"]
    return recommendations


def checked(seed: int, recommendations: Sequence[Mapping[str, Any]]) -> Checked:
    """Return which open rows break a promise; a row is judged by its first variant."""
    first = [(row["rule_id"], row["variants"][0]) for row in recommendations if row["state"] == "OPEN"]
    priced = [(rule_id, variant) for rule_id, variant in first if variant["saving"] or variant["if_confirmed"]]
    bankable = [(rule_id, variant) for rule_id, variant in priced if variant["saving"] and net(variant)[1] > 0]
    return Checked(
        seed,
        len(priced),
        tuple(rule_id for rule_id, variant in priced if moves(variant) and not names_price(variant)),
        tuple(rule_id for rule_id, variant in bankable if is_listed(variant) and net(variant)[0] == net(variant)[2]),
        tuple(rule_id for rule_id, variant in priced if net(variant)[1] < 0 and not serves_more(variant)),
        tuple((net(variant)[2] - net(variant)[0]) / net(variant)[1] for _, variant in bankable),
    )


def net(variant: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the net saving: low, likely, high."""
    low, likely, high = (variant["saving"] or variant["if_confirmed"])["net"]
    return low, likely, high


def serves_more(variant: Mapping[str, Any]) -> bool:
    """Return whether the capacity is worth more than the rise of the bill: such a row pays more and serves more."""
    capacity: int = (variant["saving"] or variant["if_confirmed"])["capacity"][1]
    return capacity > -net(variant)[1]


def moves(variant: Mapping[str, Any]) -> bool:
    """Return whether a variant takes devices of another place."""
    return any(edit["field"] in PLACES for edit in variant["edits"])


def names_price(variant: Mapping[str, Any]) -> bool:
    """Return whether an assumption names the price that the money rests on."""
    return any("/h" in line or "per million tokens" in line or "/Mtok" in line for line in variant["assumptions"])


def is_listed(variant: Mapping[str, Any]) -> bool:
    """Return whether list prices are the weakest part of its money."""
    return bool(variant["provenance"] == Provenance.LISTED.label)


def rows_of(fleets: Sequence[Checked]) -> list[Row]:
    """Return the counts of each fleet."""
    rows = []
    for fleet in fleets:
        rows.append(Row(US, f"priced.{fleet.seed}", fleet.n_priced, "rows", "open, first variant"))
        for name in ("without_offer", "without_width", "pays_more"):
            rules = getattr(fleet, name)
            rows.append(Row(US, f"{name}.{fleet.seed}", len(rules), "rows", ", ".join(sorted(set(rules))) or "none"))
    return rows


def targets_of(fleets: Sequence[Checked]) -> list[Target]:
    """Return the four figures of the benchmark."""
    widths = [width for fleet in fleets for width in fleet.widths]
    broken = {
        name: float(sum(len(getattr(fleet, name)) for fleet in fleets))
        for name in ("without_offer", "without_width", "pays_more")
    }
    width = statistics.median(widths) if widths else None
    return [
        *(Target(f"offers.{name}", count, 0.0, "<=") for name, count in broken.items()),
        Target("offers.width_over_likely", width, MAX_WIDTH, "<="),
    ]


def main() -> None:
    """Print the result; exit with 1 if a figure misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    fleets = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            fleets.append(checked(seed, advice(seed, options.hosts, options.days, Path(folder))))
    targets = targets_of(fleets)
    printed = report("offers", rows_of(fleets), targets)
    print(printed)
    if options.out:
        options.out.write_text(printed + "\n", encoding="utf-8")
    sys.exit(not all(target.met for target in targets))


if __name__ == "__main__":
    main()
