"""Page of facts, such as the details of a row or help; it is updated by every reading."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from pertoken.text.sheet import Piece, Section, Sheet, laid_out, text_of
from pertoken.tui.pages.page import LATE_S, Page
from pertoken.tui.source import Read, View

_ALONE = "This page has no rows: esc goes back to the list."


class SheetText(Widget):
    """A sheet as lines of the present width."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"sheet--title", "sheet--label"}

    def __init__(self) -> None:
        super().__init__()
        self._sheet: Sheet = ()
        self._lines: Sequence[tuple[Piece, ...]] = ()
        self._width: int | None = None
        """Width in cells of `_lines`; None: they are not made yet."""

    def show(self, sheet: Sheet) -> None:
        """Show a sheet."""
        self._sheet, self._width = sheet, None
        self.refresh(layout=True)

    def _at_width(self, width: int) -> Sequence[tuple[Piece, ...]]:
        if width != self._width:
            self._lines, self._width = laid_out(self._sheet, width), width
        return self._lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at this width."""
        return len(self._at_width(width))

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        lines, width, usual = self._at_width(self.size.width), self.size.width, self.rich_style
        styles = {
            "title": self.get_component_rich_style("sheet--title"),
            "label": self.get_component_rich_style("sheet--label"),
            "text": usual,
        }
        pieces = lines[y] if y < len(lines) else ()
        return Strip([Segment(text, styles[kind]) for text, kind in pieces]).adjust_cell_length(width, usual)


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
        self._text = SheetText()
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
            self._text.show((Section("It no longer exists: esc goes back.", ()),))
        else:
            self.draw(sheet)

    def as_text(self) -> str:
        """Return the sheet as text."""
        return text_of(self._shown or ())

    def draw(self, sheet: Sheet) -> None:
        """Draw a sheet if it differs from the one that is shown."""
        if sheet != self._shown:
            self._shown = sheet
            self._text.show(sheet)


class KeysPage(SheetPage):
    """Help, over the page that `over` set last. It is made once: its text never changes."""

    def __init__(self, view: Callable[[], View], keys: Sheet) -> None:
        self._under: Page | None = None
        super().__init__(view, "Keys", lambda _: keys, self._part_under)

    def over(self, page: Page) -> None:
        """Show the state of a page in the title."""
        self._under, self.late_s = page, page.late_s

    def _part_under(self, view: View) -> Read[Any]:
        return view.reading.fleet if self._under is None else self._under.part(view)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now."""
        return "These are the keys: esc goes back." if action == "keys" else super().cannot(action)
