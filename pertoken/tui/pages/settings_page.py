"""Choices of the person at the screens, and every setting to read."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.message import Message

from pertoken.tui.options import SettingLine
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import Read, View
from pertoken.tui.text.columns import Column
from pertoken.tui.text.program.choices import Choice
from pertoken.tui.text.sheet import Section, Sheet, sheet
from pertoken.tui.text.words import literal
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.tui.widgets.rows import Rows
from pertoken.tui.widgets.stack import Stack

_HEAD = "enter or space chooses the next value; it is remembered. Below: every setting, changed in the settings file."
_CHOICES: tuple[Column[Choice], ...] = (
    Column("screens", lambda each: each.name, 0),
    Column("value", lambda each: each.value, 0, least=12, keep_start=True),
    Column("of", lambda each: " · ".join(each.values) or "only shown here", 2, least=10, keep_start=True),
    Column("what it is", lambda each: each.note, 1, least=16, keep_start=True),
)
_SETTINGS: tuple[Column[SettingLine], ...] = (
    Column("setting", lambda each: each.name, 0, least=16),
    Column("value", lambda each: literal(each.value), 0, least=10, keep_start=True),
    Column("set by", lambda each: literal(each.origin) or "default", 2, least=8),
    Column("meaning", lambda each: each.meaning, 1, least=16, keep_start=True),
)


class SettingsPage(ListPage):
    """`choices` returns what can be chosen, `settings` every setting without a secret."""

    FOOTER: ClassVar[tuple[str, ...]] = ("fleet", "savings", "plan", "rules", "open", "filter", "keys", "quit")
    OWN: ClassVar[frozenset[str]] = frozenset({"toggle"})
    late_s = None

    class Changed(Message):
        """Another value was chosen."""

        def __init__(self, name: str, value: str) -> None:
            super().__init__()
            self.name = name
            self.value = value

    def __init__(
        self,
        view: Callable[[], View],
        choices: Callable[[], Sequence[Choice]],
        settings: Callable[[], Sequence[SettingLine]],
    ) -> None:
        super().__init__(view, "Settings", windowed=False)
        self._choices = choices
        self._settings = settings
        self._lines: Sequence[SettingLine] | None = None

    def lists(self) -> ComposeResult:
        """What to press, choices, settings."""
        yield PlainText(id="settings-head")
        with Stack():
            yield Rows[Choice](lambda each: each.name, "choices")
            yield Rows[SettingLine](lambda each: each.name, "settings")

    def part(self, view: View) -> Read[Any]:
        """This page is of no reading."""
        return Read(True, view.now_ts)

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """Choices, or settings, which stay what they were at the start."""
        if table == "choices":
            return self._choices()
        if self._lines is None:
            self._lines = self._settings()
        return self._lines

    def details(self, line: Any, view: View) -> Sheet:
        """All of one setting."""
        facts = (("value", literal(line.value)), ("set by", literal(line.origin) or "nobody: its default"))
        return sheet(
            Section(line.name, facts),
            Section("What it means", (line.meaning,)),
            Section("Change it", ("In the settings file, or the environment; `pertoken config init` explains both.",)),
        )

    def fill(self, view: View) -> None:
        """Show both."""
        self.query_one("#settings-head", PlainText).update(_HEAD)
        self.query_one("#choices", Rows).show(self.lines_of("choices", view), _CHOICES, lambda _: False)
        self.query_one("#settings", Rows).show(self.lines_of("settings", view), _SETTINGS, lambda _: False)

    def page_about(self, name: str) -> SheetPage:
        """Return the page of a setting."""

        def facts(view: View) -> Sheet | None:
            line = next((each for each in self.lines_of("settings", view) if each.name == name), None)
            return None if line is None else self.details(line, view)

        return SheetPage(self.view, self.heading, facts, self.part, late_s=None)

    def cannot(self, action: str) -> str | None:
        """A choice that is only shown cannot be changed here."""
        line = self._selected()
        if action in ("toggle", "open") and isinstance(line, Choice):
            return None if line.values else f"It is only shown here: {line.note}."
        if action == "toggle":
            return "A setting is changed in the settings file: enter explains it."
        return super().cannot(action)

    def open(self) -> None:
        """Choose the next value, or open a setting."""
        if isinstance(self._selected(), Choice):
            self.toggle()
        else:
            super().open()

    def toggle(self) -> None:
        """Choose the next value."""
        line = self._selected()
        if isinstance(line, Choice) and line.values:
            self.post_message(self.Changed(line.name, line.next))

    def _selected(self) -> Choice | SettingLine | None:
        rows = self.rows()
        selected: Choice | SettingLine | None = None if rows is None else rows.selected
        return selected
