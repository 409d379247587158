"""Lines of one style each under a header, with a cursor on one of them.

Textual's `DataTable` renders each cell alone, which takes a tenth of a second for a screen of rows; these lines
are drawn as they are, one segment each.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

HEADER = 1
"""Height of the header, which does not scroll."""

Line = tuple[str, bool]
"""Text of a line, which fits the width, and whether it is drawn as stale."""


class CursorLines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines with a cursor that keys, the wheel and clicks move. `enter` is left to the page."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--header", "rows--cursor", "rows--stale"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", show=False),
        Binding("down", "cursor_down", show=False),
        Binding("pageup", "page_up", show=False),
        Binding("pagedown", "page_down", show=False),
        Binding("ctrl+home", "first", show=False),
        Binding("ctrl+end", "last", show=False),
    ]

    cursor_row: reactive[int] = reactive(0, repaint=False)

    class Chosen(Message):
        """A person clicked a line, which has the cursor now."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._header = ""
        self._lines: Sequence[Line] = ()
        self._styles_now: tuple[Style, Style] | None = None
        """Styles of lines while they are drawn; Textual computes them at each access."""

    @property
    def row_count(self) -> int:
        """Number of lines that are made."""
        return len(self._lines)

    def line_at(self, row: int) -> Line:
        """Return a line."""
        return self._lines[row]

    def replace_lines(self, header: str, lines: Sequence[Line], cursor_row: int) -> None:
        """Show other lines and draw those that differ. The cursor goes to `cursor_row`; the scrolled offset stays."""
        before, self._lines = self._lines, lines
        if len(lines) != len(before):
            self.virtual_size = Size(1, len(lines) + HEADER)
            self.refresh()
        else:
            for row, (old, new) in enumerate(zip(before, lines, strict=True)):
                if old != new:
                    self.refresh_line(row + HEADER)
        if header != self._header:
            self._header = header
            self.refresh(Region(0, 0, max(1, self.size.width), HEADER))
        self.cursor_row = cursor_row

    def validate_cursor_row(self, row: int) -> int:
        """Keep the cursor on a line."""
        return max(0, min(row, len(self._lines) - 1))

    def watch_cursor_row(self, before: int, row: int) -> None:
        """Draw the lines that the cursor left and came to, and scroll to it."""
        self.refresh_line(before + HEADER)
        self.refresh_line(row + HEADER)
        self.show_cursor()

    def move_cursor(self, row: int) -> None:
        """Put the cursor on a line and scroll to it."""
        self.cursor_row = row
        self.show_cursor()

    def show_cursor(self) -> None:
        """Scroll to the line with the cursor."""
        if self.size.height > HEADER:
            line = Region(0, self.cursor_row + HEADER, 1, 1)
            self.scroll_to_region(line, animate=False, spacing=Spacing(top=HEADER), force=True)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - HEADER)

    def action_cursor_up(self) -> None:
        """Go a line up."""
        self.move_cursor(self.cursor_row - 1)

    def action_cursor_down(self) -> None:
        """Go a line down."""
        self.move_cursor(self.cursor_row + 1)

    def action_page_up(self) -> None:
        """Go a page up."""
        self.scroll_relative(y=-self._page, animate=False, force=True)
        self.cursor_row -= self._page

    def action_page_down(self) -> None:
        """Go a page down."""
        self.scroll_relative(y=self._page, animate=False, force=True)
        self.cursor_row += self._page

    def action_first(self) -> None:
        """Go to the first line."""
        self.move_cursor(0)

    def action_last(self) -> None:
        """Go to the last line that is made."""
        self.move_cursor(len(self._lines) - 1)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region."""
        self._styles_now = self._line_styles()
        strips = super().render_lines(crop)
        self._styles_now = None
        return strips

    def _line_styles(self) -> tuple[Style, Style]:
        """Return the style of usual lines, and that of stale ones."""
        usual = self.rich_style
        return usual, usual + Style.from_color(self.get_component_rich_style("rows--stale").color)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen: the header, or the line that is scrolled there."""
        row = y - HEADER + self.scroll_offset.y
        usual, late = self._styles_now or self._line_styles()
        if y < HEADER:
            return self._strip(self._header, self.get_component_rich_style("rows--header"))
        if row >= len(self._lines):
            return Strip.blank(self.size.width, usual)
        text, stale = self._lines[row]
        if row == self.cursor_row:
            return self._strip(text, self.get_component_rich_style("rows--cursor"))
        return self._strip(text, late if stale else usual)

    def _strip(self, text: str, style: Style) -> Strip:
        return Strip([Segment(text, style)]).adjust_cell_length(self.size.width, style)
