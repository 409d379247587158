"""A page of facts: the details of a row, or help. It follows the readings."""

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

_ALONE = "This page shows one thing: esc goes back to the list."


class SheetPage(Page):
    """`sheet` makes the page of a view, or None when what it is about is gone."""

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
        """One text that scrolls."""
        with VerticalScroll():
            yield self._text

    def part(self, view: View) -> Read[Any]:
        """The part its list shows."""
        return self._part(view)

    def cannot(self, action: str) -> str | None:
        """There are no rows here."""
        if action in ("open", "filter", "sort", "reverse", "next", "columns"):
            return _ALONE
        return super().cannot(action)

    def show(self, view: View) -> None:
        """Show what is now known of it."""
        sheet = self._sheet(view)
        if sheet is None:
            self._shown = None
            self._text.update("It is no longer there: esc goes back.")
        else:
            self.draw(sheet)

    def as_text(self) -> str:
        """Return all its facts."""
        return text_of(self._shown or ())

    def draw(self, sheet: Sheet) -> None:
        """Draw facts, where they are others than those that are shown."""
        if sheet != self._shown:
            self._shown = sheet
            self._text.update(drawn_sheet(sheet))


def drawn_sheet(sheet: Sheet) -> RenderableType:
    """Return a sheet as it is shown."""
    return Group(*(_section(section) for section in sheet))


def _section(section: Section) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    facts = [line for line in section.lines if not isinstance(line, str)]
    for label, value in facts:
        grid.add_row(Text(label, "dim"), Text(value, overflow="fold"))
    sentences = [Text(line, overflow="fold") for line in section.lines if isinstance(line, str)]
    body = Group(*([grid] if facts else []), *sentences)
    return Group(Text(section.title, "bold"), Padding(body, (0, 0, 1, 2)))
