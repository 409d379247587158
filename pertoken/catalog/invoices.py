"""Column formats of the bills that clouds export."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class InvoiceFormat:
    """Columns of one format by purpose; None: it has no such column."""

    name: str
    title: str
    needs: tuple[str, ...]
    resource: str
    start: str
    cost: tuple[str, ...]
    """Columns of the billed cost: the first one with a number counts."""
    currency: str
    kind: str
    description: str
    source: str
    as_of: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Kind of a line by the format's value: usage, covered (by a commitment), discount, negation, credit, tax,
    commitment or fee."""
    end: str | None = None
    effective: tuple[str, ...] = ()
    """Columns of the cost of covered usage with its share of the commitment: the first one with a number counts."""
    credits: str | None = None
    """Column with a list of amounts to subtract from the cost."""
    list: str | None = None
    """Column of the cost at list prices."""
    list_price: str | None = None
    """Column of the list price per unit, if `list` is missing."""
    per_usd: str | None = None
    """Column of the exchange rate: units of the currency per dollar."""
    amount: str | None = None
    unit: str | None = None
    """Unit of `amount`."""
    hours_by_time: bool = False
    """Whether a resource was used for all of a line's time, and amounts count its cores and bytes by the second."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, without duplicates."""
        one = (self.resource, self.start, self.end, self.currency, self.kind, self.description)
        other = (self.credits, self.list, self.list_price, self.per_usd, self.amount, self.unit)
        return tuple(dict.fromkeys(filter(None, (*self.needs, *one, *self.cost, *self.effective, *other))))


def plain(column: str) -> str:
    """Return a column name normalized for comparison: lower case, with dots."""
    return column.strip().casefold().replace("_", ".")


def format_of(columns: Collection[str]) -> InvoiceFormat | None:
    """Return the format of a file with these columns; None if it is not known."""
    names = set(map(plain, columns))
    return next((known for known in formats() if {plain(name) for name in known.needs} <= names), None)


@cache
def formats() -> tuple[InvoiceFormat, ...]:
    """Return the known formats."""
    text = files("pertoken.catalog").joinpath("invoices.toml").read_text(encoding="utf-8")
    return tuple(_format(name, row) for name, row in tomllib.loads(text).items())


def _format(name: str, row: Mapping[str, Any]) -> InvoiceFormat:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return InvoiceFormat(name, **fields)
