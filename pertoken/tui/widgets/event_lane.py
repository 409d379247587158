"""Timeline of a replay: the recorded stretch, its events, and the instant that is shown."""

from pertoken.text.course import lane, latest
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.window.course import Timeline

_PADDING = 2


class EventLane(PlainText):
    """Timeline as one line with the newest event below it, hidden while the present is shown."""

    _shown: tuple[Timeline, int, int, int] | None = None

    def show(self, timeline: Timeline | None, end_ts: int, at: int | None, window_s: int) -> None:
        """Show the instant `at` on the timeline; None, the present, hides it."""
        self.display = at is not None and timeline is not None
        if at is None or timeline is None:
            return
        self._shown = (timeline, end_ts, at, window_s)
        self._draw()

    def on_resize(self) -> None:
        """Draw the line over the new width."""
        self._draw()

    def _draw(self) -> None:
        if self._shown is not None:
            timeline, end_ts, at, window_s = self._shown
            line = lane(timeline, end_ts, at, self.app.size.width - _PADDING)
            self.update(f"{line}\n{latest(timeline, at, at - window_s)}")
