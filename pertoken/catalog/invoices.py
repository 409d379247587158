"""Column formats of the bills that clouds export.

Where exports of one format differ, a column is written with its other names, a bar between them: the first that a row
has counts.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache

from pertoken.catalog.offers import toml_table


@dataclass(frozen=True, slots=True)
class InvoiceFormat:
    """Columns of one format by purpose; None: it has no such column."""

    name: str
    title: str
    needs: tuple[str, ...]
    resource: str
    """Columns that identify what was used; a line belongs to the host that any of them names."""
    start: str
    cost: tuple[str, ...]
    """Columns of the billed cost: the first one with a number counts."""
    currency: str
    kind: str
    description: str
    source: str
    as_of: date
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of a line by the format's value: usage, covered (by a commitment), discount, negation, credit, tax,
    commitment or fee."""
    end: str | None = None
    effective: tuple[str, ...] = ()
    """Columns of the cost of covered usage with its share of the commitment: the first one with a number counts."""
    credits: str | None = None
    """Column with a list of amounts to subtract from the cost, each with its type."""
    promotions: tuple[str, ...] = ()
    """Begin of the types of credits that pay for usage from elsewhere and leave its price as it is."""
    commitments: tuple[str, ...] = ()
    """Begin of the types of credits of usage that a fee on another line pays for, so that its price is not known."""
    list: str | None = None
    """Column of the cost at list prices."""
    list_price: str | None = None
    """Column of the list price per unit, if `list` is missing."""
    per_usd: str | None = None
    """Column of the exchange rate: units of the currency per dollar."""
    priced_currency: str | None = None
    """Column of the currency that `per_usd` is to, and `priced_cost` is in."""
    priced_cost: str | None = None
    """Column of the effective cost in that currency."""
    split: str | None = None
    """Column that is set on lines that divide the cost of another line, which are not added."""
    allocated: str | None = None
    """Column that is set on lines that together are one charge, which was divided among them."""
    amount: str | None = None
    unit: str | None = None
    """Unit of `amount`."""
    hours_of: str | None = None
    """Part of the path of a resource that has hours; None: any has."""
    hours_by_time: bool = False
    """Whether a resource was used for all of a line's time, and amounts count its cores and bytes by the second."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, without duplicates."""
        first = (self.resource, self.start, self.end, self.currency, self.kind, self.description)
        second = (self.credits, self.list, self.list_price, self.per_usd, self.amount, self.unit)
        third = (self.priced_currency, self.priced_cost, self.split, self.allocated)
        specs = filter(None, (*self.needs, *first, *self.cost, *self.effective, *second, *third))
        return tuple(dict.fromkeys(column for spec in specs for column in names_of(spec)))


def plain(column: str) -> str:
    """Return a column name normalized for comparison: letters and digits in lower case.

    One column is `line_item_unblended_cost`, `lineItem/UnblendedCost` or a field of an object in different exports.
    """
    return re.sub(r"[^a-z0-9]", "", column.casefold())


def names_of(spec: str) -> tuple[str, ...]:
    """Return the names of a column."""
    return tuple(spec.split("|"))


def format_of(columns: Collection[str]) -> InvoiceFormat | None:
    """Return the format of a file with these columns; None if it is not known."""
    names = set(map(plain, columns))
    return next(
        (form for form in formats() if all(names & set(map(plain, names_of(need))) for need in form.needs)), None
    )


@cache
def formats() -> tuple[InvoiceFormat, ...]:
    """Return the known formats."""
    return tuple(InvoiceFormat(name, **row) for name, row in toml_table("invoices.toml").items())
