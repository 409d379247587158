"""What the settings screen offers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.settings.currency import USD
from pertoken.settings.screens import BORDERS, REFRESHES_S, THEMES
from pertoken.tui.keys import WINDOWS_S
from pertoken.tui.text.words import literal
from pertoken.units import format_duration, parse_duration_s


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing a person can choose, or only see."""

    name: str
    value: str
    values: tuple[str, ...] = ()
    """In their order; empty: it is only shown here."""
    note: str = ""

    @property
    def next(self) -> str:
        """The value after the one that is chosen."""
        at = self.values.index(self.value) if self.value in self.values else -1
        return self.values[(at + 1) % len(self.values)]


def choices(
    looks: Sequence[str], seconds: Sequence[float], currency: str, keymap: Mapping[str, str], memory: str | None
) -> tuple[Choice, ...]:
    """Return every choice with what is chosen.

    `looks` are theme and borders, `seconds` refresh and window; `memory` is the file that remembers.
    """
    plain = "NO_COLOR is set: no colour is used" if "NO_COLOR" in looks else "colours of every screen"
    remembered = "nothing: screens.remember" if memory is None else literal(memory)
    keys = ", ".join(f"{action} = {literal(key)}" for action, key in keymap.items())
    return (
        Choice("theme", looks[0], THEMES, plain),
        Choice("borders", looks[1], BORDERS, "what lines, bars and plots are drawn with"),
        Choice("refresh", format_duration(seconds[0]), _durations(REFRESHES_S), "time between two readings"),
        Choice("window", format_duration(seconds[1]), _durations(WINDOWS_S), "time that the figures are of"),
        Choice(
            "currency",
            currency,
            note="set currency.code in the settings file" if currency == USD else "by currency.rates",
        ),
        Choice("keys", keys or "as ? lists them", note="set screens.keys in the settings file"),
        Choice("remembered", remembered, note="theme, borders, refresh, window, columns, sort and last screen"),
    )


def value_of(text: str) -> float:
    """Return the seconds of a duration that is offered."""
    return parse_duration_s(text)


def _durations(seconds: tuple[float, ...] | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(format_duration(each) for each in seconds)
