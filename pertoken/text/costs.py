"""Text of dollars: the bill, prices by hour, spend of owners, the month, and figures of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pertoken.text.amounts import amount, caption, headline, no_price_note, price
from pertoken.text.columns import Column, table
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal, observed, sparkline, usd_parts
from pertoken.units import NANO_USD, apportion, format_count, format_duration, format_utc

if TYPE_CHECKING:
    from pertoken.costs.hours import ModelHour, ModelHours
    from pertoken.costs.ledger import BillTotal
    from pertoken.costs.report.lines import FleetReport
    from pertoken.costs.spend import Spend, SpendLine


PARTS = ("busy", "idle", "other", "unallocated")
"""Parts of a bill in the order they are written; `BillTotal` defines them."""
GLYPHS = "█▓▒░"
"""Glyphs of the bar, in the order of `PARTS`."""


def bill_sentence(report: FleetReport, legend: str = "") -> str:
    """Return the bill as a sentence: `Paid $8.00 in 1h, 62% observed: busy $3.00 + idle $2.00 + ...`.

    The rounded parts add up to the rounded sum. If busy time is an upper bound: `busy ≤ $3.00 + idle ≥ $2.00`.
    `legend` has a glyph for each part, or is empty.
    """
    window = format_duration(report.window_s)
    if report.bill is None:
        why = "no device has a price yet" if report.bill_observed is None else "nothing was recorded"
        return f"Paid in {window}: not known, because {why}."
    paid, parts = usd_parts(report.bill.paid, _amounts(report.bill))
    sign = {"busy": "≤ ", "idle": "≥ "} if report.bill.busy_is_bound else {}
    marks = [f"{glyph} " for glyph in legend] or [""] * len(PARTS)
    split = " + ".join(
        f"{mark}{name} {sign.get(name, '')}{text}" for mark, name, text in zip(marks, PARTS, parts, strict=True)
    )
    about = "about " if report.estimated else ""
    return f"Paid {about}{paid} in {window}, {observed(report.bill_observed)} observed: {split}"


def bar_cells(bill: BillTotal, width: int) -> tuple[int, ...]:
    """Return the cells of each of `PARTS` in a bar of `width` cells, by largest remainder; 0 if nothing was paid."""
    return tuple(apportion(width, _amounts(bill))) if bill.paid else (0,) * len(PARTS)


def _amounts(bill: BillTotal) -> tuple[int, int, int, int]:
    return bill.busy, bill.idle, bill.other, bill.unallocated


HOURS = 24
BAR_CELLS = 24
HOURS_NOTE = (
    "Hours of the clock (UTC); the last one is not complete. A gap was not recorded, has no price or served no token. "
    "Seen: observed share of the time."
)
ABOUT = "~ An estimate: the minutes of the hour were deleted, so a change of price within it is applied by time."


def hour_columns(by: str = "model") -> tuple[Column[ModelHours], ...]:
    """Return the columns of all models or services: the whole day, its lowest and highest hour, and all hours."""
    return (
        Column(by, lambda line: literal(line.model), 0, min_cells=14, keep_end=True),
        Column(
            headline().caption,
            lambda line: f"{_about(line.together)}{amount(price(line.together))}",
            1,
            lambda line: price(line.together),
        ),
        Column("seen", lambda line: observed(line.together.observed), 1, lambda line: line.together.observed),
        Column("now", lambda line: amount(_price(line.hours[-1])), 3, lambda line: _price(line.hours[-1])),
        Column("lowest", lambda line: amount(_end(line, -1)), 4, lambda line: _end(line, -1)),
        Column("highest", lambda line: amount(_end(line, 1)), 5, lambda line: _end(line, 1)),
        Column("dollars", lambda line: amount(line.together.nano_usd), 6, lambda line: line.together.nano_usd),
        Column("tokens", lambda line: format_count(line.tokens), 7, lambda line: line.tokens),
        Column(f"{headline().caption} by hour", lambda line: sparkline(_course(line), HOURS), 2, is_plot=True),
    )


def hours_sheet(line: ModelHours) -> Sheet:
    """Return the hours of one model, newest first."""
    course = _course(line)
    top = max((price for price in course if price is not None), default=0.0)
    facts = []
    for i in reversed(range(len(line.hours))):
        hour, price = line.hours[i], course[i]
        bar = "█" * max(1, round(price / top * BAR_CELLS)) if price is not None and top else ""
        clock, price_and_bar = format_utc(line.start_ts + 3600 * i)[5:], f"{amount(_price(hour)):>8}  {bar:{BAR_CELLS}}"
        facts.append((clock, f"{price_and_bar}  {_facts(hour) if hour and hour.recorded else 'nothing recorded'}"))
    return sheet(
        Section(f"{literal(line.model)}: {caption(f'$ per {headline().unit}')} by hour", tuple(facts)),
        Section("Notes", notes((line,))),
    )


def notes(models: Sequence[ModelHours]) -> tuple[str, ...]:
    """Return notes on the hours, and on the mark of estimates if there are any."""
    return (HOURS_NOTE, *no_price_note(), *((ABOUT,) if any(model.together.estimated for model in models) else ()))


def _facts(hour: ModelHour) -> str:
    """Return tokens and dollars of an hour, and its observed share where that is not all of it."""
    tokens = "tokens not known" if hour.tokens is None else f"{format_count(hour.tokens)} tokens"
    dollars = "no price" if hour.nano_usd is None else f"{_about(hour)}{amount(hour.nano_usd)}"
    share = "100%" if hour.observed is None else observed(hour.observed)
    return f"{tokens}, {dollars}" + ("" if share == "100%" else f", {share} observed")


def _about(hour: ModelHour) -> str:
    """Return the mark of estimated dollars: the minutes of the hour were deleted."""
    return "~" if hour.estimated and hour.nano_usd is not None else ""


def _price(hour: ModelHour | None) -> int | None:
    return None if hour is None else price(hour)


def _end(line: ModelHours, sign: int) -> int | None:
    hour_prices = [price for hour in line.hours if (price := _price(hour)) is not None]
    return sign * max(sign * price for price in hour_prices) if hour_prices else None


def _course(line: ModelHours) -> tuple[float | None, ...]:
    return tuple(None if price is None else price / NANO_USD for price in map(_price, line.hours))


def spend_summary(bill: Spend, width: int | None) -> str:
    """Return the lines of a bill, their sum and notes, in `width` cells; None: nothing is cut."""
    title = f"{format_utc(bill.start_ts)} to {format_utc(bill.end_ts)}, by {bill.by}"
    if not bill.lines:
        return "\n".join((title, "  Nothing was recorded in this time.", *map(literal, bill.notes))) + "\n"
    from pertoken.costs.spend import SpendLine  # not needed for the first frame

    lines = list(bill.lines)
    if bill.nano_usd is not None:
        shared = [line.shared_nano_usd for line in lines if line.shared_nano_usd is not None]
        lines.append(SpendLine("together", bill.nano_usd, shared_nano_usd=sum(shared) if shared else None))
    notes = (*no_price_note(), *map(literal, bill.notes))
    return "\n".join((*table(title, lines, spend_columns(bill), width), *notes)) + "\n"


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
        *(
            (
                Column(
                    "with shared", lambda line: amount(line.shared_nano_usd, ""), 1, lambda line: line.shared_nano_usd
                ),
            )
            if shares
            else ()
        ),
        Column("share", lambda line: "" if (part := share(line)) is None else f"{part:.1%}", 2, share),
        Column("tokens", lambda line: format_count(line.tokens, ""), 3, lambda line: line.tokens),
        Column(headline().caption, lambda line: amount(known_price(line), ""), 4, known_price),
        *(
            (Column("weight", lambda line: "unweighted" if line.unweighted else "", 2),)
            if any(line.unweighted for line in bill.lines)
            else ()
        ),
    )


def _counts(line: SpendLine) -> tuple[tuple[str, int | None], ...]:
    return (
        ("of them cached", line.cached_tokens),
        ("generated", line.generated_tokens),
        ("of them reasoning", line.reasoning_tokens),
        ("audio", line.audio_tokens),
        ("images", line.images or None),
        ("seconds of video", round(line.video_ms / 1000) if line.video_ms else None),
    )
