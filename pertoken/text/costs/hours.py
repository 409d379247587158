"""Price of a million tokens by model and hour: columns of all models, and the hours of one."""

from collections.abc import Sequence

from pertoken.costs.hours import ModelHour, ModelHours
from pertoken.text.amounts import amount, caption, headline, no_price_note, price
from pertoken.text.columns import Column
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal, observed, sparkline
from pertoken.units import NANO_USD, format_count, format_utc

HOURS = 24
BAR_CELLS = 24
NOTE = (
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
    return (NOTE, *no_price_note(), *((ABOUT,) if any(model.together.estimated for model in models) else ()))


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
    known = [price for hour in line.hours if (price := _price(hour)) is not None]
    return sign * max(sign * price for price in known) if known else None


def _course(line: ModelHours) -> tuple[float | None, ...]:
    return tuple(None if price is None else price / NANO_USD for price in map(_price, line.hours))


def _clock(ts: int) -> str:
    return format_utc(ts)[5:]
