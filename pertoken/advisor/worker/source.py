"""A place that rules are loaded from, as a worker needs to know it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pertoken.rule import Rule


class LoadedRules(Protocol):
    """What was loaded from one place, or why not."""

    @property
    def name(self) -> str:
        """What it is called where there is an error."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that run."""

    @property
    def disabled(self) -> tuple[Rule, ...]:
        """The rules that a person switched off."""

    @property
    def error(self) -> str | None:
        """Why rules of it do not run."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place that holds rules; nothing of it was imported."""

    name: str
    origin: str
    """The distribution and version, or the file."""
    group: str
    """The distribution or the file: what follows each other with the same group shares a worker."""
    load: Callable[[], Iterable[LoadedRules]]
    """Import it, in a worker; whatever this does or raises is the plugin's own error."""
