"""A reconciled bill as text, and as plain values for JSON."""

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pertoken.costs.invoice.compare import Compared
from pertoken.costs.invoice.read import Invoice
from pertoken.costs.invoice.reconcile import DAY, Row
from pertoken.tui.text.columns import Column, table
from pertoken.tui.text.words import literal
from pertoken.units import NANO_USD, format_utc

WIDTH = 80
CENT = NANO_USD // 100
LABELS = {
    "other resources": "other resources",
    "credit": "credits",
    "tax": "tax",
    "commitment": "commitments' fees",
    "fee": "fees",
    "covered": "covered hours of other hosts",
    "negation": "taken off by commitments",
    "discount": "discounts of the account",
    "other": "of other kinds",
}
"""Kinds of lines of no recorded host, as people call them."""


def invoice_text(compared: Compared, invoice: Invoice) -> str:
    """Return the bill against what was computed: its parts, then host by host, then what differs and why."""
    found = compared.reconciliation
    first, last = invoice.span
    head = f"{invoice.format.title}: {len(invoice.lines):,} lines, {format_utc(first)} to {format_utc(last)}"
    parts = [("instance-hours of recorded hosts", found.instance_hours), ("other lines of these hosts", found.beside)]
    parts += [
        (f"{LABELS.get(kind, kind)} ({n:,} {'line' if n == 1 else 'lines'})", nano) for kind, nano, n in found.unmatched
    ]
    shown = [(label, nano) for label, nano in parts if nano]
    amounts = cents([nano for _, nano in shown])
    blocks = (
        _wrapped(head),
        [
            *(f"  {_dollars(each):>14}  {label}" for each, (label, _) in zip(amounts, shown, strict=True)),
            f"  {_dollars(sum(amounts)):>14}  the bill",
        ],
        table(
            "By host: billed = computed + unseen + discount + price", _by_host(found.rows), _columns(compared), WIDTH
        ),
        list(_notes(compared)),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def invoice_plain(compared: Compared, invoice: Invoice) -> dict[str, Any]:
    """Return the reconciliation as plain values: dollars are floats."""
    found = compared.reconciliation
    return {
        "format": invoice.format.name,
        "lines": len(invoice.lines),
        "total_usd": found.total / NANO_USD,
        "instance_hours_usd": found.instance_hours / NANO_USD,
        "beside_usd": found.beside / NANO_USD,
        "unmatched": [{"kind": kind, "usd": nano / NANO_USD, "lines": n} for kind, nano, n in found.unmatched],
        "computed_not_billed_usd": found.not_billed / NANO_USD,
        "rows": [
            {
                "host": compared.hosts[row.host_id].name,
                "day": format_utc(row.day * DAY)[:10],
                **{f"{name}_usd": getattr(row, name) / NANO_USD for name in _AMOUNTS},
                "billed_hours": row.billed_hours,
                "recorded_hours": row.recorded_hours,
            }
            for row in found.rows
        ],
    }


_AMOUNTS = ("billed", "computed", "unseen", "discount", "price")


def _by_host(rows: tuple[Row, ...]) -> list[Row]:
    """Return one sum of rows for each host, the dearest first."""
    by_host: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_host[row.host_id].append(row)
    names = (*_AMOUNTS, "billed_hours", "recorded_hours")
    sums = [
        Row(host_id, some[0].day, **{name: sum(getattr(row, name) for row in some) for name in names})
        for host_id, some in by_host.items()
    ]
    return sorted(sums, key=lambda row: (-row.billed, row.host_id))


def _columns(compared: Compared) -> tuple[Column[Row], ...]:
    return (
        Column("host", lambda row: literal(compared.hosts[row.host_id].name), 0, least=10),
        *(_amount(name, rank) for name, rank in zip(_AMOUNTS, (0, 0, 1, 1, 1), strict=True)),
        Column("hours", lambda row: f"{row.billed_hours:,.1f}", 3, lambda row: row.billed_hours),
        Column("recorded", lambda row: f"{row.recorded_hours:,.1f}", 4, lambda row: row.recorded_hours),
    )


def _amount(name: str, rank: int) -> Column[Row]:
    return Column(name, lambda row: _usd(getattr(row, name)), rank, lambda row: getattr(row, name))


def _notes(compared: Compared) -> Iterator[str]:
    found = compared.reconciliation
    if not found.rows:
        yield from _wrapped(
            "No line is of a recorded host: a line carries a host's name, or its resource_id in [hosts.NAME]. "
            f"Recorded: {', '.join(sorted(literal(each.name) for each in compared.hosts.values())) or 'none'}."
        )
        return
    yield from _wrapped(
        "unseen: billed hours that were not recorded. discount: below the list price that the bill states. price: "
        "computed with another price. Billed has its part of commitments; the lines above are what is invoiced."
    )
    if found.not_billed:
        yield from _wrapped(f"{_usd(found.not_billed)} were computed for hosts and days that the bill does not have.")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def cents(nano_usd: Sequence[int]) -> list[int]:
    """Return parts of a sum in whole cents that add up to the sum rounded to the cent.

    Each is rounded down; what that leaves over goes to those with the largest remainders.
    """
    found = [each // CENT for each in nano_usd]
    left = (sum(nano_usd) + CENT // 2) // CENT - sum(found)
    for n in sorted(range(len(found)), key=lambda n: (-(nano_usd[n] % CENT), n))[:left]:
        found[n] += 1
    return found


def _usd(nano_usd: int) -> str:
    """Dollars to the cent: bills are compared by cents."""
    return _dollars((nano_usd + CENT // 2) // CENT)


def _dollars(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}${abs(cents) // 100:,}.{abs(cents) % 100:02}"
