"""The one table of keys: bindings, footer, palette, help page and documentation are made from it."""

from dataclasses import dataclass

WINDOWS_S = (900, 3600, 21_600, 86_400, 604_800)
"""Windows to choose from, seconds."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key and what it does."""

    key: str
    """As Textual names it."""
    shown: str
    """As printed on the keyboard."""
    action: str
    command: str
    """Its name in the palette."""
    help: str
    footer: str = ""
    """Its word in the footer; without one it is not there."""


KEYS = (
    Key("1", "1", "fleet", "Show the fleet", "What runs now, and what its tokens cost.", "Fleet"),
    Key("2", "2", "savings", "Show savings", "What could be cheaper, and what could not be evaluated.", "Savings"),
    Key("h", "h", "hours", "Show the hours", "What a million tokens cost, by model and hour of the last day."),
    Key("enter", "enter", "open", "Open the selected row", "Everything known of the row, reasons included.", "Open"),
    Key("escape", "esc", "back", "Go back", "Close details or help, or drop the filter."),
    Key("tab", "tab", "next", "Go to the next table", "The next table of the screen, or the next tab."),
    Key("slash", "/", "filter", "Filter the rows", "Keep the rows that hold every word you type.", "Filter"),
    Key("o", "o", "sort", "Sort by the next column", "Step through the columns; then the first order again.", "Sort"),
    Key("O", "O", "reverse", "Reverse the sort order", "Turn the sorted column around."),
    Key("p", "p", "pause", "Pause or go on", "Freeze the figures to read them in peace.", "Pause"),
    Key("left_square_bracket", "[", "narrow", "Shorter window", "15m, 1h, 6h, 1d, 7d: one step shorter.", "Window"),
    Key("right_square_bracket", "]", "widen", "Longer window", "15m, 1h, 6h, 1d, 7d: one step longer.", "Window"),
    Key("question_mark", "?", "keys", "Show the keys", "This page.", "Keys"),
    Key("ctrl+p", "ctrl+p", "palette", "Search the commands", "Every command by its name."),
    Key("q", "q", "quit", "Quit", "Leave; an agent that runs as a service goes on.", "Quit"),
)
"""All keys, in the order they are shown."""
