"""The lane of a replay: the recorded stretch, its events, and where it stands."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from pertoken.tui.text.course.replay import lane, latest
from pertoken.window.course.timeline import Timeline


class EventLane(Vertical):
    """Hidden while the present is shown."""

    def compose(self) -> ComposeResult:
        """The line, and the newest event of the window."""
        yield Static(id="lane-line", markup=False)
        yield Static(id="lane-event", markup=False)

    def show(self, timeline: Timeline | None, end_ts: int, at: int | None, window_s: int) -> None:
        """Show where an instant stands; None, the present, hides the lane."""
        self.display = at is not None and timeline is not None
        if at is None or timeline is None:
            return
        self.query_one("#lane-line", Static).update(lane(timeline, end_ts, at, max(20, self.app.size.width - 2)))
        self.query_one("#lane-event", Static).update(latest(timeline, at, at - window_s))
