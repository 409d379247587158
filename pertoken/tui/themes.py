"""Colours of the screens, and characters for terminals without box drawing.

In `dark` and `light` every text has a contrast of at least 4.5:1 against its background, which a test measures on the
screens. `16-colour` uses the terminal's own colours.
"""

from collections.abc import Sequence
from dataclasses import replace

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="dark",
    primary="#5fafff",
    secondary="#87d7ff",
    warning="#ffd75f",
    error="#ff8787",
    success="#87d787",
    accent="#ffaf5f",
    foreground="#e4e4e4",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    boost="#303030",
    dark=True,
    variables={
        "text-muted": "#b2b2b2",
        "text-disabled": "#a0a0a0",
        "footer-key-foreground": "#ffd75f",
        "footer-background": "#262626",
        "footer-description-foreground": "#e4e4e4",
    },
)
LIGHT = Theme(
    name="light",
    primary="#00509e",
    secondary="#005f87",
    warning="#7a4b00",
    error="#b00020",
    success="#17650f",
    accent="#8a4b00",
    foreground="#1c1c1c",
    background="#fcfcfc",
    surface="#f4f4f4",
    panel="#e4e4e4",
    boost="#dadada",
    dark=False,
    variables={
        "text-muted": "#4a4a4a",
        "text-disabled": "#5a5a5a",
        "footer-key-foreground": "#8a1c00",
        "footer-background": "#e4e4e4",
        "footer-description-foreground": "#1c1c1c",
    },
)
TERMINAL = replace(BUILTIN_THEMES["ansi-dark"], name="16-colour")
ALL = (DARK, LIGHT, TERMINAL)

_DRAWN = {
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺╼╾▁▔", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻▏▕▎▍▌▐", "|"),
    **dict.fromkeys("┌┐└┘┏┓┗┛╔╗╚╝╭╮╰╯├┤┬┴┼┣┫┳┻╋╞╡╪╫╬┠┨┡┩┢┪╟╢╤╧╇╈╉╊┯┷┿╂", "+"),
    **dict(zip("▂▃▄▅▆▇█", "_.:-=+#", strict=True)),
    **dict(zip("▓▒░", "%=.", strict=True)),
    **dict.fromkeys("▀▖▗▘▙▚▛▜▝▞▟▪●•·", "*"),
    **dict(zip("◐○≈→←↑↓▲▼✓✗×≤≥–…↺", "oo~><^v^vvxx<>-~r", strict=True)),
}
ASCII = str.maketrans(_DRAWN)


class AsciiDrawing(LineFilter):
    """Filter that replaces every drawing character with an ASCII character of the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments of a line without box drawing."""
        return [Segment(text.translate(ASCII), style, control) for text, style, control in segments]


def names() -> Sequence[str]:
    """Return the names of the themes."""
    return [theme.name for theme in ALL]
