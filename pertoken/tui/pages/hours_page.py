"""The hours page: the price of a million tokens by model and hour of the last day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pertoken.costs.hours import ModelHours
from pertoken.text.costs import hour_columns, hours_sheet, notes
from pertoken.text.keys import with_keys
from pertoken.tui.pages.list_page import ListedTable, ListPage

if TYPE_CHECKING:
    from pertoken.text.sheet import Sheet
    from pertoken.tui.source import Read, ScreenView


_NONE = "No model was served in the last 24 hours: the fleet ({fleet}) shows what runs now."


class HoursPage(ListPage[ModelHours]):
    """Table of models; `enter` opens the hours of one."""

    TABLES: ClassVar[Mapping[str, ListedTable]] = {"models": ListedTable(lambda line: line.model, hour_columns)}

    def part(self, view: ScreenView) -> Read[object]:
        """Return the reading of the hours."""
        return view.reading.hours

    def lines_of(self, table: str, view: ScreenView) -> Sequence[ModelHours]:
        """Return the models with their hours."""
        return view.reading.hours.value or ()

    def details(self, line: ModelHours, view: ScreenView) -> Sheet:
        """Return the hours of one model."""
        return hours_sheet(line)

    def head(self, view: ScreenView) -> str:
        """Return notes on the hours."""
        lines = self.lines_of("models", view)
        return " ".join(notes(lines)) if lines else with_keys(_NONE)
