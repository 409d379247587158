"""Table of all keys, from which bindings, footer, palette, help page and documentation are made."""

from dataclasses import dataclass

WINDOWS_S = (900, 3600, 21_600, 86_400, 604_800)
"""Windows that a person can choose, seconds."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key with its action."""

    key: str
    """Name of the key in Textual."""
    shown: str
    """Label of the key on the keyboard."""
    action: str
    command: str
    """Name of the action in the palette."""
    help: str
    footer: str = ""
    """Word in the footer of pages that list the key there."""
    elsewhere: str = ""
    """Reason shown on pages where the key does nothing, with actions in braces; empty: every page has the key."""
    synonyms: str = ""
    """More words that match it in the palette."""


STEPS_S = {900: 60, 3600: 300, 21_600: 1800, 86_400: 7200, 604_800: 43_200}
"""Step of a replay in seconds, by window in seconds: about a twelfth of the window."""
DECISIONS = ("accept", "trial", "snooze", "dismiss", "reopen", "applied", "undo")
"""Decisions on one recommendation; `pertoken` has commands of the same names."""
WRITES = frozenset((*DECISIONS, "export", "dump", "price"))
"""Actions that store data, or write a file on the host of pertoken: refused in read-only screens."""
_ADVICE = "This key is for a recommendation: press {savings} and choose one."
_PLAN = "This key is for the plan: press {plan}."
_COPY = "This key copies commands: open a recommendation ({savings}) or a step of the plan ({plan})."
KEYS = (
    Key("1", "1", "fleet", "Show the fleet", "What runs now, and what its tokens cost.", "Fleet"),
    Key("2", "2", "savings", "Show savings", "What could be cheaper, and what could not be evaluated.", "Savings"),
    Key("3", "3", "plan", "Show the plan", "The changes that save most together, in their order.", "Plan"),
    Key(
        "4", "4", "rules", "Show the rules", "Which rules run, what they proposed, and how accurate they were.", "Rules"
    ),
    Key("h", "h", "hours", "Show the hours", "What a million tokens cost, by model and hour of the last day."),
    Key("enter", "enter", "open", "Open the selected row", "Everything known about the row, reasons included.", "Open"),
    Key("escape", "esc", "back", "Go back", "Close details or help, or drop the filter.", "Back"),
    Key("tab", "tab", "next", "Go to the next table", "The next table of the screen, or the next tab.", "Next"),
    Key(
        "slash",
        "/",
        "filter",
        "Filter the rows",
        "Keep the rows that contain every word you type; !words leaves them out, ~word is fuzzy.",
        "Filter",
        synonyms="search find",
    ),
    Key(
        "o", "o", "sort", "Sort by the next column", "Step through the columns; then the original order again.", "Sort"
    ),
    Key("O", "O", "reverse", "Reverse the sort order", "Reverse the sorted column."),
    Key(
        "a",
        "a",
        "accept",
        "Accept the recommendation",
        "Freeze its estimate; pertoken runs no command.",
        "Accept",
        _ADVICE,
    ),
    Key(
        "T",
        "T",
        "trial",
        "Try the recommendation",
        "Begin a trial on one replica, or on and off; pertoken runs no command.",
        elsewhere=_ADVICE,
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
        "This key is for the plan ({plan}) and for the details of a recommendation ({savings}, then enter).",
    ),
    Key(
        "space",
        "space",
        "toggle",
        "Leave out or include",
        "Plan: leave a step out, or include it again. Rules: switch a rule off or on.",
        "In/out",
        "This key is for a step of the plan ({plan}) or a rule ({rules}).",
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
        "This screen reads again all the time; this key is for the plan ({plan}) and the rules ({rules}).",
    ),
    Key(
        "p",
        "p",
        "pause",
        "Pause or go on",
        "Freeze the figures while you read them.",
        "Pause",
        synonyms="freeze stop",
    ),
    Key("left_square_bracket", "[", "narrow", "Shorter window", "15m, 1h, 6h, 1d, 7d: one step shorter.", "Window"),
    Key("right_square_bracket", "]", "widen", "Longer window", "15m, 1h, 6h, 1d, 7d: one step longer.", "Window"),
    Key(
        "g",
        "g",
        "group",
        "Group the fleet, or go to the first row",
        "Fleet: by service, host, tenant, then namespace, label or job. Elsewhere: the first row.",
        "Group",
        synonyms="host service tenant owner namespace label job top home",
    ),
    Key("G", "G", "bottom", "Go to the last row", "The last row, or the end of the page.", synonyms="end"),
    Key("j", "j", "down", "Go to the next row", "One row or line down, as the arrow key does."),
    Key("k", "k", "up", "Go to the previous row", "One row or line up, as the arrow key does."),
    Key(
        "c",
        "c",
        "columns",
        "Choose the columns",
        "Hide columns of the table, or show them again.",
        "Columns",
        synonyms="fields hide show",
    ),
    Key("comma", ",", "earlier", "Step back in time", "Replay what is stored: a step earlier.", "Step"),
    Key("full_stop", ".", "later", "Step forward in time", "A step later; the last step is the present.", "Step"),
    Key(
        "less_than_sign",
        "<",
        "event_before",
        "Go to the previous event",
        "Show the time of the previous event.",
        "Event",
    ),
    Key("greater_than_sign", ">", "event_after", "Go to the next event", "Show the time of the next event.", "Event"),
    Key(
        "t", "t", "moment", "Go to a time", "Type a time: 2026-11-21T10:00Z, or 3h for ago.", "Time", synonyms="replay"
    ),
    Key("n", "n", "now", "Go back to now", "End the replay and show the newest figures.", "Now", synonyms="live"),
    Key(
        "E", "E", "events", "Show the events", "All that happened in the window, newest first.", synonyms="log history"
    ),
    Key(
        "dollar_sign",
        "$",
        "price",
        "Set a price",
        "What an hour of the selected device costs you, where no price is known.",
        elsewhere="This key is for a row of the fleet ({fleet}) that lacks a price.",
        synonyms="price cost dollars money unpriced",
    ),
    Key(
        "colon",
        ":",
        "jump",
        "Go to a name",
        "A host, service, rule, setting or screen, by its name; tab completes it.",
        "Go to",
        synonyms="jump find open host service rule setting search",
    ),
    Key(
        "s",
        "s",
        "settings",
        "Change the settings",
        "Theme, borders, refresh and window; all other settings are read-only.",
        synonyms="theme colour color dark light borders refresh currency options preferences config",
    ),
    Key(
        "x",
        "x",
        "dump",
        "Save the screen",
        "Write it as text and as SVG into the folder that pertoken was started in.",
        synonyms="screenshot print picture svg",
    ),
    Key(
        "v",
        "v",
        "pager",
        "Read it in a pager",
        "The page, or every row and column, in $PAGER.",
        "Pager",
        synonyms="less view",
    ),
    Key("question_mark", "?", "keys", "Show the keys", "This page.", "Keys", synonyms="help shortcuts keymap"),
    Key("ctrl+p", "ctrl+p", "palette", "Search the commands", "Every command by its name."),
    Key(
        "ctrl+z",
        "ctrl+z",
        "suspend",
        "Suspend",
        "Go back to the shell; `fg` shows the screens again.",
        synonyms="shell background",
    ),
    Key(
        "q", "q", "quit", "Quit", "Quit; an agent that runs as a service keeps running.", "Quit", synonyms="exit leave"
    ),
)
"""All keys, in the order they are shown."""
KEY_OF = {key.action: key for key in KEYS}
