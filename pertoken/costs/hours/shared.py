"""Shared lines of a bill, divided among the others: a second basis beside the allocated dollars, with the same sum."""

from collections.abc import Sequence
from dataclasses import replace

from pertoken.costs.hours.spend import UNATTRIBUTED, Spend, SpendLine
from pertoken.settings.owners import UNOWNED_LINES, SharedLine
from pertoken.units import apportion

_NO_PAYER = (UNATTRIBUTED, *UNOWNED_LINES)


def with_shared(spend: Spend, shared: Sequence[SharedLine]) -> Spend:
    """Return a bill whose lines have their dollars with their part of each shared line.

    Each shared line is divided among the lines that somebody pays for. One that nobody else can pay for stays as it is,
    and so does one divided by tokens where those of a payer are not known: a note names that payer.
    """
    by_name = {name: row.by for row in shared for name in [_name(row, spend.by)] if name is not None}
    given = [n for n, line in enumerate(spend.lines) if line.name in by_name]
    if not given:
        return spend
    payers = [n for n, line in enumerate(spend.lines) if line.name not in by_name and line.name not in _NO_PAYER]
    dollars = [line.nano_usd for line in spend.lines]
    notes = list(spend.notes)
    for n in given:
        line = spend.lines[n]
        by = by_name[line.name]
        uncounted = [spend.lines[payer].name for payer in payers if spend.lines[payer].tokens is None]
        if by == "tokens" and uncounted:
            notes.append(f"{line.name} is not divided: the tokens of {uncounted[0]} are not known.")
            continue
        weights = [_weight(spend.lines[payer], by) for payer in payers]
        if sum(weights):
            dollars[n] = 0
            for payer, part in zip(payers, apportion(line.nano_usd, weights), strict=True):
                dollars[payer] += part
    lines = zip(spend.lines, dollars, strict=True)
    shared_lines = [replace(line, shared_nano_usd=nano_usd) for line, nano_usd in lines]
    return replace(spend, lines=shared_lines, notes=notes)


def _name(row: SharedLine, by: str) -> str | None:
    """Return the name of the shared line in a bill by `by`; None where that has no such line."""
    if row.line in UNOWNED_LINES:
        return row.line
    basis, _, name = row.line.partition("=")
    return name if basis == by else None


def _weight(line: SpendLine, by: str) -> int:
    return {"dollars": line.nano_usd, "tokens": line.tokens or 0, "equal": 1}[by]
