"""Choices of the settings screen as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.settings.pages import BORDERS, REFRESHES_S, THEMES
from pertoken.settings.values import USD
from pertoken.text.program.keys import WINDOWS_S
from pertoken.text.words import literal
from pertoken.units import format_duration, parse_duration_s


@dataclass(frozen=True, slots=True)
class Choice:
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
) -> tuple[Choice, ...]:
    """Return every choice with its current value.

    `looks` are theme, borders and `NO_COLOR` if that is set, `seconds` refresh and window; `memory` is the path of the
    state file.
    """
    plain = "NO_COLOR is set: no colour is used" if "NO_COLOR" in looks else "colours of all screens"
    remembered = "nothing: screens.remember is off" if memory is None else literal(memory)
    keys = ", ".join(f"{action} = {literal(key)}" for action, key in keymap.items())
    return (
        Choice("theme", looks[0], THEMES, plain),
        Choice("borders", looks[1], BORDERS, "characters of lines, bars and plots"),
        Choice("refresh", format_duration(seconds[0]), _durations(REFRESHES_S), "time between two readings"),
        Choice("window", format_duration(seconds[1]), _durations(WINDOWS_S), "stretch of time of the figures"),
        Choice(
            "currency",
            currency,
            note="set currency.code in the settings file" if currency == USD else "by currency.rates",
        ),
        Choice("keys", keys or "as ? lists them", note="set screens.keys in the settings file"),
        Choice("remembered", remembered, note="theme, borders, refresh, window, columns, sort and last screen"),
    )


def value_of(text: str) -> float:
    """Return the seconds of a duration among the values."""
    return parse_duration_s(text)


def _durations(seconds: tuple[float, ...] | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(format_duration(duration_s) for duration_s in seconds)
