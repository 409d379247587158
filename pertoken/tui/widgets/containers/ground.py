"""Background of containers: one strip for all lines.

Textual renders each line of a container, although its children cover it. A screen has several containers inside each
other, and their lines were most of a frame.
"""

from functools import lru_cache

from rich.style import Style
from textual.color import Color
from textual.containers import Vertical
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


def ground(container: Widget, crop: Region) -> list[Strip]:
    """Return the lines of a region of a container without border and text."""
    _, background = container.background_colors
    strip = _blank(crop.width, background)
    for line_filter in container.get_line_filters():
        strip = strip.apply_filter(line_filter, background)
    return [strip] * crop.height


@lru_cache(maxsize=64)
def _blank(width: int, background: Color) -> Strip:
    return Strip.blank(width, Style.from_color(bgcolor=background.rich_color))


class Lists(Vertical):
    """Tables of a page, with the widgets around them."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region."""
        return ground(self, crop)
