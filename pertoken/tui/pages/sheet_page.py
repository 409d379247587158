"""Page of facts, such as the details of a row or help; it is updated by every reading."""

from collections.abc import Callable
from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll

from pertoken.tui.pages.page import LATE_S, Page
from pertoken.tui.source import Read, View
from pertoken.tui.text.sheet import Section, Sheet, text_of
from pertoken.tui.widgets.plain_text import PlainText

_ALONE = "This page has no rows: esc goes back to the list."


class SheetPage(Page):
    """Page of one sheet. `sheet` makes it from a view; None once its subject is gone."""

    FOOTER: ClassVar[tuple[str, ...]] = ("fleet", "savings", "plan", "rules", "back", "jump", "pager", "keys", "quit")
    AUTO_FOCUS = "VerticalScroll"

    def __init__(
        self,
        view: Callable[[], View],
        heading: str,
        sheet: Callable[[View], Sheet | None],
        part: Callable[[View], Read[Any]],
        windowed: bool = False,
        late_s: float | None = LATE_S,
    ) -> None:
        super().__init__(view, heading, windowed)
        self.late_s = late_s
        self._sheet, self._part = sheet, part
        self._text = PlainText()
        self._shown: Sheet | None = None

    def body(self) -> ComposeResult:
        """Yield a text that scrolls."""
        with VerticalScroll():
            yield self._text

    def part(self, view: View) -> Read[Any]:
        """Return the part of the view that the sheet is made from."""
        return self._part(view)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; this page has no rows."""
        if action in ("open", "filter", "sort", "reverse", "next", "columns"):
            return _ALONE
        return super().cannot(action)

    def show(self, view: View) -> None:
        """Show the sheet of a view."""
        sheet = self._sheet(view)
        if sheet is None:
            self._shown = None
            self._text.update("It no longer exists: esc goes back.")
        else:
            self.draw(sheet)

    def as_text(self) -> str:
        """Return the sheet as text."""
        return text_of(self._shown or ())

    def draw(self, sheet: Sheet) -> None:
        """Draw a sheet if it differs from the one that is shown."""
        if sheet != self._shown:
            self._shown = sheet
            self._text.update(drawn_sheet(sheet))


def drawn_sheet(sheet: Sheet) -> RenderableType:
    """Return a sheet for Textual to draw."""
    return Group(*(_section(section) for section in sheet))


def _section(section: Section) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    facts = [line for line in section.lines if not isinstance(line, str)]
    for label, value in facts:
        grid.add_row(Text(label, "dim"), Text(value, overflow="fold"))
    sentences = [Text(line, overflow="fold") for line in section.lines if isinstance(line, str)]
    body = Group(*([grid] if facts else []), *sentences)
    return Group(Text(section.title, "bold"), Padding(body, (0, 0, 1, 2)))
