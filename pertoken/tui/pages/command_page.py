"""A page of facts with commands that can be copied. Nothing is ever run."""

from collections.abc import Sequence
from typing import ClassVar

from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.text.words import literal

NO_COMMANDS = "There is no command here to copy."
SHOWN = 50
"""Characters of a command in the notice that it was copied."""


class CommandPage(SheetPage):
    """A subclass names the commands that apply something and those that undo it."""

    FOOTER: ClassVar[tuple[str, ...]] = ("savings", "plan", "back", "copy", "copy_all", "keys", "quit")
    OWN: ClassVar[frozenset[str]] = frozenset({"copy", "copy_all"})
    _next = 0

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the commands that apply it, and those that undo it."""
        return (), ()

    def cannot(self, action: str) -> str | None:
        """Return why there is nothing to copy."""
        if action in ("copy", "copy_all") and not any(self.commands()):
            return NO_COMMANDS
        return super().cannot(action)

    def copy(self) -> None:
        """Copy one command, each time the next one: first those that apply it, then those that undo it."""
        every = [each for some in self.commands() for each in some]
        at = self._next % len(every)
        self._next = at + 1
        self.app.copy_to_clipboard(every[at])
        short = literal(every[at])
        short = short if len(short) <= SHOWN else f"{short[:SHOWN]}…"
        self.app.notify(f"Copied {at + 1} of {len(every)}: {short}", markup=False)

    def copy_all(self) -> None:
        """Copy every command, those that undo it as comments."""
        apply, undo = self.commands()
        self.app.copy_to_clipboard("\n".join((*apply, *(f"# undo: {each}" for each in undo))) + "\n")
        self.app.notify(f"Copied all {len(apply) + len(undo)} lines; those that undo it are comments.", markup=False)
