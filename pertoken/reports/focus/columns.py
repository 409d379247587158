"""Columns of our FOCUS rows: names, level, whether they may be null, and type, as data.

Source: FOCUS 1.4, dataset Cost and Usage, column list of the specification's repository
(github.com/FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec, specification/datasets/cost_and_usage), as of 2026-11. Columns
that do not apply are left out: commitment discounts and programs, capacity reservations, contracts, sub-accounts,
SKUs and unit prices (no price list is published), other currencies and availability zones.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

VERSION = "1.4"
MANDATORY = "mandatory"


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """One column."""

    name: str
    level: str
    """`mandatory`, `conditional` or `recommended` by FOCUS; `own` with the prefix `x_`."""
    nullable: bool
    type: str


@cache
def columns() -> tuple[FocusColumn, ...]:
    """Return the columns in their order."""
    text = (files("pertoken.reports.focus") / "columns.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(FocusColumn(row["column"], row["level"], row["nulls"] == "yes", row["type"]) for row in rows)
