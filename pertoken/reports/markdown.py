"""A report as Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pertoken.catalog.offers import REFRESH_COMMAND, ages
from pertoken.config import Settings
from pertoken.costs.prices.stored import used_offers
from pertoken.costs.report.lines import Trouble
from pertoken.costs.spend import Spend
from pertoken.printable import csv_cell, literal
from pertoken.proof.judging.verifier import edits_text
from pertoken.proof.recommendation import Recommendation, short_id
from pertoken.proof.verdicts import Verdict, VerdictResult
from pertoken.reports.figures import DAY, Period, ReportFigures, read_figures
from pertoken.reports.tables import Table, headlines, idle_text, judgement_text, money_text, tables
from pertoken.store.connect.open import Store
from pertoken.store.schema.telemetry import HOUR
from pertoken.text.advice_table import marked_title
from pertoken.text.amounts import headline, in_dollars, price
from pertoken.units import NANO_USD, format_count, format_usd

_ACTING = re.compile(r"([\\`*_{}\[\]<>|#~!&])")


@in_dollars()
def markdown(report: ReportFigures) -> str:
    """Return the report as Markdown with tables."""
    blocks = [
        f"# What our tokens cost\n\n{plain(report.period.text)}, {plain(report.source)}. Amounts are US dollars.",
        "\n".join(f"- **{plain(headline.value)}** {plain(headline.name)}" for headline in headlines(report)),
        *(table_block(table) for table in tables(report)),
    ]
    return "\n\n".join(blocks) + "\n"


def plain(text: str) -> str:
    """Return text on one line with Markdown characters escaped."""
    return _ACTING.sub(r"\\\1", literal(text))


def table_block(table: Table) -> str:
    """Return one table with its notes and command."""
    lines = [f"## {table.title}", ""]
    if table.rows:
        lines.append(f"| {' | '.join(plain(name.lstrip('>')) for name in table.columns)} |")
        lines.append(f"|{'|'.join('---:' if name.startswith('>') else '---' for name in table.columns)}|")
        lines += [f"| {' | '.join(map(plain, row))} |" for row in table.rows]
    else:
        lines.append(table.empty)
    lines += ["", *(f"{note}\n" for note in map(_sentence, table.notes)), f"The same in a terminal: `{table.command}`"]
    return "\n".join(lines)


def _sentence(note: str) -> str:
    """Return a note with angle brackets and pipes escaped, which names in it may hold."""
    return re.sub(r"([<>|])", r"\\\1", literal(note))


COLUMNS = (
    *("period_start", "period_end", "by", "name", "team", "key", "user", "usd", "tokens", "usd_per_mtok"),
    *("cached_tokens", "generated_tokens", "weighted"),
)


def chargeback_csv(report: ReportFigures) -> str:
    """Return the CSV. The lines of each grouping sum to the bill; unknown values are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for spend in (report.models, report.teams, report.tenants, *report.owners):
        writer.writerows(_rows(report, spend))
    return out.getvalue()


def _rows(report: ReportFigures, spend: Spend) -> Iterable[list[str]]:
    start, end = utc(report.period.start), utc(report.period.end)
    for line in spend.lines:
        price = line.nano_usd_per_mtok
        priced = spend.nano_usd is not None
        yield [
            start,
            end,
            spend.by,
            *(csv_cell(cell or "") for cell in (line.name, line.team, line.key, line.user)),
            dollars(line.nano_usd) if priced else "",
            "" if line.tokens is None else str(line.tokens),
            dollars(price) if priced and price is not None else "",
            *("" if count is None else str(count) for count in (line.cached_tokens, line.generated_tokens)),
            str(not line.unweighted).lower() if line.team or line.key or line.user else "",
        ]


def utc(ts: int) -> str:
    """Return an instant as ISO 8601: `2026-11-21T10:00:00Z`."""
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dollars(nano_usd: int) -> str:
    """Return dollars with all nine decimals that are stored, so that sums are exact: `12.5`."""
    sign, nano_usd = ("-" if nano_usd < 0 else ""), abs(nano_usd)
    usd, nano_rest = divmod(nano_usd, NANO_USD)
    return f"{sign}{usd}.{nano_rest:09d}".rstrip("0").rstrip(".")


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
    at_option = f" --at {week.at}" if week.dated else ""
    costs = f"pertoken costs --hours {week.hours}{at_option}"
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
    this_nano, last_nano = (None if week.bill is None else week.bill.paid for week in (this, last))
    return f"spend {format_usd(this_nano, 'not known')}{_against(this_nano, last_nano)}  [{command} --by model]"


def _price(this: ReportFigures, last: ReportFigures, command: str) -> str:
    this_price, last_price = price(this), price(last)
    tokens = f"{format_count(this.tokens)} tokens"
    compared = f"{format_usd(this_price, 'not known')}{_against(this_price, last_price)}"
    return f"{headline().caption} {compared}, {tokens}  [{command} --by model]"


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
    last_prices = {model.model: price(model.together) for model in last.hours}
    lines = []
    for model in this.hours[:MODELS]:
        this_price = price(model.together)
        shown = f"{format_usd(this_price, 'not known')}{headline().caption.removeprefix('$')}"
        lines.append(
            f"  {literal(model.model)}: {shown}{_against(this_price, last_prices.get(model.model))}  [{command}]"
        )
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
    price_ages = ages(used_offers(store, settings.market_provider, week.end), today)
    return [f"{price_ages.text}  [{REFRESH_COMMAND}]"] if price_ages is not None and price_ages.outdated else []


def _verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    decided = [verdict for verdict in verdicts if verdict.judgement.result is not VerdictResult.PENDING]
    lines = []
    for verdict in decided[:VERDICTS]:
        result, effect = judgement_text(verdict)
        what = f"{literal(verdict.name)}: {literal(edits_text(verdict.edits))}"
        lines.append(f"verdict {result}, {effect} per token: {what}  [pertoken advise]")
    more = len(decided) - VERDICTS
    return [*lines, f"and {more} more verdicts  [pertoken report --md --from 7d]"] if more > 0 else lines


def _against(this_nano: int | None, last_nano: int | None) -> str:
    if this_nano is None or not last_nano:
        return " (before: not known)"
    return f" ({this_nano / last_nano - 1:+.0%} from {format_usd(last_nano)})"


def _cut(line: str) -> str:
    """Return a line that fits: the command at its end is never cut."""
    text, mark, command = line.rpartition("  [")
    room = MAX_CELLS - len(command) - len(mark)
    return line if len(line) <= MAX_CELLS or not mark else f"{text[: room - 1]}…{mark}{command}"
