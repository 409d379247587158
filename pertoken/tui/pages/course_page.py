"""Page of one host or service: its share of the bill, plots over one window, changes, and all facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.message import Message

from pertoken.text.course import (
    Panel,
    advice_line,
    busy_line,
    dollar_lines,
    gap_lines,
    mark_lines,
    marks_title,
    panels,
    proposals_for,
    title_line,
    token_sentence,
)
from pertoken.text.sheet import Sheet
from pertoken.tui.options import Options
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import Read, View
from pertoken.tui.widgets.plain_text import PlainText

if TYPE_CHECKING:
    from pertoken.proof.recommendation import Recommendation
    from pertoken.window.course import Course, Subject

_READING = "Reading its history…"
_GONE = "It no longer exists: esc goes back."


class CoursePage(SheetPage):
    """Page of the `subject` that `about` set last. It is made once, because its widgets take as long as its figures."""

    FOOTER: ClassVar[tuple[str, ...]] = (
        *("fleet", "savings", "open", "back", "narrow", "widen", "earlier", "later", "jump", "pager", "keys", "quit"),
    )

    WORDS: ClassVar[Mapping[str, str]] = {"open": "Advice"}

    class Opened(Message):
        """The page was opened: its history has to be read."""

    def __init__(self, view: Callable[[], View]) -> None:
        super().__init__(view, "Service", lambda _: None, lambda view: view.reading.fleet, windowed=True)
        self._line: Callable[[View], Any] = lambda _: None

    def about(
        self, heading: str, subject: Subject, sheet: Callable[[View], Sheet | None], line: Callable[[View], Any]
    ) -> None:
        """Set the subject.

        `sheet` returns its facts in a view, `line` its line of the fleet report; None: it is gone.
        """
        self.heading, self.subject, self._sheet, self._line = heading, subject, sheet, line
        for column in self.query(VerticalScroll):
            column.scroll_home(animate=False)

    def body(self) -> ComposeResult:
        """Yield dollars, plots, marks and facts in one column that scrolls."""
        from pertoken.tui.widgets.course_plots import CoursePlots  # plotext is loaded by the page that plots

        with VerticalScroll():
            yield PlainText(id="subject")
            yield PlainText(id="dollars")
            yield CoursePlots()
            yield PlainText(id="marks")
            yield self._text

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Ask for the history of the subject if it is not known; all else is shown meanwhile."""
        if self.subject is not None and self._course(self.view()) is None:
            self.post_message(self.Opened())

    @property
    def _usd_per_kwh(self) -> float | None:
        options = getattr(self.app, "options", Options())
        return options.usd_per_kwh

    def part(self, view: View) -> Read[Any]:
        """Return the reading of the history; until it arrives, that of the fleet."""
        course = view.reading.course
        return view.reading.fleet if course.value is None and course.error is None else course

    def show(self, view: View) -> None:
        """Show the subject as the view has it."""
        from pertoken.tui.widgets.course_plots import CoursePlots

        sheet, line, course = self._sheet(view), self._line(view), self._course(view)
        title = self.query_one("#subject", PlainText)
        title.update(_GONE if line is None else title_line(line))
        report, notes, busy = view.reading.fleet.value, list[str](), None
        if line is not None:
            busy = busy_line(line, report)
            advice = advice_line(self._proposals(view))
            notes = [*dollar_lines(line, report), *filter(None, (busy, advice))]
        plotted: tuple[Panel, ...] = ()
        if course is None:
            notes.append(_READING)
        else:
            plotted, missing = panels(course, course.slo)
            notes += filter(None, [token_sentence(course, self._usd_per_kwh, split=busy is None)])
            notes += gap_lines(line, course, missing)
        self.query_one("#dollars", PlainText).update("\n".join(notes))
        self.query_one(CoursePlots).show(plotted, course)
        marks = self.query_one("#marks", PlainText)
        lines = () if course is None else mark_lines(course)
        marks.display = bool(lines)
        marks.update("\n".join((marks_title(), *lines)))
        self.draw(sheet or ())

    def _proposals(self, view: View) -> Sequence[Recommendation]:
        """Return the open proposals for the subject."""
        line = self._line(view)
        return () if line is None else proposals_for(line, view.reading.fleet.value, view.reading.advice.value or ())

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; its first proposal can be opened."""
        if action == "open":
            return None if self._proposals(self.view()) else "No proposal is open for it."
        return super().cannot(action)

    def open(self) -> None:
        """Open the page of the first proposal."""
        from pertoken.tui.pages.decision_page import AdvicePage, current_advice

        self.app.push_screen(AdvicePage(self.view, "Savings", current_advice(self._proposals(self.view())[0])))

    def as_text(self) -> str:
        """Return the dollars, the changes and all facts as text."""
        shown = (self.query_one(f"#{name}", PlainText) for name in ("subject", "dollars", "marks"))
        return "\n".join((*(str(text.content) for text in shown if text.display), "", super().as_text()))

    def _course(self, view: View) -> Course | None:
        """Return the history of this subject; None while the view has that of another page."""
        read = view.reading.course
        return read.value if read.query is not None and read.query.subject == self.subject else None
