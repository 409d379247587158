"""Page of facts with commands that can be copied. pertoken runs no command."""

from collections.abc import Sequence
from typing import ClassVar

from pertoken.text.words import literal
from pertoken.tui.pages.sheet_page import SheetPage

NO_COMMANDS = "This page has no command to copy."
SHOWN = 50
"""Characters of a command that the notice about its copy shows."""


class CommandPage(SheetPage):
    """Sheet page with commands. A subclass returns the commands that apply a change and those that undo it."""

    FOOTER: ClassVar[tuple[str, ...]] = ("savings", "plan", "back", "copy", "copy_all", "keys", "quit")
    OWN: ClassVar[frozenset[str]] = frozenset({"copy", "copy_all"})
    _next = 0

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the commands that apply the change, and those that undo it."""
        return (), ()

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; None if it does something."""
        if action in ("copy", "copy_all") and not any(self.commands()):
            return NO_COMMANDS
        return super().cannot(action)

    def copy(self) -> None:
        """Copy the next command on every call: first those that apply the change, then those that undo it."""
        commands = [command for part in self.commands() for command in part]
        index = self._next % len(commands)
        self._next = index + 1
        self.app.copy_to_clipboard(commands[index])
        short = literal(commands[index])
        short = short if len(short) <= SHOWN else f"{short[:SHOWN]}…"
        self.app.notify(f"Copied {index + 1} of {len(commands)}: {short}", markup=False)

    def copy_all(self) -> None:
        """Copy every command; those that undo the change are copied as comments."""
        apply, undo = self.commands()
        self.app.copy_to_clipboard("\n".join((*apply, *(f"# undo: {command}" for command in undo))) + "\n")
        self.app.notify(f"Copied all {len(apply) + len(undo)} lines; the undo commands are comments.", markup=False)
