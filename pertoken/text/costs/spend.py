"""A bill by tenant, team, model or device as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pertoken.text.amounts import amount, headline, no_price_note, price
from pertoken.text.columns import Column, table
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal
from pertoken.units import format_count, format_utc

if TYPE_CHECKING:
    from pertoken.costs.spend import Spend, SpendLine


def spend_summary(bill: Spend, width: int | None) -> str:
    """Return the lines of a bill, their sum and notes, in `width` cells; None: nothing is cut."""
    title = f"{format_utc(bill.start_ts)} to {format_utc(bill.end_ts)}, by {bill.by}"
    if not bill.lines:
        return "\n".join((title, "  Nothing was recorded in this time.", *map(literal, bill.notes))) + "\n"
    from pertoken.costs.spend import SpendLine  # not needed for the first frame

    total = None if bill.nano_usd is None else SpendLine("together", bill.nano_usd, shared_nano_usd=_shared_sum(bill))
    lines = [*bill.lines, *([total] if total else [])]
    notes = (*no_price_note(), *map(literal, bill.notes))
    return "\n".join((*table(title, lines, spend_columns(bill), width), *notes)) + "\n"


def _shared_sum(bill: Spend) -> int | None:
    shared = [line.shared_nano_usd for line in bill.lines if line.shared_nano_usd is not None]
    return sum(shared) if shared else None


def tenant_sheet(line: SpendLine) -> Sheet:
    """Return the details of one tenant."""
    named = (("team", line.team), ("key", line.key), ("user", line.user))
    facts = (
        ("dollars", amount(line.nano_usd)),
        ("tokens", format_count(line.tokens)),
        *((("share", "unweighted: its tokens have one price, whatever their kind"),) if line.unweighted else ()),
        (f"$ per {headline().unit}", amount(price(line))),
        *((label, format_count(count)) for label, count in _counts(line) if count is not None),
        *((name, literal(value)) for name, value in named if value is not None),
    )
    return sheet(Section(literal(line.name), facts))


def spend_columns(bill: Spend) -> tuple[Column[SpendLine], ...]:
    """Return the columns of a bill's lines."""
    shares = any(line.shared_nano_usd is not None for line in bill.lines)
    priced, paid = bill.nano_usd is not None, bill.nano_usd or 0

    def share(line: SpendLine) -> float | None:
        return line.nano_usd / paid if paid else None

    def known_price(line: SpendLine) -> int | None:
        return price(line) if priced else None

    return (
        Column(bill.by, lambda line: literal(line.name), 0, min_cells=14),
        Column("dollars", lambda line: amount(line.nano_usd if priced else None), 1, lambda line: line.nano_usd),
        *((Column("with shared", _with_shared, 1, lambda line: line.shared_nano_usd),) if shares else ()),
        Column("share", lambda line: "" if (part := share(line)) is None else f"{part:.1%}", 2, share),
        Column("tokens", lambda line: "" if line.tokens is None else format_count(line.tokens), 3, lambda x: x.tokens),
        Column(
            headline().caption,
            lambda line: "" if (nano := known_price(line)) is None else amount(nano),
            4,
            known_price,
        ),
        *((Column("weight", _weight, 2),) if any(line.unweighted for line in bill.lines) else ()),
    )


def _with_shared(line: SpendLine) -> str:
    return "" if line.shared_nano_usd is None else amount(line.shared_nano_usd)


def _weight(line: SpendLine) -> str:
    return "unweighted" if line.unweighted else ""


def _counts(line: SpendLine) -> tuple[tuple[str, int | None], ...]:
    return (
        ("of them cached", line.cached_tokens),
        ("generated", line.generated_tokens),
        ("of them reasoning", line.reasoning_tokens),
        ("audio", line.audio_tokens),
        ("images", line.images or None),
        ("seconds of video", round(line.video_ms / 1000) if line.video_ms else None),
    )
