"""Text of dollars: the bill, prices by hour, spend of owners, the month, and figures of models."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.costs.ledger import KINDS, BillTotal
from pertoken.costs.month import EXPECTED, Alert, MonthSpend
from pertoken.costs.report.figures import NO_TERMS, POOLING, EnergyTerms, ModelFigures
from pertoken.costs.report.lines import Figure, FleetReport
from pertoken.text.amounts import amount, bounded, caption, headline, no_price_note, price, rate
from pertoken.text.columns import Column, table
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import UNKNOWN, literal, observed, sparkline, usd_parts
from pertoken.units import NANO_USD, format_count, format_duration, format_utc

if TYPE_CHECKING:
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
    amounts = _amounts(bill)
    if not bill.paid:
        return (0,) * len(amounts)
    cells = [amount * width // bill.paid for amount in amounts]
    order = sorted(range(len(amounts)), key=lambda i: amounts[i] * width % bill.paid, reverse=True)
    for i in order[: width - sum(cells)]:
        cells[i] += 1
    return tuple(cells)


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
        Column(headline().caption, lambda line: f"{_about(line.together)}{amount(_whole(line))}", 1, _whole),
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
        facts_of_hour = (
            f"{_tokens(hour)}, {_dollars(hour)}{_partly(hour)}" if hour and hour.recorded else "nothing recorded"
        )
        facts.append(
            (_clock(line.start_ts + 3600 * i), f"{amount(_price(hour)):>8}  {bar:{BAR_CELLS}}  {facts_of_hour}")
        )
    return sheet(
        Section(f"{literal(line.model)}: {caption(f'$ per {headline().unit}')} by hour", tuple(facts)),
        Section("Notes", notes((line,))),
    )


def notes(models: Sequence[ModelHours]) -> tuple[str, ...]:
    """Return notes on the hours, and on the mark of estimates if there are any."""
    return (HOURS_NOTE, *no_price_note(), *((ABOUT,) if any(model.together.estimated for model in models) else ()))


def _partly(hour: ModelHour) -> str:
    share = observed(hour.observed)
    return "" if hour.observed is None or share == "100%" else f", {share} observed"


def _about(hour: ModelHour) -> str:
    """Return the mark of estimated dollars: the minutes of the hour were deleted."""
    return "~" if hour.estimated and hour.nano_usd is not None else ""


def _tokens(hour: ModelHour) -> str:
    return "tokens not known" if hour.tokens is None else f"{format_count(hour.tokens)} tokens"


def _dollars(hour: ModelHour) -> str:
    return "no price" if hour.nano_usd is None else f"{_about(hour)}{amount(hour.nano_usd)}"


def _price(hour: ModelHour | None) -> int | None:
    return None if hour is None else price(hour)


def _whole(line: ModelHours) -> int | None:
    return price(line.together)


def _end(line: ModelHours, sign: int) -> int | None:
    hour_prices = [price for hour in line.hours if (price := _price(hour)) is not None]
    return sign * max(sign * price for price in hour_prices) if hour_prices else None


def _course(line: ModelHours) -> tuple[float | None, ...]:
    return tuple(None if price is None else price / NANO_USD for price in map(_price, line.hours))


def _clock(ts: int) -> str:
    return format_utc(ts)[5:]


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
        ("whole month", _whole_dollars(spend)),
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


def _whole_dollars(spend: MonthSpend) -> str:
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


NAMES = {
    "usd_per_mtok": "$/Mtok",
    "usd_per_generated_mtok": "$/generated Mtok",
    "usd_per_goodput_mtok": "$/goodput Mtok",
    "tokens_per_usd": "tokens/$",
    "usd_per_1000_requests": "$/1k requests",
    "prefill_usd_per_mtok": "$/computed prompt Mtok",
    "cached_usd_per_mtok": "$/cached prompt Mtok",
    "decode_usd_per_mtok": "$/generated Mtok, by time",
    "usd_per_mtok_at_full_use": "$/Mtok at full use",
    "j_per_token": "J/token",
    "kwh": "kWh",
    "idle_usd": "idle $",
}
"""Captions of the figures that are shown."""
READABLE = 80
"""Cells of running text without a terminal."""
NOTE = (
    "Dollars are those of all devices that a model occupied; idle $ is their part while the engine was idle. Tokens "
    "are prompt (cached included) and generated; goodput counts requests within the SLO, at their mean length."
)
KINDS_NOTE = (
    "Busy dollars by kind of token, by the measured time of prefill and decode; idle $ are apart. Where requests ran "
    "together the bounds are in brackets. Lookup and transfer of cached tokens within prefill are in the price of "
    "computed ones. At full use: without idle $."
)
POOLED = "Models that embed or rank generate no tokens: their figures are for prompt tokens, and are in no total."


def figures_text(models: Sequence[ModelFigures], width: int | None, terms: EnergyTerms = NO_TERMS) -> str:
    """Return the tables of all models, then the reasons for unknown figures; `width` as in `summary`."""
    if not models:
        return "No model was served in this time.\n"
    lines = [
        *table("By model", models, _columns(), width),
        *table("By kind of token", models, _kinds(), width),
        *table("Energy of the servers", models, _server(terms), width),
    ]
    cells = READABLE if width is None else width
    reasons = [text for model in models for text in _unknown(model)]
    indented = textwrap.TextWrapper(cells, initial_indent="  ", subsequent_indent="    ")
    unknown = [line for text in reasons for line in indented.wrap(text)]
    notes = [
        NOTE,
        KINDS_NOTE,
        energy_note(terms),
        *([POOLED] if any(model.kind == POOLING for model in models) else []),
    ]
    wrapped = [line for note in notes for line in textwrap.wrap(caption(note), cells)]
    return "\n".join((*lines, *(["Not known", *unknown] if unknown else []), *wrapped)) + "\n"


def _columns() -> tuple[Column[ModelFigures], ...]:
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        _column("usd_per_mtok", _usd, 1),
        Column("$/goodput", _goodput, 2),
        _column("tokens_per_usd", _per_money, 5),
        Column(
            "$/1k req",
            lambda model: _usd(model.usd_per_1000_requests),
            3,
            lambda model: model.usd_per_1000_requests.value,
        ),
        _column("j_per_token", _three, 4),
        _column("kwh", _three, 6),
        _column("idle_usd", _usd, 2),
    )


def _kinds() -> tuple[Column[ModelFigures], ...]:
    """Return the columns of dollars per million tokens of each kind."""
    kinds = zip(("computed prompt", "cached prompt", "generated"), KINDS, (1, 2, 1), strict=True)
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        *(
            Column(
                title,
                lambda model, name=name: bounded(getattr(model, name)),  # type: ignore[misc]
                rank,
                lambda model, name=name: getattr(model, name).value,  # type: ignore[misc]
            )
            for title, name, rank in kinds
        ),
        Column("blended", lambda model: _usd(model.usd_per_mtok), 3, lambda model: model.usd_per_mtok.value),
        Column(
            "full use",
            lambda model: _usd(model.usd_per_mtok_at_full_use),
            4,
            lambda model: model.usd_per_mtok_at_full_use.value,
        ),
    )


def _server(terms: EnergyTerms) -> tuple[Column[ModelFigures], ...]:
    """Return the columns of energy at the plug, and of carbon where the grid is known."""
    carbon = () if terms.grid is None else (("co2e_kg", "kg CO2e", 2), ("co2e_g_per_mtok", "g CO2e/Mtok", 2))
    energy = (("kwh", "kWh", 1), ("above_idle_kwh", "above idle", 4), ("j_per_token", "J/token", 3))
    shares = (("at_plug", "measured", 4), ("modelled", "modelled", 5))
    return (
        Column("model", _name, 0, min_cells=14, keep_end=True),
        *(_server_column(name, title, rank, _three) for name, title, rank in (*energy, *carbon)),
        *(_server_column(name, title, rank, _percent) for name, title, rank in shares),
    )


def _server_column(name: str, title: str, rank: int, text: Callable[[Figure], str]) -> Column[ModelFigures]:
    return Column(
        title,
        lambda model: text(getattr(model.server, name)),
        rank,
        lambda model: getattr(model.server, name).value,
    )


def energy_note(terms: EnergyTerms) -> str:
    """Return the scope of server energy, and its terms."""
    grid = terms.grid
    embodied = f" and {terms.embodied_g_per_hour:g} g an hour of each device" if terms.embodied_g_per_hour else ""
    carbon = (
        "Carbon needs energy.grid."
        if grid is None
        else f"Carbon is by {grid.g_per_kwh:g} g/kWh ({grid.source}, {grid.as_of}){embodied}."
    )
    return (
        f"Energy of the servers is that at their plugs, times PUE {terms.pue:g}: measured there, else modelled, else "
        f"that of devices and CPUs, which is a minimum. Above idle is beyond their idle level. {carbon}"
    )


def _column(name: str, text: Callable[[Figure], str], rank: int) -> Column[ModelFigures]:
    return Column(NAMES[name], lambda model: text(getattr(model, name)), rank, lambda model: getattr(model, name).value)


def _name(model: ModelFigures) -> str:
    return literal(model.model) + (" (prompt tokens)" if model.kind == POOLING else "")


def _goodput(model: ModelFigures) -> str:
    low, high = model.usd_per_goodput_mtok, model.usd_per_goodput_mtok_high
    if low.value is None:
        return UNKNOWN
    if high.value is None:
        return f"≥ {_usd(low)}"
    return _usd(low) if _usd(low) == _usd(high) else f"{_usd(low)}–{_usd(high)}"


def _usd(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else amount(figure.value * NANO_USD)


def _per_money(figure: Figure) -> str:
    """Return the tokens for one unit of the shown currency."""
    per_usd = rate()
    return UNKNOWN if figure.value is None or per_usd is None else format_count(figure.value / per_usd)


def _three(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:.3g}"


def _percent(figure: Figure) -> str:
    return UNKNOWN if figure.value is None else f"{figure.value:.0%}"


def _unknown(model: ModelFigures) -> list[str]:
    """Return one line for each reason, with the figures that are unknown because of it."""
    by_reason: dict[str, list[str]] = {}
    for name in (field.name for field in fields(ModelFigures)):
        figure = getattr(model, name)
        if name in NAMES and figure.reason is not None:
            by_reason.setdefault(figure.reason, []).append(caption(NAMES[name]))
    if model.server.kwh.reason is not None:
        by_reason.setdefault(model.server.kwh.reason, []).append("energy of its servers")
    return [f"{literal(model.model)}: {', '.join(names)}: {literal(why)}" for why, names in by_reason.items()]
