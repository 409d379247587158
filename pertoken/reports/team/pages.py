"""The pages as HTML: what is wrong now, costs, savings, the plan, receipts and rules."""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from pertoken.advisor.plan.plan import Plan
from pertoken.advisor.planning import Planner, PlanRequest
from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.proof.detection import journal
from pertoken.proof.judging.receipts import StoredReceipt, read_receipts, records
from pertoken.proof.judging.receipts import find as find_receipt
from pertoken.proof.receipt import is_intact
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import find, standing
from pertoken.reports.figures import ReportFigures, read_figures
from pertoken.reports.page.html import document, headline_list, plots, table_section
from pertoken.reports.page.markup import Markup, tag
from pertoken.reports.period import period_of
from pertoken.reports.tables import (
    MAX_ROWS,
    UNKNOWN,
    Table,
    figures_table,
    found_table,
    models_table,
    money_text,
    now_table,
    paying_more_table,
    spend_table,
    taken_table,
    verdicts_table,
)
from pertoken.reports.team.scope import Scope, by_owner, narrowed
from pertoken.settings.pages import PageReader
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.advice_table import record_words
from pertoken.text.amounts import in_dollars
from pertoken.text.lifecycle import journal_line
from pertoken.text.plan import headline as plan_headline
from pertoken.text.plan import plan_text
from pertoken.text.receipt import to_markdown
from pertoken.text.rules import rule_counts
from pertoken.text.sheet import Section
from pertoken.units import format_usd, format_utc

KEPT_S = 60.0
"""Age up to which figures are shown again without a new reading."""
NAMES = {
    "/": "Now",
    "/costs": "Costs",
    "/savings": "Savings",
    "/plan": "Plan",
    "/receipts": "Receipts",
    "/rules": "Rules",
}
ADVICE_COLUMNS = ("id", "change", "target", ">bankable/month", ">capacity/month", ">if confirmed/month", "forecast")
"""Columns of open advice; the page of each has the rest."""
_DETAIL = re.compile(r"/(savings|receipts)/([0-9a-f]{4,16})")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Values of one reading of the database, of which each reader sees a part."""

    store: Store
    report: ReportFigures
    advice: tuple[Recommendation, ...]
    receipts: tuple[StoredReceipt, ...]

    def of(self, scope: Scope) -> "_Reading":
        """Return the part that a scope reads."""
        report = self.report
        return _Reading(
            self.store,
            narrowed(report, scope),
            tuple(row for row in self.advice if scope.has_advice(row, report)),
            tuple(receipt for receipt in self.receipts if scope.has_receipt(receipt, report)),
        )


class TeamPages:
    """The pages of one database. Figures are at most `KEPT_S` old."""

    def __init__(
        self,
        where: StoreLocation,
        settings: Settings,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where, self._settings, self._now, self._monotonic = where, settings, now, monotonic
        self._lock = threading.Lock()
        self._cached: tuple[float, _Reading] | None = None
        self._planning = threading.Lock()
        self._planner = Planner(settings)
        self._plan: tuple[_Reading, Plan] | None = None

    @in_dollars()
    def html(self, path: str, reader: PageReader) -> str | None:
        """Return the page at a path; None if there is none, or not for this reader. Raises StoreError."""
        scope = Scope(self._settings, reader.owners)
        detail = _DETAIL.fullmatch(path)
        if detail is None and path not in NAMES:
            return None
        with self._lock:
            reading = self._read()
        plan = self._planned(reading) if path == "/plan" and scope.owners is None else None
        part = reading.of(scope)
        if detail is not None:
            return self._detail(part, detail[1], detail[2], scope)
        sections: Mapping[str, Callable[[], Sequence[Markup]]] = {
            "/": lambda: _now(part.report, scope),
            "/costs": lambda: _costs(part.report, scope),
            "/savings": lambda: _savings(part.report),
            "/plan": lambda: _plan(plan, self._planner.window_s, scope),
            "/receipts": lambda: _receipts(part),
            "/rules": lambda: _rules(part),
        }
        return _page(NAMES[path], sections[path](), part.report, scope, path)

    def _read(self) -> _Reading:
        if self._cached is None or self._monotonic() - self._cached[0] > KEPT_S:
            store = open_store(self._where)
            report = read_figures(store, self._settings, period_of(None, None, int(self._now()), dated=False))
            receipts: tuple[StoredReceipt, ...] = ()
            if store.advice is not None:
                with store.read("advice") as connection:
                    receipts = read_receipts(connection)
            self._cached = self._monotonic(), _Reading(store, report, standing(store), receipts)
        return self._cached[1]

    def _planned(self, reading: _Reading) -> Plan:
        with self._planning:
            if self._plan is None or self._plan[0] is not reading:
                self._plan = reading, self._planner.plan(reading.store, reading.advice, PlanRequest())
            return self._plan[1]

    def _detail(self, part: _Reading, kind: str, prefix: str, scope: Scope) -> str | None:
        """Return the page of one recommendation or receipt; None if the id names none, or several."""
        try:
            if kind == "receipts":
                receipt = find_receipt(part.receipts, prefix, self._where)
                return _page("Receipt", [_receipt(receipt)], part.report, scope)
            row = find(part.advice, prefix, self._where)
        except BadInput:
            return None
        with part.store.read("advice") as connection:
            entries = journal(connection, row.recommendation_id)
        sections = [
            *advice_sheet(row, self._now(), with_keys=False, advice=part.advice),
            Section("Journal", tuple(journal_line(entry) for entry in entries)),
        ]
        receipts = [receipt for receipt in part.receipts if receipt.recommendation_id == row.recommendation_id]
        tables = [table_section(_receipts_table(receipts))] if receipts else []
        return _page(row.change, [*map(_section, sections), *tables], part.report, scope)


def _page(heading: str, sections: Sequence[Markup], report: ReportFigures, scope: Scope, path: str = "") -> str:
    links = [
        tag("a", name, href=target, aria_current="page" if target == path else None) for target, name in NAMES.items()
    ]
    extent = report.source if scope.owners is None else f"services of {', '.join(scope.owners) or 'nobody'}"
    return document(
        heading, [f"{report.period.text} · {extent}"], [tag("nav", *links), *sections], f"{heading}, pertoken"
    )


def _now(report: ReportFigures, scope: Scope) -> list[Markup]:
    head, troubles = [headline_list(report)], now_table(report)
    if scope.owners is not None:
        empty = "Nothing is wrong with a deployment of these services."
        notes = ("Alerts, and troubles of hosts and devices, have no owner: they are not shown to this login.",)
        head, troubles = [], replace(troubles, empty=empty, notes=notes)
    empty = "No verdict of this period finds a change that made tokens dearer."
    regressions = verdicts_table("Regressions", report.regressions, empty)
    return [*head, table_section(troubles), table_section(regressions)]


def _costs(report: ReportFigures, scope: Scope) -> list[Markup]:
    command = f"pertoken costs --hours {report.period.hours} --by"
    owners = spend_table("Costs by owner", by_owner(report.models, scope.settings), f"{command} model")
    tables = [owners, models_table(report, f"{command} model")]
    if scope.owners is None:
        tables += [
            spend_table("Costs by team", report.teams, f"{command} team"),
            spend_table("Costs by tenant", report.tenants, f"{command} tenant"),
        ]
    tables.append(figures_table(report, f"pertoken costs --figures --hours {report.period.hours}"))
    drawn = plots(report) if scope.owners is None else []
    return [*drawn, *map(table_section, tables)]


def _savings(report: ReportFigures) -> list[Markup]:
    open_advice = found_table(report)
    kept = [name in ADVICE_COLUMNS for name in open_advice.columns]
    rows = tuple(tuple(compress(row, kept)) for row in open_advice.rows)
    open_advice = replace(open_advice, columns=tuple(compress(open_advice.columns, kept)), rows=rows)
    tables = (open_advice, taken_table(report), paying_more_table(report))
    return [table_section(_linked(table, "/savings/")) for table in tables]


def _linked(table: Table, base: str) -> Table:
    """Return a table whose first cells, which are ids, link to their pages."""
    return replace(table, rows=tuple((tag("a", row[0], href=base + row[0]), *row[1:]) for row in table.rows))


def _plan(plan: Plan | None, window_s: int, scope: Scope) -> list[Markup]:
    if plan is None or scope.owners is not None:
        return [tag("section", tag("p", "The plan is of all services together: this login does not read it."))]
    rows = tuple(
        (
            tag(
                "a",
                f"{step.recommendation_id % 2**64:016x}"[:8],
                href=f"/savings/{step.recommendation_id % 2**64:016x}",
            ),
            step.title,
            step.where,
            format_usd(step.spend_before),
            format_usd(step.spend_after),
            money_text(step.capacity) if any(step.capacity) else "",
            step.effort,
            step.risk,
            "accepted" if step.accepted else "",
        )
        for step in plan.steps
    )
    columns = ("id", "change", "where", ">bill before", ">bill after", ">capacity", "work", "risk", "state")
    table = Table("Steps", columns, rows, "No step lowers the bill.", "pertoken plan", (plan_headline(plan),))
    drawing = tag("pre", *(tag("span", line) for line in plan_text(plan, window_s).splitlines()), class_="drawn")
    return [table_section(table), tag("section", tag("h2", "In full"), drawing)]


def _receipts(part: _Reading) -> list[Markup]:
    empty = "No verdict was passed in this period, and none is pending on a change in it."
    verdicts = verdicts_table("Changes of configuration", part.report.verdicts, empty)
    return [table_section(_receipts_table(part.receipts)), table_section(verdicts)]


def _receipts_table(receipts: Sequence[StoredReceipt]) -> Table:
    newest = sorted(receipts, key=lambda receipt: -receipt.created_ts)[:MAX_ROWS]
    columns = ("id", "made", "kind", "verdict", "change", "target", ">saved")
    empty = "No receipts yet: one is made for each change, a week after it."
    rows = tuple(_receipt_row(receipt) for receipt in newest)
    return _linked(Table("Receipts", columns, rows, empty, "pertoken receipt"), "/receipts/")


def _receipt_row(stored: StoredReceipt) -> tuple[str, ...]:
    made = stored.read()
    saved = made.finding.saving_90
    share = UNKNOWN if saved is None else f"{saved.likely:.1%} ({saved.low:.1%} to {saved.high:.1%})"
    what = (made.finding.verdict.value, made.change.title, made.change.target)
    return stored.short_id, format_utc(stored.created_ts), stored.kind.label, *what, share


def _receipt(stored: StoredReceipt) -> Markup:
    if not is_intact(stored.text):
        return _section(Section("Altered", ("The figures of this receipt were altered after it was made.",)))
    text = (*to_markdown(stored.read()).splitlines(), "", f"`pertoken receipt {stored.short_id}` computes it again.")
    return _section(Section(stored.kind.label.capitalize(), text))


def _rules(part: _Reading) -> list[Markup]:
    record_of = {known.rule: known.record for known in records(part.receipts)}
    counts = rule_counts(part.advice)
    rows = tuple((rule, *(str(n) for n in counts[rule]), record_words(record_of.get(rule))) for rule in sorted(counts))
    columns = ("rule", ">proposed", ">refused", ">failed", "measured / promised saving")
    note = "`pertoken rules explain RULE` prints what a rule looks for, and when it is wrong."
    ran = Table("Rules", columns, rows, "No rule has run yet.", "pertoken rules list", (note,))
    return [table_section(ran), table_section(_refusals_table(part.advice))]


def _refusals_table(advice: Sequence[Recommendation]) -> Table:
    """Return the refusals, with the targets of one rule and reason in one row."""
    targets: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for row in advice:
        if row.state in (State.REFUSED, State.BLOCKED, State.FAILED):
            reason = (row.reason or "").strip().splitlines()[-1:] or [UNKNOWN]
            targets[row.rule_id, row.state.label, reason[0], row.remedy or ""].append(row.target)
    rows = [
        (rule, state, ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else ""), reason, remedy)
        for (rule, state, reason, remedy), names in sorted(targets.items())
    ]
    columns = ("rule", "state", "target", "why not", "what to do")
    empty = "No rule refused anything."
    return Table("Refused, and why", columns, tuple(rows[:MAX_ROWS]), empty, "pertoken advise --all")


def _section(section: Section) -> Markup:
    """Return a section of a sheet: facts as a table, sentences and commands as lines."""
    facts = [line for line in section.lines if not isinstance(line, str)]
    texts = [line for line in section.lines if isinstance(line, str)]
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in facts]
    parts = [tag("table", *rows)] if rows else []
    if texts:
        parts.append(tag("pre", *(tag("span", line) for line in texts)))
    return tag("section", tag("h2", section.title), *parts) if section.lines else Markup("")
