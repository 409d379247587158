"""Spend of a month as text, and as plain values for JSON."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pertoken.costs.month import EXPECTED, Alert, MonthSpend
from pertoken.text.amounts import amount
from pertoken.text.words import literal
from pertoken.units import NANO_USD, format_duration, format_utc

WIDTH = 80
LABEL = 13
SOME_UNPRICED = 0.005
"""Share of device time without a price from which a note reports it."""


def spend_text(spend: MonthSpend, budget_nano_usd: int | None, reached: Sequence[Alert], owner: str = "") -> str:
    """Return the spend until now, the forecast of the whole month, and the budget with reached thresholds."""
    facts = [
        *([("owner", literal(owner))] if owner else []),
        ("month", f"{spend.name}, until {format_utc(spend.now_ts)}"),
        ("spent", amount(spend.nano_usd, "not known")),
        ("whole month", _whole(spend)),
        ("budget", _budget(spend, budget_nano_usd, owner)),
        *(("alert", _alert(alert)) for alert in reached),
        *(("note", note) for note in _notes(spend)),
    ]
    return "\n".join(line for label, text in facts for line in _wrapped(label, text)) + "\n"


def spend_plain(
    spend: MonthSpend, budget_nano_usd: int | None, reached: Sequence[Alert], owner: str = ""
) -> dict[str, Any]:
    """Return the spend as plain values: dollars are floats, unknown values are None."""
    total = None if spend.total is None else [nano / NANO_USD for nano in spend.total]
    return {
        **({"owner": owner} if owner else {}),
        "month": spend.name,
        "until": format_utc(spend.now_ts),
        "spent_usd": None if spend.nano_usd is None else spend.nano_usd / NANO_USD,
        "month_usd": None if total is None else dict(zip(("low", "likely", "high"), total, strict=True)),
        "basis": spend.basis,
        "unknown": spend.reason,
        "budget_usd": None if budget_nano_usd is None else budget_nano_usd / NANO_USD,
        "alerts": [{"kind": alert.kind, "threshold": alert.threshold} for alert in reached],
        "unpriced_share": spend.unpriced_share,
        "unrecorded_s": spend.unrecorded_s,
        "days": [
            {"day": format_utc(day.start_ts)[:10], "usd": day.nano_usd / NANO_USD if day.priced_ms else None}
            for day in spend.days
        ],
    }


def _whole(spend: MonthSpend) -> str:
    if spend.total is None:
        return f"not known: {spend.reason}"
    low, likely, high = map(amount, spend.total)
    return f"about {likely} ({low} to {high}; by {spend.basis})"


def _budget(spend: MonthSpend, budget_nano_usd: int | None, owner: str) -> str:
    if budget_nano_usd is None:
        return f"none is set: `{'budget.owners' if owner else 'budget.usd_per_month'}`"
    used = "" if spend.nano_usd is None else f", {spend.nano_usd / budget_nano_usd:.0%} spent"
    return f"{amount(budget_nano_usd)} a month{used}"


def _alert(alert: Alert) -> str:
    if alert.kind == EXPECTED:
        return "the likely spend of the whole month is above the budget"
    return f"{alert.threshold:.0%} of the budget is spent"


def _notes(spend: MonthSpend) -> Iterator[str]:
    if spend.unrecorded_s:
        missing = format_duration(spend.unrecorded_s)
        yield f"nothing was recorded in the first {missing} of the month: the cost of that time is missing"
    if spend.unpriced_share >= SOME_UNPRICED:
        yield f"{spend.unpriced_share:.0%} of the recorded device time has no price (`pertoken prices show`)"


def _wrapped(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{label:<{LABEL}}", subsequent_indent=" " * LABEL, break_on_hyphens=False
    )
