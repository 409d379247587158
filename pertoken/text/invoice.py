"""A reconciled bill as text, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from pertoken.costs.invoice.read import Invoice
from pertoken.costs.invoice.reconcile import Compared, Row
from pertoken.text.columns import Column, table
from pertoken.text.words import literal
from pertoken.units import NANO_USD, format_utc
from pertoken.window.reading import DAY

WIDTH = 80
CENT = NANO_USD // 100
LABELS = {
    "other resources": "other resources",
    "credit": "credits",
    "tax": "tax",
    "commitment": "fees of commitments",
    "fee": "fees",
    "covered": "covered hours of other hosts",
    "negation": "taken off by commitments",
    "discount": "discounts of the account",
    "other": "other kinds",
}
"""Names for people of the kinds of lines that belong to no recorded host."""


def invoice_text(compared: Compared, invoice: Invoice) -> str:
    """Return the comparison of an invoice with the computed bill: its parts, a table of hosts, and notes."""
    reconciliation = compared.reconciliation
    first, last = invoice.span
    head = f"{invoice.format.title}: {len(invoice.lines):,} lines, {format_utc(first)} to {format_utc(last)}"
    parts = [
        ("instance-hours of recorded hosts", reconciliation.instance_hours),
        ("other lines of these hosts", reconciliation.beside),
    ]
    parts += [
        (f"{LABELS.get(kind, kind)} ({n:,} {'line' if n == 1 else 'lines'})", nano)
        for kind, nano, n in reconciliation.unmatched
    ]
    shown = [(label, nano) for label, nano in parts if nano]
    amounts = cents([nano for _, nano in shown])
    blocks = (
        _wrapped(head),
        [
            *(f"  {_dollars(amount):>14}  {label}" for amount, (label, _) in zip(amounts, shown, strict=True)),
            f"  {_dollars(sum(amounts)):>14}  the bill",
        ],
        table(
            "By host: billed = computed + unseen + discount + price",
            _by_host(reconciliation.rows),
            _columns(compared),
            WIDTH,
        ),
        list(_notes(compared)),
        list(_left_out(compared, invoice)),
    )
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def invoice_plain(compared: Compared, invoice: Invoice) -> dict[str, Any]:
    """Return the reconciliation as plain values: dollars are floats."""
    reconciliation = compared.reconciliation
    return {
        "format": invoice.format.name,
        "lines": len(invoice.lines),
        "unreadable_lines": invoice.unreadable,
        "first_unreadable": invoice.first_unreadable or None,
        "split_lines": invoice.split,
        "unpriced_hours": reconciliation.unpriced_hours,
        "total_usd": reconciliation.total / NANO_USD,
        "instance_hours_usd": reconciliation.instance_hours / NANO_USD,
        "beside_usd": reconciliation.beside / NANO_USD,
        "unmatched": [{"kind": kind, "usd": nano / NANO_USD, "lines": n} for kind, nano, n in reconciliation.unmatched],
        "computed_not_billed_usd": reconciliation.not_billed / NANO_USD,
        "rows": [
            {
                "host": compared.hosts[row.host_id].name,
                "day": format_utc(row.day * DAY)[:10],
                **{f"{name}_usd": getattr(row, name) / NANO_USD for name in _AMOUNTS},
                "billed_hours": row.billed_hours,
                "recorded_hours": row.recorded_hours,
            }
            for row in reconciliation.rows
        ],
    }


_AMOUNTS = ("billed", "computed", "unseen", "discount", "price")


def _by_host(rows: tuple[Row, ...]) -> list[Row]:
    """Return the sum of the rows of each host, most expensive first."""
    by_host: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_host[row.host_id].append(row)
    names = (*_AMOUNTS, "billed_hours", "recorded_hours")
    sums = [
        Row(host_id, host_rows[0].day, **{name: sum(getattr(row, name) for row in host_rows) for name in names})
        for host_id, host_rows in by_host.items()
    ]
    return sorted(sums, key=lambda row: (-row.billed, row.host_id))


def _columns(compared: Compared) -> tuple[Column[Row], ...]:
    return (
        Column("host", lambda row: literal(compared.hosts[row.host_id].name), 0, min_cells=10),
        *(_amount(name, rank) for name, rank in zip(_AMOUNTS, (0, 0, 1, 1, 1), strict=True)),
        Column("hours", lambda row: f"{row.billed_hours:,.1f}", 3, lambda row: row.billed_hours),
        Column("recorded", lambda row: f"{row.recorded_hours:,.1f}", 4, lambda row: row.recorded_hours),
    )


def _amount(name: str, rank: int) -> Column[Row]:
    return Column(name, lambda row: _usd(getattr(row, name)), rank, lambda row: getattr(row, name))


def _notes(compared: Compared) -> Iterator[str]:
    reconciliation = compared.reconciliation
    if not reconciliation.rows and reconciliation.units:
        units = ", ".join(literal(unit) for unit in reconciliation.units[:5])
        yield from _wrapped(
            f"Lines of recorded hosts have no hours: the unit of their amounts ({units}) is no time of a host or a GPU."
        )
        return
    if not reconciliation.rows:
        yield from _wrapped(
            "No line belongs to a recorded host: a line must have the name of a host, or its resource_id in "
            "[hosts.NAME]. "
            f"Recorded: {', '.join(sorted(literal(host.name) for host in compared.hosts.values())) or 'none'}."
        )
        return
    yield from _wrapped(
        "unseen: billed hours that were not recorded. discount: difference to the list price in the bill. price: "
        "computed with another price. Billed includes shares of commitments; the lines above are the invoiced amounts."
    )
    if reconciliation.not_billed:
        yield from _wrapped(
            f"{_usd(reconciliation.not_billed)} were computed for hosts and days that are not in the bill."
        )


def _left_out(compared: Compared, invoice: Invoice) -> Iterator[str]:
    """Yield the parts of a bill that no amount includes, and hours that give no price."""
    if invoice.unreadable:
        lines = "1 line" if invoice.unreadable == 1 else f"{invoice.unreadable:,} lines"
        yield from _wrapped(
            f"{lines} could not be read and are in no amount here; the first: {literal(invoice.first_unreadable)}"
        )
    if invoice.split:
        lines = "1 line divides" if invoice.split == 1 else f"{invoice.split:,} lines divide"
        yield from _wrapped(f"{lines} the cost of another line (split cost allocation of pods) and are not added.")
    if compared.reconciliation.unpriced_hours > 0.05:
        yield from _wrapped(
            f"{compared.reconciliation.unpriced_hours:,.1f} billed hours give no price: they cost $0 here, or a fee on "
            "another line pays for them (capacity block, commitment, credits)."
        )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def cents(nano_usd: Sequence[int]) -> list[int]:
    """Return the amounts (nano-USD) in whole cents that add up to their sum rounded to the cent.

    Amounts are rounded down; the cents left over go to those with the largest remainders.
    """
    parts = [nano // CENT for nano in nano_usd]
    remaining_cents = (sum(nano_usd) + CENT // 2) // CENT - sum(parts)
    for n in sorted(range(len(parts)), key=lambda n: (-(nano_usd[n] % CENT), n))[:remaining_cents]:
        parts[n] += 1
    return parts


def _usd(nano_usd: int) -> str:
    """Return nano-USD as dollars to the cent."""
    return _dollars((nano_usd + CENT // 2) // CENT)


def _dollars(cents: int) -> str:
    return f"{'-' if cents < 0 else ''}${abs(cents) // 100:,}.{abs(cents) % 100:02}"
