"""The settings page: choices that a person can change here, and all settings, read-only."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message

from pertoken.text.columns import Column
from pertoken.text.keys import KeyChoice, with_keys
from pertoken.text.sheet import Section, Sheet, sheet
from pertoken.text.words import literal
from pertoken.tui.options import SettingLine
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.page import SheetPage
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.layout import PlainText, Stack
from pertoken.tui.widgets.table import Rows

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

    def lists(self) -> ComposeResult:
        """Yield the instructions, the choices and the settings."""
        yield PlainText(id="settings-head")
        with Stack():
            yield Rows[KeyChoice](lambda choice: choice.name, "choices")
            yield Rows[SettingLine](lambda setting: setting.name, "settings")

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

    def fill(self, view: ScreenView) -> None:
        """Fill both tables."""
        self.query_one("#settings-head", PlainText).update(with_keys(_HEAD))
        self.query_one("#choices", Rows).show(self.lines_of("choices", view), _CHOICES, lambda _: False)
        self.query_one("#settings", Rows).show(self.lines_of("settings", view), _SETTINGS, lambda _: False)

    def page_about(self, name: str) -> SheetPage:
        """Return the page of a setting."""

        def facts(view: ScreenView) -> Sheet | None:
            line = next((setting for setting in self.lines_of("settings", view) if setting.name == name), None)
            return None if line is None else self.details(line, view)

        return SheetPage(self.view, self.heading, facts, self.part, late_s=None)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; some choices are read-only."""
        line = self._selected()
        if action in ("toggle", "open") and isinstance(line, KeyChoice):
            return None if line.values else f"It cannot be changed here: {line.note}."
        if action == "toggle":
            return "A setting is changed in the settings file: enter explains it."
        return super().cannot(action)

    def open(self) -> None:
        """Choose the next value of a choice, or open the page of a setting."""
        if isinstance(self._selected(), KeyChoice):
            self.toggle()
        else:
            super().open()

    def toggle(self) -> None:
        """Choose the next value of the selected choice."""
        line = self._selected()
        if isinstance(line, KeyChoice) and line.values:
            self.post_message(self.Changed(line.name, line.next))

    def _selected(self) -> KeyChoice | SettingLine | None:
        rows = self.rows()
        return None if rows is None else rows.selected
