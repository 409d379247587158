"""A week against the one before: spend, $/Mtok, the three best bankable changes, and verdicts."""

from collections.abc import Sequence

from pertoken.config import Settings
from pertoken.printable import literal
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.verdicts import Result, Verdict
from pertoken.reports.figures import ReportFigures, read_figures
from pertoken.reports.headline import idle_text
from pertoken.reports.period import DAY, Period
from pertoken.reports.tables import edits_text, judgement_text, money_text
from pertoken.store.connect.open import Store
from pertoken.store.schema.rollup_tables import HOUR
from pertoken.units import format_count, format_usd

MAX_LINES = 25
WEEK_S = 7 * DAY
CHANGES = 3
MODELS = 5
VERDICTS = 8
MAX_CELLS = 160
"""Characters of a line."""


def week_of(now_ts: int, *, dated: bool) -> Period:
    """Return the seven days up to an instant, from the start of an hour on."""
    return Period((now_ts - WEEK_S) // HOUR * HOUR, now_ts, dated)


def weekly_lines(store: Store, settings: Settings, week: Period) -> tuple[str, ...]:
    """Return the week as lines. Raises StoreError."""
    this, last = read_figures(store, settings, week), read_figures(store, settings, week.preceding())
    at = f" --at {week.at}" if week.dated else ""
    costs = f"pertoken costs --hours {week.hours}{at}"
    head = [f"pertoken, week to {week.text.rpartition(' to ')[2]} (against the seven days before)"]
    lines = [*head, _spend(this, last, costs), _per_mtok(this, last, costs), _idle(this, last, costs)]
    lines += _models(this, last, costs)
    lines += _changes(this.savings.found)
    lines += _verdicts(this.verdicts)
    return tuple(_cut(line) for line in lines[:MAX_LINES])


def _spend(this: ReportFigures, last: ReportFigures, command: str) -> str:
    now, before = (None if each.bill is None else each.bill.paid for each in (this, last))
    return f"spend {format_usd(now, 'not known')}{_against(now, before)}  [{command} --by model]"


def _per_mtok(this: ReportFigures, last: ReportFigures, command: str) -> str:
    now, before = this.nano_usd_per_mtok, last.nano_usd_per_mtok
    tokens = f"{format_count(this.tokens)} tokens"
    return f"$/Mtok {format_usd(now, 'not known')}{_against(now, before)}, {tokens}  [{command} --by model]"


def _idle(this: ReportFigures, last: ReportFigures, command: str) -> str:
    return f"idle {idle_text(this.bill)} of dollars (before: {idle_text(last.bill)})  [{command} --figures]"


def _models(this: ReportFigures, last: ReportFigures, command: str) -> list[str]:
    before = {each.model: each.together.nano_usd_per_mtok for each in last.hours}
    lines = []
    for each in this.hours[:MODELS]:
        price = each.together.nano_usd_per_mtok
        change = _against(price, before.get(each.model))
        lines.append(f"  {literal(each.model)}: {format_usd(price, 'not known')}/Mtok{change}  [{command}]")
    return lines


def _changes(found: Sequence[Recommendation]) -> list[str]:
    best = [each for each in found if each.best is not None and each.best.bankable is not None][:CHANGES]
    if not best:
        return ["bankable: nothing is proposed  [pertoken advise]"]
    return [
        f"bankable {money_text(each.best.bankable if each.best else None)}/month: {literal(each.title)}, "
        f"{literal(each.target)}  [pertoken advise show {short_id(each)}]"
        for each in best
    ]


def _verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    decided = [each for each in verdicts if each.judgement.result is not Result.PENDING]
    lines = []
    for each in decided[:VERDICTS]:
        result, effect = judgement_text(each)
        what = f"{literal(each.name)}: {literal(edits_text(each.edits))}"
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
