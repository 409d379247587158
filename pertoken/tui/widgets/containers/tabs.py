"""Tabs with their panes. Only pages with tabs import this module: Textual's tabs take a while to load."""

from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import TabbedContent, TabPane

from pertoken.tui.widgets.containers.ground import ground


class Tabs(TabbedContent):
    """Tabs with their panes."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region."""
        return ground(self, crop)


class Pane(TabPane):
    """Content of one tab."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region."""
        return ground(self, crop)
