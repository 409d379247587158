"""The help page, made from the table of keys."""

from collections.abc import Sequence

from pertoken.tui.amounts import caption
from pertoken.tui.keys import Key
from pertoken.tui.text.sheet import Section, Sheet


def help_sheet(keys: Sequence[Key]) -> Sheet:
    """Return every key, how to move and filter, and what the marks mean."""
    return (
        Section("Keys", tuple((key.shown, f"{key.command}. {key.help}") for key in keys)),
        Section(
            "Moving",
            (
                "Arrow keys, j and k, Page Up, Page Down, Home and End move; a click opens, the wheel scrolls.",
                "tab also reaches the hints and the events; enter there opens all of them.",
            ),
        ),
        Section(
            "Filtering (/)",
            (
                ("llama gpu-a", "rows that hold every word, in any case"),
                ("!idle", "rows that hold none of the words"),
                ("~lm70", "rows with these letters in this order"),
                ("enter", "keeps the filter and gives the keys back to the rows; esc drops it"),
            ),
        ),
        Section(
            "What you see",
            (
                "– is not known; it is never 0. Details (enter) say why, and how to switch it on.",
                "Dimmed rows are stale, with their age. A gap in a line of bars was not observed.",
                caption("$/Mtok")
                + ": all dollars of a deployment by its prompt (cached included) and generated tokens.",
                "The bar under Paid: █ busy ▓ idle while reserved ▒ other processes ░ unallocated.",
                "A line of bars goes from 0 to the figure after it, the peak of the window.",
                "run/wait: requests running and waiting. SLO: whether a change keeps your latency objective.",
                "Bankable dollars leave the bill. Capacity dollars let the same bill serve more.",
                "1,200–1,640–1,818: low, likely, high. Confidence: ●●● measured, ●●○ forecast or listed, ●○○ assumed.",
                "Record: saving measured / saving promised of a rule, of how many receipts.",
            ),
        ),
        Section(
            "What it does not do",
            (
                "The screens read the database and nothing else: they make no network call of their own.",
                "No command is ever run. Nothing is stored but your decisions, prices and choices.",
            ),
        ),
    )
