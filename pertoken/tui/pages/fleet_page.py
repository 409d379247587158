"""The fleet page: figures now, the bill of the window, and tables of services, hosts, tenants or owners."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.message import Message

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, FleetReport, HostUse
from pertoken.text.costs import spend_columns, tenant_sheet
from pertoken.text.fleet import (
    MAX_USD_PER_HOUR,
    advice_counts,
    deployment_columns,
    device_columns,
    ended_line,
    ended_sheet,
    first_group,
    group_note,
    host_use_columns,
    next_group,
    running,
    staleness,
    unpriced_device,
    why_not_priced,
)
from pertoken.text.fleet_sheets import (
    deployment_sheet,
    device_sheet,
    event_lines,
    finding_lines,
    fleet_notes,
    host_page_sheet,
    notices_sheet,
    trouble_rows,
)
from pertoken.text.keys import with_keys
from pertoken.text.sheet import Section, Sheet
from pertoken.text.words import literal
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.page import Page, SheetPage
from pertoken.tui.source import ScreenView
from pertoken.tui.widgets.boxes import AskBox
from pertoken.tui.widgets.figures import BillBar, Headline, Notices
from pertoken.tui.widgets.layout import Chart, PlainText, Stack
from pertoken.tui.widgets.table import Rows
from pertoken.units import NANO_USD

if TYPE_CHECKING:
    from pertoken.costs.spend import SpendLine
    from pertoken.text.columns import Column
    from pertoken.tui.pages.course_page import CoursePage
    from pertoken.window.course import Subject

    FleetRow = DeploymentLine | DeviceLine | HostUse | SpendLine


_EVENTS = 3
NOW_MARGIN = 2
"""Cells beside the lines of troubles."""
_TABLES = {"service": ("deployments", "devices", "hosts"), "host": ("hosts",)}
"""Ids of the tables that a group shows; tenants and owners are in `spend`."""
_KEYS: dict[str, Callable[[Any], Hashable]] = {
    "deployments": lambda line: line.deployment_id,
    "devices": lambda line: line.device_id,
    "hosts": lambda use: use.host.host_id,
    "spend": lambda line: line.name,
}
"""Function that returns the identity of a line, by the id of its table, from the topmost table down."""


class FleetPage(ListPage["FleetRow"]):
    """Screen 1."""

    FOOTER = ("savings", "plan", "rules", "open", "filter", "group", "narrow", "widen", "keys", "quit")
    OWN = frozenset({"group", "price"})

    @dataclass
    class Priced(Message):
        """A person entered a price: nano-USD for an hour of the device that `selector` names."""

        selector: str
        nano_usd: int

    def __init__(self, view: Callable[[], ScreenView], heading: str, windowed: bool) -> None:
        super().__init__(view, heading, windowed)
        self._course_page: CoursePage | None = None
        self._chosen: str | None = None
        self._selector = ""
        """Name of the device in the price question, as `pertoken prices` uses it."""
        self._filled: tuple[object, ...] = ()
        self._filled_by: tuple[object, ...] | None = None
        """Values and settings that the page was last filled from."""

    @property
    def group(self) -> str:
        """Grouping of the rows: `service`, `host`, `tenant` or a basis of owners. The default depends on the number of
        hosts."""
        report = self.view().reading.fleet.value
        return self._chosen or ("service" if report is None else first_group(report))

    @property
    def spend_by(self) -> str | None:
        """Basis by which the bill is divided; None for services and hosts: their tables need no division."""
        return None if self.group in _TABLES else self.group

    def body(self) -> ComposeResult:
        """Yield the tables, and the input line for a price."""
        yield from super().body()
        yield AskBox()

    def lists(self) -> ComposeResult:
        """Yield figures, hints, tables and events."""
        yield Notices("now")
        yield Headline()
        yield BillBar()
        yield Notices("hints")
        yield PlainText(id="group-note")
        with Stack():
            for name, key in _KEYS.items():
                yield Rows[Any](key, name)
            yield Chart("Generated tok/s of the fleet in the window")
        yield Notices("ended")
        yield PlainText(id="notes")
        yield Notices("events")

    def show(self, view: ScreenView) -> None:
        """Fill the page if anything that it shows has changed, so that a refresh of a large fleet stays cheap."""
        values, settings = self._values(view), self._settings(view)
        same = len(values) == len(self._filled) and not any(map(is_not, values, self._filled))
        if not same or settings is None or settings != self._filled_by:
            super().show(view)
            self._filled, self._filled_by = values, settings

    @staticmethod
    def _values(view: ScreenView) -> tuple[object, ...]:
        """Return the large values that the page is filled from, to compare by identity."""
        reading, study = view.reading, view.study
        read = (reading.fleet.value, reading.advice.value, reading.spend.value, reading.banked.value)
        return (*read, study.plan.value, study.findings)

    def _settings(self, view: ScreenView) -> tuple[object, ...] | None:
        """Return everything else that the page depends on; None if it changes with time: ages of stale rows."""
        report, spend = view.reading.fleet.value, view.reading.spend
        if report is None or any(map(staleness(report, view.older_s), report.hosts)):
            return None
        state = (
            spend.error,
            spend.query,
            view.reading.no_advice.value,
            view.past(view.reading.fleet),
            view.working.get("findings"),
        )
        return (*state, self.size, self.group, self.focused is None)

    def fill(self, view: ScreenView) -> None:
        """Fill figures, tables and notes from the report of the fleet."""
        reading, report = view.reading, view.reading.fleet.value
        assert report is not None
        self.set_class(not report.deployments, "-nothing-served")
        shown_plan = view.study.plan.value
        no_advice = reading.no_advice.value
        self.query_one(Headline).show(report, shown_plan.plan if shown_plan else None, reading.banked.value, no_advice)
        self.query_one(BillBar).show(report)
        self.query_one("#now", Notices).show(trouble_rows(report.troubles, max(1, self.size.width - NOW_MARGIN)))
        hints = [f"→ {literal(hint)}" for hint in report.hints]
        examined = _findings(view, report)
        self.query_one("#hints", Notices).show([*hints, *examined])
        self.query_one("#events", Notices).show(event_lines(report)[:_EVENTS])

        late, older_s = staleness(report, view.older_s), view.older_s
        counts = advice_counts(reading.advice.value or (), report)
        columns: dict[str, Callable[[], Sequence[Column[Any]]]] = {
            "deployments": lambda: deployment_columns(report, older_s, counts.deployments),
            "devices": lambda: device_columns(report, older_s),
            "hosts": lambda: host_use_columns(report, counts, older_s),
            "spend": lambda: () if reading.spend.value is None else spend_columns(reading.spend.value),
        }
        for name in _KEYS:
            lines, table = self.lines_of(name, view), self.query_one(f"#{name}", Rows)
            table.spare = name == "hosts" and self.group == "service"
            table.show(lines, columns[name](), late if name != "spend" else lambda _: False)
        self.query_one(Chart).show(partial(_generated, report))
        note = self.query_one("#group-note", PlainText)
        note.update(group_note(self.group, reading.spend.value, reading.spend.error))
        note.display = self.group != "service"
        ended = ended_line(report) if self.group == "service" else None
        self.query_one("#ended", Notices).show([] if ended is None else [ended])
        notes, lines_of_notes = self.query_one("#notes", PlainText), fleet_notes(report)
        notes.update("\n".join(lines_of_notes))
        notes.set_class(not lines_of_notes, "-empty")

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; hints and events can be opened as rows can."""
        if action == "price":
            line, report = self.selected, self.view().reading.fleet.value
            if line is None or report is None:
                return "No row is selected."
            if self.view().past(self.view().reading.fleet) is not None:
                return with_keys("This is the past: press {now} to go back to now, then set a price.")
            return why_not_priced(line, report)
        return None if action == "open" and isinstance(self.focused, Notices) else super().cannot(action)

    def price(self) -> None:
        """Open the input line for the price of the selected device."""
        report = self.view().reading.fleet.value
        device = None if report is None else unpriced_device(self.selected, report)
        if device is not None:
            self._selector = device
            question = f"What does an hour of {literal(device)} cost you, in US dollars? esc closes."
            self.query_one(AskBox).ask(question, "")

    def on_ask_box_given(self, event: AskBox.Given) -> None:
        """Send the price that was typed."""
        event.stop()
        try:
            dollars = Decimal(event.text.strip().removeprefix("$"))
            usable = dollars.is_finite() and 0 <= dollars <= MAX_USD_PER_HOUR
        except InvalidOperation:
            usable = False
        if not usable:
            problem = f"{literal(event.text)}: type US dollars from 0 to {MAX_USD_PER_HOUR:,}, such as 2.49"
            self.app.notify(problem, severity="error", markup=False)
            return
        self.close_input()
        self.post_message(self.Priced(self._selector, int(dollars * NANO_USD)))

    def group_next(self) -> None:
        """Group the rows by service, host, tenant or owner: the one after the current."""
        divided = self.view().reading.spend.value
        self._chosen = next_group(self.group, () if divided is None else divided.bases)
        self.renew()
        self.give_back_keys()

    def open(self) -> None:
        """Open the selected row, or the page of all hints and events."""
        if isinstance(self.focused, Notices):
            sheet = _ended if self.focused.id == "ended" else self._notices_sheet
            self.app.push_screen(SheetPage(self.view, self.heading, sheet, self.part, windowed=True))
        else:
            super().open()

    def _notices_sheet(self, view: ScreenView) -> Sheet | None:
        report = view.reading.fleet.value
        if report is None:
            return None
        examined = _findings(view, report)
        return (*notices_sheet(report), *((Section("This host, as examined", tuple(examined)),) if examined else ()))

    def lines_of(self, table: str, view: ScreenView) -> Sequence[FleetRow]:
        """Return the lines of a table; none if the current group does not show it. Ended engines are no rows."""
        report = view.reading.fleet.value
        if report is None or table not in _TABLES.get(self.group, ("spend",)):
            return ()
        if table == "deployments":
            return running(report)
        if table == "spend":
            divided = view.reading.spend.value
            return divided.lines if divided is not None and divided.by == self.group else ()
        return report.uses if table == "hosts" else report.devices

    def heading_of(self, line: FleetRow | None) -> str:
        """Return the kind of a line."""
        return "Device" if isinstance(line, DeviceLine) else "Tenant" if self.group == "tenant" else "Owner"

    def page_of(self, line: Callable[[ScreenView], FleetRow | None]) -> Page:
        """Return the page of a line; that of a service or host has plots."""
        from pertoken.window.course import Subject  # not needed for the first frame

        shown = line(self.view())
        if not isinstance(shown, DeploymentLine | HostUse):
            return super().page_of(line)
        if isinstance(shown, HostUse):
            return self.page_about(Subject("host", shown.host.host_id))
        return self.page_about(Subject("deployment", shown.deployment_id))

    def page_about(self, subject: Subject) -> CoursePage:
        """Return the page of a host or deployment, with plots."""
        current = partial(_line_of, subject)

        def sheet(view: ScreenView) -> Sheet | None:
            shown = current(view)
            return None if shown is None else self.details(shown, view)

        page = self.course_page()
        page.about("Host" if subject.kind == "host" else "Service", subject, sheet, current)
        return page

    def course_page(self) -> CoursePage:
        """Return the page of hosts and services, which stays when it is closed: no other can be open beside it."""
        from pertoken.tui.pages.course_page import CoursePage  # not needed for the first frame

        if self._course_page is None:
            self._course_page = CoursePage(self.view)
            self.app.install_screen(self._course_page, "course")
        return self._course_page

    def details(self, line: FleetRow, view: ScreenView) -> Sheet:
        """Return the facts of a deployment, device, host, tenant or owner."""
        report = view.reading.fleet.value
        assert report is not None
        if isinstance(line, DeploymentLine):
            return deployment_sheet(report, line, view.older_s)
        if isinstance(line, DeviceLine):
            return device_sheet(report, line, view.older_s)
        return host_page_sheet(report, line, view.older_s) if isinstance(line, HostUse) else tenant_sheet(line)


def _findings(view: ScreenView, report: FleetReport) -> list[str]:
    findings = view.study.findings
    return finding_lines(findings.value, findings.error, view.working.get("findings"), report)


def _generated(report: FleetReport) -> Sequence[float | None]:
    """Return the generated tokens per second of the fleet over the window, None where nothing was observed."""
    slices = zip(*(line.spark for line in report.deployments), strict=False)
    return [sum(rates) if (rates := [value for value in values if value is not None]) else None for values in slices]


def _line_of(subject: Subject, view: ScreenView) -> DeploymentLine | HostUse | None:
    report = view.reading.fleet.value
    if report is None:
        return None
    if subject.kind == "host":
        return next((report.uses[n] for n, host in enumerate(report.hosts) if host.host_id == subject.id), None)
    return next((line for line in report.deployments if line.deployment_id == subject.id), None)


def _ended(view: ScreenView) -> Sheet | None:
    return ended_sheet(view.reading.fleet.value) if view.reading.fleet.value else None
