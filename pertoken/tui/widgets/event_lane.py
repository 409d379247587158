"""Timeline of a replay: the recorded stretch, its events, and the instant that is shown."""

from textual.app import ComposeResult
from textual.containers import Vertical

from pertoken.tui.text.course.replay import lane, latest
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.window.course.timeline import Timeline


class EventLane(Vertical):
    """Timeline as one line with the newest event below it, hidden while the present is shown."""

    def compose(self) -> ComposeResult:
        """Yield the line, and the newest event of the window."""
        yield PlainText(id="lane-line")
        yield PlainText(id="lane-event")

    def show(self, timeline: Timeline | None, end_ts: int, at: int | None, window_s: int) -> None:
        """Show the instant `at` on the timeline; None, the present, hides it."""
        self.display = at is not None and timeline is not None
        if at is None or timeline is None:
            return
        self.query_one("#lane-line", PlainText).update(lane(timeline, end_ts, at, max(20, self.app.size.width - 2)))
        self.query_one("#lane-event", PlainText).update(latest(timeline, at, at - window_s))
