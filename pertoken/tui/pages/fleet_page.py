"""The fleet: what it costs now, the bill of the window, deployments, devices and hosts."""

from collections.abc import Sequence
from typing import Any

from textual.app import ComposeResult
from textual.widgets import Static

from pertoken.costs.report.lines import DeploymentLine, DeviceLine, HostLine
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import View
from pertoken.tui.text.fleet_columns import deployment_columns, device_columns, host_columns, staleness
from pertoken.tui.text.fleet_sheets import deployment_sheet, device_sheet, host_sheet
from pertoken.tui.text.notes import event_lines, fleet_notes, notices_sheet
from pertoken.tui.text.sheet import Sheet
from pertoken.tui.text.words import literal
from pertoken.tui.widgets.bill_bar import BillBar
from pertoken.tui.widgets.headline import Headline
from pertoken.tui.widgets.notices import Notices
from pertoken.tui.widgets.rows import Rows
from pertoken.tui.widgets.stack import Stack

_EVENTS = 3


class FleetPage(ListPage):
    """The first screen."""

    def lists(self) -> ComposeResult:
        """Figures, hints, tables, events."""
        yield Headline()
        yield BillBar()
        yield Notices("hints")
        with Stack():
            yield Rows[DeploymentLine](lambda line: line.deployment_id, "deployments")
            yield Rows[DeviceLine](lambda line: line.device_id, "devices")
            yield Rows[HostLine](lambda line: line.host_id, "hosts", spare=True)
        yield Static(id="notes", markup=False)
        yield Notices("events")

    def fill(self, view: View) -> None:
        """Show a report."""
        report = view.reading.fleet.value
        assert report is not None
        self.set_class(not report.deployments, "-nothing-served")
        self.query_one(Headline).show(report)
        self.query_one(BillBar).show(report)
        self.query_one("#hints", Notices).show([f"→ {literal(hint)}" for hint in report.hints])
        self.query_one("#events", Notices).show(event_lines(report)[:_EVENTS])

        late = staleness(report)
        self.query_one("#deployments", Rows).show(report.deployments, deployment_columns(report), late)
        self.query_one("#devices", Rows).show(report.devices, device_columns(report), late)
        self.query_one("#hosts", Rows).show(report.hosts, host_columns(report), late)
        notes = self.query_one("#notes", Static)
        notes.update("\n".join(fleet_notes(report)))
        notes.set_class(not fleet_notes(report), "-empty")

    def cannot(self, action: str) -> str | None:
        """Hints and events can be opened, too."""
        return None if action == "open" and isinstance(self.focused, Notices) else super().cannot(action)

    def open(self) -> None:
        """Open a row, or all hints and events."""
        if isinstance(self.focused, Notices):
            self.app.push_screen(SheetPage(self.view, self.heading, _notices, self.part, windowed=True))
        else:
            super().open()

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """The tables have the names of the report's fields."""
        return tuple(getattr(view.reading.fleet.value, table)) if view.reading.fleet.value else ()

    def details(self, line: Any, view: View) -> Sheet:
        """All of a deployment, a device or a host."""
        report = view.reading.fleet.value
        assert report is not None
        if isinstance(line, DeploymentLine):
            return deployment_sheet(report, line)
        return device_sheet(report, line) if isinstance(line, DeviceLine) else host_sheet(report, line)


def _notices(view: View) -> Sheet | None:
    return notices_sheet(view.reading.fleet.value) if view.reading.fleet.value else None
