"""Table of all keys, from which bindings, footer, palette, help page and documentation are made."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from pertoken.costs.report.lines import FleetReport
from pertoken.settings.fleet import BORDERS, REFRESHES_S, THEMES
from pertoken.settings.values import USD
from pertoken.text.amounts import caption
from pertoken.text.sheet import Section, Sheet
from pertoken.text.words import literal
from pertoken.units import format_duration

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation


WINDOWS_S = (900, 3600, 21_600, 86_400, 604_800)
"""Windows that a person can choose, seconds."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key with its action."""

    key: str
    """Name of the key in Textual."""
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
    label: str = ""
    """Label on the keyboard, where it is not `key`."""

    @property
    def shown(self) -> str:
        """Label of the key on the keyboard."""
        return self.label or self.key


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
    Key("1", "fleet", "Show the fleet", "What runs now, and what its tokens cost.", "Fleet"),
    Key("2", "savings", "Show savings", "What could be cheaper, and what could not be evaluated.", "Savings"),
    Key("3", "plan", "Show the plan", "The changes that save most together, in their order.", "Plan"),
    Key("4", "rules", "Show the rules", "Which rules run, what they proposed, and how accurate they were.", "Rules"),
    Key("h", "hours", "Show the hours", "What a million tokens cost, by model and hour of the last day."),
    Key("enter", "open", "Open the selected row", "Everything known about the row, reasons included.", "Open"),
    Key("escape", "back", "Go back", "Close details or help, or drop the filter.", "Back", label="esc"),
    Key("tab", "next", "Go to the next table", "The next table of the screen, or the next tab.", "Next"),
    Key(
        "slash",
        "filter",
        "Filter the rows",
        "Keep the rows that contain every word you type; !words leaves them out, ~word is fuzzy.",
        "Filter",
        synonyms="search find",
        label="/",
    ),
    Key("o", "sort", "Sort by the next column", "Step through the columns; then the original order again.", "Sort"),
    Key("O", "reverse", "Reverse the sort order", "Reverse the sorted column."),
    Key(
        "a", "accept", "Accept the recommendation", "Freeze its estimate; pertoken runs no command.", "Accept", _ADVICE
    ),
    Key(
        "T",
        "trial",
        "Try the recommendation",
        "Begin a trial on one replica, or on and off; pertoken runs no command.",
        elsewhere=_ADVICE,
    ),
    Key("z", "snooze", "Snooze the recommendation", "Put it off for 14 days.", "Snooze", _ADVICE),
    Key(
        "d",
        "dismiss",
        "Dismiss the recommendation",
        "Decline it for 90 days; its dollars count as declined.",
        "Dismiss",
        _ADVICE,
    ),
    Key(
        "b",
        "reopen",
        "Bring the recommendation back",
        "End a snooze or dismissal, or withdraw an acceptance.",
        elsewhere=_ADVICE,
    ),
    Key(
        "m",
        "applied",
        "Mark as applied",
        "Declare what telemetry cannot show; changes it shows are detected.",
        elsewhere=_ADVICE,
    ),
    Key(
        "u",
        "undo",
        "Mark as undone",
        "See the commands that undo it, and declare that it was undone.",
        elsewhere=_ADVICE,
    ),
    Key("y", "copy", "Copy one command", "Copy the next command to the clipboard; pertoken runs none.", "Copy", _COPY),
    Key("Y", "copy_all", "Copy all commands", "Copy every command, and how to undo it.", "Copy all", _COPY),
    Key(
        "w",
        "assume",
        "Ask what if",
        "Other traffic, prices, tariff or objectives; in details, another number for one assumption.",
        "What if",
        "This key is for the plan ({plan}) and for the details of a recommendation ({savings}, then enter).",
    ),
    Key(
        "space",
        "toggle",
        "Leave out or include",
        "Plan: leave a step out, or include it again. Rules: switch a rule off or on.",
        "In/out",
        "This key is for a step of the plan ({plan}) or a rule ({rules}).",
    ),
    Key("K", "move_up", "Move the step up", "Do the step before the one above it.", "Move", _PLAN),
    Key("J", "move_down", "Move the step down", "Do the step after the one below it.", "Move", _PLAN),
    Key(
        "e",
        "export",
        "Export the plan",
        "Write it as Markdown, a shell script, Kubernetes patches or JSON.",
        "Export",
        _PLAN,
    ),
    Key(
        "r",
        "reload",
        "Read again",
        "Plan: compose it again from the newest telemetry. Rules: load the files again.",
        "Reload",
        "This screen reads again all the time; this key is for the plan ({plan}) and the rules ({rules}).",
    ),
    Key("p", "pause", "Pause or go on", "Freeze the figures while you read them.", "Pause", synonyms="freeze stop"),
    Key(
        "left_square_bracket", "narrow", "Shorter window", "15m, 1h, 6h, 1d, 7d: one step shorter.", "Window", label="["
    ),
    Key("right_square_bracket", "widen", "Longer window", "15m, 1h, 6h, 1d, 7d: one step longer.", "Window", label="]"),
    Key(
        "g",
        "group",
        "Group the fleet, or go to the first row",
        "Fleet: by service, host, tenant, then namespace, label or job. Elsewhere: the first row.",
        "Group",
        synonyms="host service tenant owner namespace label job top home",
    ),
    Key("G", "bottom", "Go to the last row", "The last row, or the end of the page.", synonyms="end"),
    Key("j", "down", "Go to the next row", "One row or line down, as the arrow key does."),
    Key("k", "up", "Go to the previous row", "One row or line up, as the arrow key does."),
    Key(
        "c",
        "columns",
        "Choose the columns",
        "Hide columns of the table, or show them again.",
        "Columns",
        synonyms="fields hide show",
    ),
    Key("comma", "earlier", "Step back in time", "Replay what is stored: a step earlier.", "Step", label=","),
    Key("full_stop", "later", "Step forward in time", "A step later; the last step is the present.", "Step", label="."),
    Key(
        "less_than_sign",
        "event_before",
        "Go to the previous event",
        "Show the time of the previous event.",
        "Event",
        label="<",
    ),
    Key(
        "greater_than_sign",
        "event_after",
        "Go to the next event",
        "Show the time of the next event.",
        "Event",
        label=">",
    ),
    Key("t", "moment", "Go to a time", "Type a time: 2026-11-21T10:00Z, or 3h for ago.", "Time", synonyms="replay"),
    Key("n", "now", "Go back to now", "End the replay and show the newest figures.", "Now", synonyms="live"),
    Key("E", "events", "Show the events", "All that happened in the window, newest first.", synonyms="log history"),
    Key(
        "dollar_sign",
        "price",
        "Set a price",
        "What an hour of the selected device costs you, where no price is known.",
        elsewhere="This key is for a row of the fleet ({fleet}) that lacks a price.",
        synonyms="price cost dollars money unpriced",
        label="$",
    ),
    Key(
        "colon",
        "jump",
        "Go to a name",
        "A host, service, rule, setting or screen, by its name; tab completes it.",
        "Go to",
        synonyms="jump find open host service rule setting search",
        label=":",
    ),
    Key(
        "s",
        "settings",
        "Change the settings",
        "Theme, borders, refresh and window; all other settings are read-only.",
        synonyms="theme colour color dark light borders refresh currency options preferences config",
    ),
    Key(
        "x",
        "dump",
        "Save the screen",
        "Write it as text and as SVG into the folder that pertoken was started in.",
        synonyms="screenshot print picture svg",
    ),
    Key(
        "v",
        "pager",
        "Read it in a pager",
        "The page, or every row and column, in $PAGER.",
        "Pager",
        synonyms="less view",
    ),
    Key("question_mark", "keys", "Show the keys", "This page.", "Keys", synonyms="help shortcuts keymap", label="?"),
    Key("ctrl+p", "palette", "Search the commands", "Every command by its name."),
    Key(
        "ctrl+z",
        "suspend",
        "Suspend",
        "Go back to the shell; `fg` shows the screens again.",
        synonyms="shell background",
    ),
    Key("q", "quit", "Quit", "Quit; an agent that runs as a service keeps running.", "Quit", synonyms="exit leave"),
)
KEY_OF = {key.action: key for key in KEYS}
_names = {key.action: key.shown for key in KEYS}


def name_keys(keys: Iterable[Key]) -> None:
    """Use the names of these keys from now on."""
    _names.update((key.action, key.shown) for key in keys)


def key_name(action: str) -> str:
    """Return the name of the key of an action: `p`, `f6`."""
    return _names[action]


def with_keys(sentence: str) -> str:
    """Return a sentence with the name of a key in place of each action in braces: `press {plan}`."""
    return sentence.format_map(_names)


FIRST = ("quit", "keys", "back", "open")
"""Actions that are shown on the narrowest screen too, most important first."""


@dataclass(frozen=True, slots=True)
class Item:
    """One word with the keys that it is for."""

    actions: tuple[str, ...]
    word: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the keys."""
        return tuple(map(key_name, self.actions))

    @property
    def cells(self) -> int:
        """Width on the screen."""
        return cell_len(f"{''.join(self.labels)} {self.word}")


def items(actions: Sequence[str], words: Mapping[str, str]) -> tuple[Item, ...]:
    """Return the keys of these actions; neighbours with the same word are one item. `words` replaces words."""
    shown: list[Item] = []
    for action in actions:
        word = words.get(action, KEY_OF[action].footer)
        if shown and shown[-1].word == word:
            shown[-1] = Item((*shown[-1].actions, action), word)
        else:
            shown.append(Item((action,), word))
    return tuple(shown)


def fitting(shown: Sequence[Item], width: int) -> tuple[Item, ...]:
    """Return the items that fit in `width` cells with a blank between them, in their order.

    Keys of `FIRST` take their cells first, then the others from the left.
    """
    ranked = sorted(
        shown, key=lambda item: min((FIRST.index(name) for name in item.actions if name in FIRST), default=99)
    )
    free_cells, kept = width + 1, []
    for item in ranked:
        if item.cells + 1 <= free_cells:
            free_cells -= item.cells + 1
            kept.append(item)
    return tuple(item for item in shown if item in kept)


def help_sheet(keys: Sequence[Key]) -> Sheet:
    """Return all keys, how to move and filter, and the meaning of marks."""
    return (
        Section("Keys", tuple((key.shown, f"{key.command}. {key.help}") for key in keys)),
        Section(
            "Moving",
            (
                with_keys("Arrow keys, {down}, {up}, Page Up, Page Down, Home and End move."),
                "A click opens a row or sorts by a column; the wheel scrolls.",
                "tab also reaches the hints and the events; enter there opens all of them.",
            ),
        ),
        Section(
            with_keys("Filtering ({filter})"),
            (
                ("llama gpu-a", "rows that contain every word; case does not matter"),
                ("!idle", "rows that contain none of the words"),
                ("~lm70", "rows with a cell that has these letters in this order"),
                ("enter", "keeps the filter and goes back to the rows; esc drops it"),
            ),
        ),
        Section(
            "What you see",
            (
                "– means not known, never 0. The details (enter) give the reason, and how to get the value.",
                "Dimmed rows are stale; the state column has their age. A gap in a line of bars was not observed.",
                caption("$/Mtok")
                + ": all dollars of a deployment / its prompt (cached included) and generated tokens.",
                "The bar under Paid: █ busy ▓ idle while reserved ▒ other processes ░ unallocated.",
                "Above a plot: the newest value of each of its lines.",
                "The scale of a line of bars is 0 to the figure after it, the peak of the window.",
                "run/wait now: requests running and waiting in the newest minute, idle time included.",
                "SLO: whether a change keeps your latency objective.",
                "Bankable dollars leave the bill. Capacity dollars let the same bill serve more.",
                "1,200–1,640–1,818: low, likely, high. Confidence: ●●● measured, ●●○ forecast or listed, ●○○ assumed.",
                "Record: measured / promised saving of a rule, and its number of receipts.",
            ),
        ),
        Section(
            "What pertoken does not do",
            (
                "The screens read the database and nothing else: they make no network call of their own.",
                "They never run a command, and store only your decisions, prices and choices.",
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class KeyChoice:
    """One choice; without `values` it is read-only."""

    name: str
    value: str
    values: tuple[str, ...] = ()
    """All values in order; empty: it is read-only."""
    note: str = ""

    @property
    def next(self) -> str:
        """The value after the current one."""
        index = self.values.index(self.value) if self.value in self.values else -1
        return self.values[(index + 1) % len(self.values)]


def choices(
    looks: Sequence[str], seconds: Sequence[float], currency: str, keymap: Mapping[str, str], memory: str | None
) -> tuple[KeyChoice, ...]:
    """Return every choice with its current value.

    `looks` are theme, borders and `NO_COLOR` if that is set, `seconds` refresh and window; `memory` is the path of the
    state file.
    """
    plain = "NO_COLOR is set: no colour is used" if "NO_COLOR" in looks else "colours of all screens"
    remembered = "nothing: screens.remember is off" if memory is None else literal(memory)
    keys = ", ".join(f"{action} = {literal(key)}" for action, key in keymap.items())
    return (
        KeyChoice("theme", looks[0], THEMES, plain),
        KeyChoice("borders", looks[1], BORDERS, "characters of lines, bars and plots"),
        KeyChoice("refresh", format_duration(seconds[0]), _durations(REFRESHES_S), "time between two readings"),
        KeyChoice("window", format_duration(seconds[1]), _durations(WINDOWS_S), "stretch of time of the figures"),
        KeyChoice(
            "currency",
            currency,
            note="set currency.code in the settings file" if currency == USD else "by currency.rates",
        ),
        KeyChoice("keys", keys or "as ? lists them", note="set screens.keys in the settings file"),
        KeyChoice("remembered", remembered, note="theme, borders, refresh, window, columns, sort and last screen"),
    )


def _durations(seconds: tuple[float, ...] | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(format_duration(duration_s) for duration_s in seconds)


_SCREENS = ("fleet", "savings", "plan", "rules", "hours", "settings", "events", "keys")
_WORDS = {"deployment": "service"}


@dataclass(frozen=True, slots=True)
class KeyTarget:
    """One name to go to."""

    kind: str
    """`screen`, `host`, `deployment`, `rule` or `setting`."""
    name: str
    key: str = ""
    """Id of a host or deployment, or name of a screen."""

    @property
    def label(self) -> str:
        """Text in the list of names: `host gpu-a`."""
        return f"{_WORDS.get(self.kind, self.kind)} {literal(self.name)}"


def targets(
    report: FleetReport | None, rules: Iterable[str], advice: Sequence[Recommendation], settings: Iterable[str]
) -> tuple[KeyTarget, ...]:
    """Return all known names. `rules` are the ids of the loaded rules, `settings` the names of all settings."""
    hosts = () if report is None else report.hosts
    served = () if report is None else report.deployments
    times = Counter(line.model for line in served)
    advised = (row.rule_id for row in advice)
    return (
        *(KeyTarget("screen", name, name) for name in _SCREENS),
        *(KeyTarget("host", host.name, str(host.host_id)) for host in hosts),
        *(
            KeyTarget(
                "deployment",
                line.model if times[line.model] == 1 else f"{line.model} on {line.host}",
                str(line.deployment_id),
            )
            for line in served
        ),
        *(KeyTarget("rule", name) for name in dict.fromkeys((*rules, *advised))),
        *(KeyTarget("setting", name) for name in settings),
    )


def candidates(text: str, targets: Sequence[KeyTarget]) -> tuple[KeyTarget, ...]:
    """Return the names that match a text, best first: the whole name, its start, then any part of it.

    A text may begin with the kind: `host gpu-1`. An empty text matches all names.
    """
    wanted = text.strip().casefold()

    def rank(target: KeyTarget) -> int | None:
        names = (target.name.casefold(), target.label.casefold())
        if wanted in names:
            return 0
        if any(name.startswith(wanted) for name in names):
            return 1
        return 2 if any(wanted in name for name in names) else None

    ranked = [(target_rank, n, target) for n, target in enumerate(targets) if (target_rank := rank(target)) is not None]
    return tuple(target for _, _, target in sorted(ranked, key=lambda ranked_target: ranked_target[:2]))


def unknown(text: str, targets: Sequence[KeyTarget]) -> str:
    """Return an error message for a name that does not exist, with the most similar one."""
    names = {name.casefold(): target for target in targets for name in (target.label, target.name)}
    near = difflib.get_close_matches(text.strip().casefold(), names, 1, cutoff=0.4)
    what = f"No screen, host, service, rule or setting has the name “{literal(text.strip())}”"
    return f"{what}; the most similar is {names[near[0]].label}." if near else f"{what}."
