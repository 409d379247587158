"""Help page, made from the table of keys."""

from collections.abc import Sequence

from pertoken.text.amounts import caption
from pertoken.text.program.key_names import with_keys
from pertoken.text.program.keys import Key
from pertoken.text.sheet import Section, Sheet


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
