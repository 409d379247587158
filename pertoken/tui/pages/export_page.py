"""Page that exports a plan: a list of formats, each of which can be written to a file or copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult

from pertoken.text.columns import Column
from pertoken.text.decision import ShownPlan
from pertoken.text.keys import key_name, with_keys
from pertoken.text.words import literal
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.source import Read, View
from pertoken.tui.widgets.containers.stack import Stack
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.tui.widgets.rows import Rows


@dataclass(frozen=True, slots=True)
class _Form:
    suffix: str
    name: str
    use: str


_FORMS = (
    _Form("md", "Markdown", "for people: the bill, and each step with commands and undo"),
    _Form("sh", "shell script", "commands to read, then run; undo is in comments"),
    _Form("yaml", "Kubernetes patches", "for a kustomization.yaml: arguments of engines"),
    _Form("json", "JSON", "for programs; as `pertoken plan --json` prints it"),
)
_COLUMNS: tuple[Column[_Form], ...] = (
    Column("format", lambda form: form.name, 0),
    Column("content", lambda form: form.use, 1, min_cells=20),
)


class ExportPage(ListPage):
    """List of formats. `enter` writes a file into the folder that pertoken was started in, `y` copies the text."""

    FOOTER: ClassVar[tuple[str, ...]] = ("open", "back", "copy", "keys", "quit")
    WORDS: ClassVar[Mapping[str, str]] = {"open": "Write"}
    OWN: ClassVar[frozenset[str]] = frozenset({"copy"})
    late_s = None

    def __init__(self, view: Callable[[], View], heading: str, shown: ShownPlan) -> None:
        super().__init__(view, heading, windowed=False)
        self._shown = shown

    def lists(self) -> ComposeResult:
        """Yield the instructions and the list of formats."""
        yield PlainText(id="export-head")
        with Stack():
            yield Rows[_Form](lambda form: form.suffix, "formats")

    def part(self, view: View) -> Read[Any]:
        """Return the computed plan, which this page exports."""
        return view.study.plan

    def lines_of(self, table: str, view: View) -> Sequence[Any]:
        """Return the formats."""
        return _FORMS

    def fill(self, view: View) -> None:
        """Fill the list of formats."""
        head = f"Export the plan. enter writes a file into {literal(str(Path.cwd()))}; "
        self.query_one("#export-head", PlainText).update(head + with_keys("{copy} copies it instead; esc goes back."))
        self.query_one("#formats", Rows).show(_FORMS, _COLUMNS, lambda _: False)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; None if it does something."""
        return None if action == "back" else super().cannot(action)

    def back(self) -> None:
        """Go back to the plan."""
        self.app.pop_screen()

    def open(self) -> None:
        """Write the plan into a new file, and notify its path."""
        form = self._selected()
        made = datetime.fromtimestamp(self.view().now_ts, UTC)
        name = f"pertoken-plan-{made:%Y%m%d-%H%M%S}"
        try:
            file = _written(Path.cwd(), name, form.suffix, self._text(form))
        except OSError as error:
            reason = error.strerror or str(error)
            self.app.notify(
                f"{Path.cwd()}: {reason}; {key_name('copy')} copies it instead", severity="error", markup=False
            )
            return
        self.app.pop_screen()
        self.app.notify(f"Wrote {file}", markup=False)

    def copy(self) -> None:
        """Copy the plan in the selected format."""
        form = self._selected()
        self.app.copy_to_clipboard(self._text(form))
        self.app.notify(f"Copied the plan as {form.name}.", markup=False)

    def _selected(self) -> _Form:
        rows = self.rows()
        assert rows is not None and rows.selected is not None
        form: _Form = rows.selected
        return form

    def _text(self, form: _Form) -> str:
        from pertoken.text.export import Format, exported

        return exported(self._shown.plan, self._shown.window_s, Format(form.suffix))


def _written(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write a new file and return its path; if the name exists, a number is added to it."""
    number = 1
    while True:
        file = folder / f"{name}{'' if number == 1 else f'-{number}'}.{suffix}"
        try:
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
        except FileExistsError:
            number += 1
        else:
            return file
