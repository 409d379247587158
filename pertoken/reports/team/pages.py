"""The team's pages as HTML: troubles, costs, savings, the plan, receipts and rules, narrowed to the reader's scope."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from pertoken.advisor.plan.plan import Plan
from pertoken.advisor.planning import Planner, PlanRequest
from pertoken.config import Settings
from pertoken.costs.fleet import service_name
from pertoken.costs.spend import OTHER, UNALLOCATED, Spend, SpendLine
from pertoken.errors import BadInput
from pertoken.proof.detection import journal
from pertoken.proof.judging.receipts import StoredReceipt, all_receipts, records
from pertoken.proof.judging.receipts import find as find_receipt
from pertoken.proof.receipt import is_intact
from pertoken.proof.recommendation import Recommendation, State
from pertoken.proof.stored import find, standing
from pertoken.reports.figures import ReportFigures, period_of, read_figures
from pertoken.reports.html import Markup, document, headline_list, plots, table_section, tag
from pertoken.reports.tables import (
    MAX_ROWS,
    UNKNOWN,
    Table,
    changes_table,
    figures_table,
    found_table,
    models_table,
    money_text,
    now_table,
    paying_more_table,
    regressions_table,
    spend_table,
    taken_table,
)
from pertoken.settings.fleet import PageReader
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.text.advice_sheet import advice_sheet
from pertoken.text.advice_table import Folded, record_words
from pertoken.text.amounts import in_dollars
from pertoken.text.lifecycle import journal_line
from pertoken.text.plan import headline as plan_headline
from pertoken.text.plan import plan_text
from pertoken.text.receipt import to_markdown
from pertoken.text.rules import rule_counts
from pertoken.text.sheet import Section
from pertoken.units import format_usd, format_utc

NO_OWNER = "no owner"


@dataclass(frozen=True, slots=True)
class ReaderScope:
    """The services that a reader reads, by their owners in the settings."""

    settings: Settings
    owners: tuple[str, ...] | None
    """None: everything."""

    def has_service(self, name: str) -> bool:
        """Return whether a service is read."""
        owner = next((service.owner for service in self.settings.services if service.name == name), None)
        return self.owners is None or (owner is not None and owner in self.owners)

    def has_model(self, served_model: str) -> bool:
        """Return whether the service of a served model is read."""
        return self.has_service(service_name(served_model, self.settings))

    def has_deployment(self, deployment_id: int | None, report: ReportFigures) -> bool:
        """Return whether a deployment's service is read; False for one that was not seen in the period."""
        if self.owners is None:
            return True
        epoch = report.inventory.newest.get(deployment_id) if deployment_id is not None else None
        return epoch is not None and self.has_model(epoch.served_model)

    def has_advice(self, row: Recommendation, report: ReportFigures) -> bool:
        """Return whether every service and host that advice is about or touches is read; hosts by their deployments."""
        touched = {subject for variant in row.variants for subject in variant.touches}
        subjects = {f"{row.target_kind}:{row.target_key}", *touched, *row.targets}
        return self.owners is None or all(self._has_subject(subject, report) for subject in subjects)

    def _has_subject(self, subject: str, report: ReportFigures) -> bool:
        kind, _, key = subject.partition(":")
        if kind == "service":
            return self.has_service(key)
        if kind == "deployment":
            return self.has_deployment(int(key), report)
        if kind == "host":
            models = [epoch.served_model for epoch in report.inventory.epochs if str(epoch.host_id) == key]
            return bool(models) and all(map(self.has_model, models))
        return False

    def has_receipt(self, receipt: StoredReceipt, report: ReportFigures) -> bool:
        """Return whether the deployment that a receipt is about is read."""
        return self.has_deployment(receipt.deployment_id, report)


def narrowed(report: ReportFigures, scope: ReaderScope) -> ReportFigures:
    """Return the figures of a scope. Tenants, teams and the bill have no owner: they are left out."""
    if scope.owners is None:
        return report
    savings, folds = report.savings, report.savings.folds

    def read(rows: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
        return tuple(row for row in rows if scope.has_advice(row, report))

    by_rule = tuple(rows for group in folds.by_rule if (rows := read(group)))
    return replace(
        report,
        bill=None,
        hours=tuple(hours for hours in report.hours if scope.has_model(hours.model)),
        models=_spend(report.models, [line for line in report.models.lines if scope.has_model(line.name)]),
        tenants=_spend(report.tenants, []),
        teams=_spend(report.teams, []),
        figures=tuple(figure for figure in report.figures if scope.has_model(figure.model)),
        troubles=tuple(line for line in report.troubles if scope.has_deployment(line.deployment_id, report)),
        verdicts=tuple(verdict for verdict in report.verdicts if scope.has_deployment(verdict.deployment_id, report)),
        savings=replace(
            savings,
            proposed=read(savings.proposed),
            unconfirmed=read(savings.unconfirmed),
            paying_more=read(savings.paying_more),
            taken=read(savings.taken),
            refused=read(savings.refused),
            folds=Folded(read(folds.shown), by_rule, read(folds.slow), folds.hour_rate),
        ),
    )


def by_owner(models: Spend, settings: Settings) -> Spend:
    """Return a bill by model as one by owner of the services; other work and unallocated time stay lines."""
    owner_of_service = {service.name: service.owner for service in settings.services}
    lines: dict[str, list[SpendLine]] = defaultdict(list)
    for line in models.lines:
        owner = owner_of_service.get(service_name(line.name, settings)) or NO_OWNER
        lines[line.name if line.name in (OTHER, UNALLOCATED) else owner].append(line)
    sums = [_sum(name, group) for name, group in lines.items()]
    ordered = sorted(sums, key=lambda line: (line.name in (OTHER, UNALLOCATED), line.name == NO_OWNER, -line.nano_usd))
    return replace(models, by="owner", lines=ordered)


def _spend(spend: Spend, lines: Sequence[SpendLine]) -> Spend:
    """Return a bill of some of its lines, without notes: those may name other services."""
    total_nano = None if spend.nano_usd is None else sum(line.nano_usd for line in lines)
    return replace(spend, nano_usd=total_nano, lines=lines, notes=())


def _sum(name: str, lines: Sequence[SpendLine]) -> SpendLine:
    tokens, generated, requests = (
        None if any(count is None for count in counts) else sum(filter(None, counts))
        for counts in (
            [line.tokens for line in lines],
            [line.generated_tokens for line in lines],
            [line.requests for line in lines],
        )
    )
    nano_usd = sum(line.nano_usd for line in lines)
    return SpendLine(name, nano_usd, tokens, generated_tokens=generated, requests=requests)


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
    """Values of one reading of the database; each reader sees a part of them."""

    store: Store
    report: ReportFigures
    advice: tuple[Recommendation, ...]
    receipts: tuple[StoredReceipt, ...]

    def of(self, scope: ReaderScope) -> _Reading:
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
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where, self._settings, self._now, self._monotonic = where, settings, clock, monotonic
        self._lock = threading.Lock()
        self._cached: tuple[float, _Reading] | None = None
        self._planning = threading.Lock()
        self._planner = Planner(settings)
        self._plan: tuple[_Reading, Plan] | None = None

    @in_dollars()
    def html(self, path: str, reader: PageReader) -> str | None:
        """Return the page at a path; None if there is none, or not for this reader. Raises StoreError."""
        scope = ReaderScope(self._settings, reader.owners)
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
            self._cached = self._monotonic(), _Reading(store, report, standing(store), all_receipts(store))
        return self._cached[1]

    def _planned(self, reading: _Reading) -> Plan:
        with self._planning:
            if self._plan is None or self._plan[0] is not reading:
                self._plan = reading, self._planner.plan(reading.store, reading.advice, PlanRequest())
            return self._plan[1]

    def _detail(self, part: _Reading, kind: str, prefix: str, scope: ReaderScope) -> str | None:
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


def _page(heading: str, sections: Sequence[Markup], report: ReportFigures, scope: ReaderScope, path: str = "") -> str:
    links = [
        tag("a", name, href=target, aria_current="page" if target == path else None) for target, name in NAMES.items()
    ]
    extent = report.source if scope.owners is None else f"services of {', '.join(scope.owners) or 'nobody'}"
    return document(
        heading, [f"{report.period.text} · {extent}"], [tag("nav", *links), *sections], f"{heading}, pertoken"
    )


def _now(report: ReportFigures, scope: ReaderScope) -> list[Markup]:
    head, troubles = [headline_list(report)], now_table(report)
    if scope.owners is not None:
        empty = "Nothing is wrong with a deployment of these services."
        notes = ("Alerts, and troubles of hosts and devices, have no owner: they are not shown to this login.",)
        head, troubles = [], replace(troubles, empty=empty, notes=notes)
    return [*head, table_section(troubles), table_section(regressions_table(report))]


def _costs(report: ReportFigures, scope: ReaderScope) -> list[Markup]:
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
    """Return a table with links from the ids in the first cells to their pages."""
    return replace(table, rows=tuple((tag("a", row[0], href=base + row[0]), *row[1:]) for row in table.rows))


def _plan(plan: Plan | None, window_s: int, scope: ReaderScope) -> list[Markup]:
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
    return [table_section(_receipts_table(part.receipts)), table_section(changes_table(part.report))]


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
    record_of = {track_record.rule: track_record.record for track_record in records(part.receipts)}
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
