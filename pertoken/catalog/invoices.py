"""Formats of the bills that clouds export: which column holds what."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class InvoiceFormat:
    """Columns of one format by what is read of them; None: it has none."""

    name: str
    title: str
    needs: tuple[str, ...]
    resource: str
    start: str
    cost: tuple[str, ...]
    """What is billed: the first of these columns that holds a number."""
    currency: str
    kind: str
    description: str
    source: str
    as_of: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Our kind by the format's word: usage, covered (by a commitment), discount, negation, credit, tax, commitment or
    fee."""
    end: str | None = None
    effective: tuple[str, ...] = ()
    """What covered usage costs with its part of the commitment: the first of these columns that holds a number."""
    credits: str | None = None
    """A list of amounts that are taken off the cost."""
    list: str | None = None
    """What the line costs at list prices."""
    list_price: str | None = None
    """List price of one unit, where the line's own is not there."""
    per_usd: str | None = None
    """Units of the currency for a dollar."""
    amount: str | None = None
    unit: str | None = None
    """Unit of `amount`."""
    hours_by_time: bool = False
    """Whether a resource was used for all of a line's time, and amounts count its cores and bytes by the second."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, once."""
        one = (self.resource, self.start, self.end, self.currency, self.kind, self.description)
        other = (self.credits, self.list, self.list_price, self.per_usd, self.amount, self.unit)
        return tuple(dict.fromkeys(filter(None, (*self.needs, *one, *self.cost, *self.effective, *other))))


def plain(column: str) -> str:
    """Return a column's name as it is compared: in lower case, with dots."""
    return column.strip().casefold().replace("_", ".")


def format_of(columns: Collection[str]) -> InvoiceFormat | None:
    """Return the format that a file with these columns has; None if it is none of the known ones."""
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
