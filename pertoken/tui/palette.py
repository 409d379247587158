"""The palette: commands of all keys, matched by their names and synonyms."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.markup import escape

from pertoken.text.keys import Key
from pertoken.tui.keymap import mapped
from pertoken.tui.options import Options

_SYNONYM = 0.9
"""Weight of a match of a synonym; a match of the name has 1."""


class Acts(Protocol):
    """An app with the actions of the table of keys."""

    options: Options

    def why_not(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; None if it does something."""
        ...

    def action_act(self, action: str) -> Awaitable[None]:
        """Run the action."""
        ...


class KeyCommands(Provider):
    """Commands of the table of keys. The help of a command that does nothing now is the reason."""

    @property
    def _app(self) -> Acts:
        return cast("Acts", self.app)

    def _keys(self) -> list[Key]:
        return [key for key in mapped(self._app.options.keymap) if key.action != "palette"]

    def _help(self, key: Key) -> str:
        reason = self._app.why_not(key.action)
        return escape(f"{key.shown}: {key.help}" if reason is None else f"Not now: {reason}")

    async def discover(self) -> Hits:
        """Yield every command."""
        for key in self._keys():
            yield DiscoveryHit(key.command, partial(self._app.action_act, key.action), help=self._help(key))

    async def search(self, query: str) -> Hits:
        """Yield the commands whose name or synonym matches, best first."""
        matcher = self.matcher(query)
        for key in self._keys():
            by_name = matcher.match(key.command)
            by_synonym = max((matcher.match(word) for word in key.synonyms.split()), default=0.0) * _SYNONYM
            if score := max(by_name, by_synonym):
                shown = matcher.highlight(key.command) if by_name >= by_synonym else key.command
                yield Hit(
                    score, shown, partial(self._app.action_act, key.action), text=key.command, help=self._help(key)
                )
