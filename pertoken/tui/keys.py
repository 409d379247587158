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
    """Its word in the footer of the pages that show it there."""
    elsewhere: str = ""
    """Why it does nothing on other pages than its own; without one every page has it."""


STEPS_S = {900: 60, 3600: 300, 21_600: 1800, 86_400: 7200, 604_800: 43_200}
"""Step of a replay by window, seconds: about a twelfth of it."""
DECISIONS = ("accept", "snooze", "dismiss", "reopen", "applied", "undo")
"""Actions on one recommendation: the commands of the same names."""
WRITES = frozenset((*DECISIONS, "export", "dump"))
"""Actions that store a decision or write a file on the host that pertoken runs on: none of them is for readers."""
_ADVICE = "This key is for a recommendation: press 2 and choose one."
_PLAN = "This key is for the plan: press 3."
_COPY = "This key copies commands: open a recommendation (2) or a step of the plan (3)."
KEYS = (
    Key("1", "1", "fleet", "Show the fleet", "What runs now, and what its tokens cost.", "Fleet"),
    Key("2", "2", "savings", "Show savings", "What could be cheaper, and what could not be evaluated.", "Savings"),
    Key("3", "3", "plan", "Show the plan", "The changes that save most together, in their order.", "Plan"),
    Key("4", "4", "rules", "Show the rules", "Which rules run, what they found, and how right they were.", "Rules"),
    Key("h", "h", "hours", "Show the hours", "What a million tokens cost, by model and hour of the last day."),
    Key("enter", "enter", "open", "Open the selected row", "Everything known of the row, reasons included.", "Open"),
    Key("escape", "esc", "back", "Go back", "Close details or help, or drop the filter.", "Back"),
    Key("tab", "tab", "next", "Go to the next table", "The next table of the screen, or the next tab.", "Next"),
    Key("slash", "/", "filter", "Filter the rows", "Keep the rows that hold every word you type.", "Filter"),
    Key("o", "o", "sort", "Sort by the next column", "Step through the columns; then the first order again.", "Sort"),
    Key("O", "O", "reverse", "Reverse the sort order", "Turn the sorted column around."),
    Key(
        "a",
        "a",
        "accept",
        "Accept the recommendation",
        "Freeze its estimate; pertoken runs no command.",
        "Accept",
        _ADVICE,
    ),
    Key("z", "z", "snooze", "Snooze the recommendation", "Put it off for 14 days.", "Snooze", _ADVICE),
    Key(
        "d",
        "d",
        "dismiss",
        "Dismiss the recommendation",
        "Decline it for 90 days; its dollars count as declined.",
        "Dismiss",
        _ADVICE,
    ),
    Key(
        "b",
        "b",
        "reopen",
        "Bring the recommendation back",
        "End a snooze or dismissal, or withdraw an acceptance.",
        elsewhere=_ADVICE,
    ),
    Key(
        "m",
        "m",
        "applied",
        "Mark as applied",
        "Declare what telemetry cannot show; changes it shows are detected.",
        elsewhere=_ADVICE,
    ),
    Key(
        "u",
        "u",
        "undo",
        "Mark as undone",
        "See the commands that undo it, and declare that it was undone.",
        elsewhere=_ADVICE,
    ),
    Key(
        "y",
        "y",
        "copy",
        "Copy one command",
        "Copy the next command to the clipboard; pertoken runs none.",
        "Copy",
        _COPY,
    ),
    Key("Y", "Y", "copy_all", "Copy all commands", "Copy every command, and how to undo it.", "Copy all", _COPY),
    Key(
        "w",
        "w",
        "assume",
        "Ask what if",
        "Other traffic, prices, tariff or objectives; in details, another number for one assumption.",
        "What if",
        "This key is for the plan (3) and for the details of a recommendation (2, then enter).",
    ),
    Key(
        "space",
        "space",
        "toggle",
        "Leave out or take in",
        "Plan: leave a step out, or take it in again. Rules: switch a rule off or on.",
        "In/out",
        "This key is for a step of the plan (3) or a rule (4).",
    ),
    Key("K", "K", "move_up", "Move the step up", "Do the step before the one above it.", "Move", _PLAN),
    Key("J", "J", "move_down", "Move the step down", "Do the step after the one below it.", "Move", _PLAN),
    Key(
        "e",
        "e",
        "export",
        "Export the plan",
        "Write it as Markdown, a shell script, Kubernetes patches or JSON.",
        "Export",
        _PLAN,
    ),
    Key(
        "r",
        "r",
        "reload",
        "Read again",
        "Plan: compose it again from the newest telemetry. Rules: load the files again.",
        "Reload",
        "This screen reads again all the time; this key is for the plan (3) and the rules (4).",
    ),
    Key("p", "p", "pause", "Pause or go on", "Freeze the figures to read them in peace.", "Pause"),
    Key("left_square_bracket", "[", "narrow", "Shorter window", "15m, 1h, 6h, 1d, 7d: one step shorter.", "Window"),
    Key("right_square_bracket", "]", "widen", "Longer window", "15m, 1h, 6h, 1d, 7d: one step longer.", "Window"),
    Key(
        "g",
        "g",
        "group",
        "Group by host, service or tenant",
        "Show the fleet by service, by host, then by tenant.",
        elsewhere="Only the fleet has groups: press 1 first.",
    ),
    Key("comma", ",", "earlier", "Step back in time", "Replay what is stored: a step earlier."),
    Key("full_stop", ".", "later", "Step forward in time", "A step later; the last step is the present."),
    Key("less_than_sign", "<", "event_before", "Go to the event before", "Show the time of the event before this one."),
    Key("greater_than_sign", ">", "event_after", "Go to the next event", "Show the time of the next event."),
    Key("t", "t", "moment", "Go to a time", "Type a time: 2026-11-21T10:00Z, or 3h for ago."),
    Key("n", "n", "now", "Go back to now", "End the replay and show the newest figures."),
    Key("question_mark", "?", "keys", "Show the keys", "This page.", "Keys"),
    Key("ctrl+p", "ctrl+p", "palette", "Search the commands", "Every command by its name."),
    Key("ctrl+z", "ctrl+z", "suspend", "Suspend", "Go back to the shell; `fg` shows the screens again."),
    Key("q", "q", "quit", "Quit", "Leave; an agent that runs as a service goes on.", "Quit"),
)
"""All keys, in the order they are shown."""
KEY_OF = {key.action: key for key in KEYS}
