"""The settings page: choices that a person can change here, and all settings, read-only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.message import Message

from pertoken.text.columns import Column
from pertoken.text.keys import KeyChoice, with_keys
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal
from pertoken.tui.options import SettingLine
from pertoken.tui.pages.list_page import ListedTable, ListPage
from pertoken.tui.pages.page import Page
from pertoken.tui.source import Read, ScreenView

_HEAD = (
    "enter or {toggle} chooses the next value, which is remembered. Below: all settings; change them in the settings "
    "file."
)
_CHOICES: tuple[Column[KeyChoice], ...] = (
    Column("screens", lambda choice: choice.name, 0),
    Column("value", lambda choice: choice.value, 0, min_cells=12, keep_start=True),
    Column("values", lambda choice: " · ".join(choice.values) or "read-only", 2, min_cells=10, keep_start=True),
    Column("what it is", lambda choice: choice.note, 1, min_cells=16, keep_start=True),
)
_SETTINGS: tuple[Column[SettingLine], ...] = (
    Column("setting", lambda setting: setting.name, 0, min_cells=16),
    Column("value", lambda setting: literal(setting.value), 0, min_cells=10, keep_start=True),
    Column("set by", lambda setting: literal(setting.origin) or "default", 2, min_cells=8),
    Column("meaning", lambda setting: setting.meaning, 1, min_cells=16, keep_start=True),
)


class SettingsPage(ListPage[KeyChoice | SettingLine]):
    """Tables of choices and settings; `settings` returns them without secrets."""

    FOOTER = ("fleet", "savings", "plan", "rules", "open", "filter", "keys", "quit")
    WORDS: ClassVar[Mapping[str, str]] = {"open": "Change"}
    OWN = frozenset({"toggle"})
    TABLES: ClassVar[Mapping[str, ListedTable]] = {
        "choices": ListedTable(lambda choice: choice.name, lambda: _CHOICES),
        "settings": ListedTable(lambda setting: setting.name, lambda: _SETTINGS),
    }
    late_s = None

    @dataclass
    class Changed(Message):
        """A person chose another value."""

        name: str
        value: str

    def __init__(
        self,
        view: Callable[[], ScreenView],
        choices: Callable[[], Sequence[KeyChoice]],
        settings: Callable[[], Sequence[SettingLine]],
    ) -> None:
        super().__init__(view, "Settings", windowed=False)
        self._choices = choices
        self._settings = settings
        self._lines: Sequence[SettingLine] | None = None

    def part(self, view: ScreenView) -> Read[object]:
        """Return a constant value: this page shows nothing that was read."""
        return Read(True, view.now_ts)

    def lines_of(self, table: str, view: ScreenView) -> Sequence[KeyChoice | SettingLine]:
        """Return the choices, or the settings, which are read once."""
        if table == "choices":
            return self._choices()
        if self._lines is None:
            self._lines = self._settings()
        return self._lines

    def details(self, line: KeyChoice | SettingLine, view: ScreenView) -> Sheet:
        """Return the facts of a setting."""
        assert isinstance(line, SettingLine)
        facts = (("value", literal(line.value)), ("set by", literal(line.origin) or "nobody: it has its default"))
        return sheet(
            Section(line.name, facts),
            Section("What it means", (line.meaning,)),
            Section("Change it", ("In the settings file, or the environment; `pertoken config init` explains both.",)),
        )

    def head(self, view: ScreenView) -> str:
        """Return the instructions."""
        return with_keys(_HEAD)

    def page_about(self, name: str) -> Page:
        """Return the page of a setting."""
        return self.page_of(
            lambda view: next((line for line in self.lines_of("settings", view) if line.name == name), None)
        )

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; some choices are read-only."""
        line = self.selected
        if action in ("toggle", "open") and isinstance(line, KeyChoice):
            return None if line.values else f"It cannot be changed here: {line.note}."
        if action == "toggle":
            return "A setting is changed in the settings file: enter explains it."
        return super().cannot(action)

    def open(self) -> None:
        """Choose the next value of a choice, or open the page of a setting."""
        if isinstance(self.selected, KeyChoice):
            self.toggle()
        else:
            super().open()

    def toggle(self) -> None:
        """Choose the next value of the selected choice."""
        line = self.selected
        if isinstance(line, KeyChoice) and line.values:
            self.post_message(self.Changed(line.name, line.next))
