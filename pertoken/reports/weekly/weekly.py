"""Troubles of the moment, and a week against the previous one: spend, $/Mtok, best bankable changes, and verdicts."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pertoken.catalog.offers import REFRESH_COMMAND, ages
from pertoken.config import Settings
from pertoken.costs.prices.stored import used_offers
from pertoken.costs.report.lines import Trouble
from pertoken.printable import literal
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.verdicts import Result, Verdict
from pertoken.reports.figures import ReportFigures, read_figures
from pertoken.reports.headline import idle_text
from pertoken.reports.period import DAY, Period
from pertoken.reports.tables import edits_text, judgement_text, money_text
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.text.advice_table import marked_title
from pertoken.text.amounts import headline, in_dollars, price
from pertoken.units import format_count, format_usd

MAX_LINES = 25
WEEK_S = 7 * DAY
CHANGES = 3
MODELS = 5
TROUBLES = 3
VERDICTS = 8
MAX_CELLS = 160
"""Characters of a line."""


def week_of(now_ts: int, *, dated: bool) -> Period:
    """Return the seven days up to an instant, starting at a full hour."""
    return Period((now_ts - WEEK_S) // HOUR * HOUR, now_ts, dated)


@in_dollars()
def weekly_lines(store: Store, settings: Settings, week: Period) -> tuple[str, ...]:
    """Return the week as lines. Raises StoreError."""
    this, last = read_figures(store, settings, week), read_figures(store, settings, week.preceding())
    at = f" --at {week.at}" if week.dated else ""
    costs = f"pertoken costs --hours {week.hours}{at}"
    head = [f"pertoken, week to {week.text.rpartition(' to ')[2]} (against the seven days before)"]
    lines = [
        *head,
        *_troubles(() if week.dated else this.troubles),
        _spend(this, last, costs),
        _price(this, last, costs),
        _idle(this, last, costs),
    ]
    lines += _models(this, last, costs)
    lines += _changes(this.savings.folds.shown)
    lines += _verdicts(this.verdicts)
    lines = [*lines[: MAX_LINES - 1], *_prices(store, settings, week)]
    return tuple(_cut(line) for line in lines[:MAX_LINES])


def _spend(this: ReportFigures, last: ReportFigures, command: str) -> str:
    now, before = (None if week.bill is None else week.bill.paid for week in (this, last))
    return f"spend {format_usd(now, 'not known')}{_against(now, before)}  [{command} --by model]"


def _price(this: ReportFigures, last: ReportFigures, command: str) -> str:
    now, before = price(this), price(last)
    tokens = f"{format_count(this.tokens)} tokens"
    return (
        f"{headline().caption} {format_usd(now, 'not known')}{_against(now, before)}, {tokens}  [{command} --by model]"
    )


def _idle(this: ReportFigures, last: ReportFigures, command: str) -> str:
    return f"idle {idle_text(this.bill)} of dollars (before: {idle_text(last.bill)})  [{command} --figures]"


def _troubles(troubles: Sequence[Trouble]) -> list[str]:
    lines = [f"now {row.kind}: {literal(row.target)}: {literal(row.reason)}  [{row.command}]" for row in troubles]
    more = len(lines) - TROUBLES
    return [
        *lines[:TROUBLES],
        *([f"and {more} more things that are wrong now  [pertoken top --once]"] if more > 0 else []),
    ]


def _models(this: ReportFigures, last: ReportFigures, command: str) -> list[str]:
    before = {model.model: price(model.together) for model in last.hours}
    lines = []
    for model in this.hours[:MODELS]:
        now = price(model.together)
        shown = f"{format_usd(now, 'not known')}{headline().caption.removeprefix('$')}"
        lines.append(f"  {literal(model.model)}: {shown}{_against(now, before.get(model.model))}  [{command}]")
    return lines


def _changes(proposed: Sequence[Recommendation]) -> list[str]:
    best = [row for row in proposed if row.best is not None and row.best.net is not None][:CHANGES]
    if not best:
        return ["bankable: nothing is proposed  [pertoken advise]"]
    return [
        f"bankable {money_text(row.best.net if row.best else None)}/month: {marked_title(row)}, "
        f"{literal(row.target)}{_tier(row)}  [pertoken advise show {short_id(row)}]"
        for row in best
    ]


def _tier(row: Recommendation) -> str:
    return f" (forecast {row.best.tier.short})" if row.best and row.best.tier else ""


def _prices(store: Store, settings: Settings, week: Period) -> list[str]:
    today = datetime.fromtimestamp(week.end, UTC).date()
    known = ages(used_offers(store, settings.market_provider, week.end), today)
    return [f"{known.text}  [{REFRESH_COMMAND}]"] if known is not None and known.outdated else []


def _verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    decided = [verdict for verdict in verdicts if verdict.judgement.result is not Result.PENDING]
    lines = []
    for verdict in decided[:VERDICTS]:
        result, effect = judgement_text(verdict)
        what = f"{literal(verdict.name)}: {literal(edits_text(verdict.edits))}"
        lines.append(f"verdict {result}, {effect} per token: {what}  [pertoken advise]")
    more = len(decided) - VERDICTS
    return [*lines, f"and {more} more verdicts  [pertoken report --md --from 7d]"] if more > 0 else lines


def _against(now: int | None, before: int | None) -> str:
    if now is None or not before:
        return " (before: not known)"
    return f" ({now / before - 1:+.0%} from {format_usd(before)})"


def _cut(line: str) -> str:
    """Return a line that fits: the command at its end is never cut."""
    text, mark, command = line.rpartition("  [")
    room = MAX_CELLS - len(command) - len(mark)
    return line if len(line) <= MAX_CELLS or not mark else f"{text[: room - 1]}…{mark}{command}"
