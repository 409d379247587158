"""What a million tokens cost by model and hour: columns of all models, and one model's hours."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pertoken.costs.hours.hour import ModelHour, ModelHours
from pertoken.tui.amounts import amount, caption
from pertoken.tui.text.columns import Column
from pertoken.tui.text.sheet import Section, Sheet, sheet
from pertoken.tui.text.words import literal, observed, sparkline
from pertoken.units import NANO_USD, format_count

HOURS = 24
BAR_CELLS = 24
NOTE = (
    "Hours of the clock (UTC); the last one is under way. A gap was not recorded, has no price or served no token. "
    "Seen: share of its time observed."
)
ABOUT = "~ The minutes of an hour were deleted: its dollars are divided by time at a change of price."


def hour_columns(by: str = "model") -> tuple[Column[ModelHours], ...]:
    """Return the columns of all models or services: the whole, its extremes, and its course."""
    return (
        Column(by, lambda line: literal(line.model), 0, least=14, keep_end=True),
        Column("$/Mtok", lambda line: f"{_about(line.together)}{amount(_whole(line))}", 1, _whole),
        Column("seen", lambda line: observed(line.together.observed), 1, lambda line: line.together.observed),
        Column("now", lambda line: amount(_price(line.hours[-1])), 3, lambda line: _price(line.hours[-1])),
        Column("lowest", lambda line: amount(_end(line, -1)), 4, lambda line: _end(line, -1)),
        Column("highest", lambda line: amount(_end(line, 1)), 5, lambda line: _end(line, 1)),
        Column("tokens", lambda line: format_count(line.tokens), 6, lambda line: line.tokens),
        Column("dollars", lambda line: amount(line.together.nano_usd), 7, lambda line: line.together.nano_usd),
        Column("$/Mtok by hour", lambda line: sparkline(_course(line), HOURS), 2),
    )


def hours_sheet(line: ModelHours) -> Sheet:
    """One model hour by hour, newest first."""
    course = _course(line)
    top = max((price for price in course if price is not None), default=0.0)
    facts = []
    for i in reversed(range(len(line.hours))):
        hour, price = line.hours[i], course[i]
        bar = "█" * max(1, round(price / top * BAR_CELLS)) if price is not None and top else ""
        said = f"{_tokens(hour)}, {_dollars(hour)}{_partly(hour)}" if hour and hour.recorded else "nothing recorded"
        facts.append((_clock(line.start_ts + 3600 * i), f"{amount(_price(hour)):>8}  {bar:{BAR_CELLS}}  {said}"))
    return sheet(
        Section(f"{literal(line.model)}: {caption('$ per Mtok')} by hour", tuple(facts)),
        Section("What it is", notes((line,))),
    )


def notes(models: Sequence[ModelHours]) -> tuple[str, ...]:
    """What the hours are, and what the mark means where there is one."""
    return (NOTE, ABOUT) if any(each.together.estimated for each in models) else (NOTE,)


def _partly(hour: ModelHour) -> str:
    share = observed(hour.observed)
    return "" if hour.observed is None or share == "100%" else f", {share} observed"


def _about(hour: ModelHour) -> str:
    """The mark of dollars that were divided by time, as the minutes of the hour are gone."""
    return "~" if hour.estimated and hour.nano_usd is not None else ""


def _tokens(hour: ModelHour) -> str:
    return "tokens not known" if hour.tokens is None else f"{format_count(hour.tokens)} tokens"


def _dollars(hour: ModelHour) -> str:
    return "no price" if hour.nano_usd is None else f"{_about(hour)}{amount(hour.nano_usd)}"


def _price(hour: ModelHour | None) -> int | None:
    return None if hour is None else hour.nano_usd_per_mtok


def _whole(line: ModelHours) -> int | None:
    return line.together.nano_usd_per_mtok


def _end(line: ModelHours, sign: int) -> int | None:
    known = [price for hour in line.hours if (price := _price(hour)) is not None]
    return sign * max(sign * price for price in known) if known else None


def _course(line: ModelHours) -> tuple[float | None, ...]:
    return tuple(None if price is None else price / NANO_USD for price in map(_price, line.hours))


def _clock(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts, UTC):%b %d %H:%M}"
