"""Where a replay stands, where its keys lead, and the lane of events."""

from bisect import bisect_left
from dataclasses import dataclass

from pertoken.tui.text.words import literal
from pertoken.units import format_utc, parse_time
from pertoken.window.course.timeline import Happening, Timeline

REPLAYS = ("earlier", "later", "event_before", "event_after", "moment", "now")
"""Actions that change the time that is shown."""
_MINUTE = 60
_LINE, _EVENT, _HERE = "─", "┴", "●"


@dataclass(frozen=True, slots=True)
class Moment:
    """The instant that is shown, and the stretch that it can be moved in; times are whole minutes."""

    at: int | None
    """None: the newest there is."""
    end_ts: int
    """The newest time there is."""
    step_s: int
    timeline: Timeline

    @property
    def shown_ts(self) -> int:
        """The instant, also at the newest."""
        return self.end_ts if self.at is None else self.at

    @property
    def first(self) -> int | None:
        """The first whole minute of which anything is shown; None where nothing is recorded."""
        first = self.timeline.first_ts
        return None if first is None else (first // _MINUTE + 1) * _MINUTE

    @property
    def earlier(self) -> int:
        """One step back, but not before the first minute."""
        return max(self.first or 0, (self.shown_ts - self.step_s) // _MINUTE * _MINUTE)

    @property
    def later(self) -> int | None:
        """One step forward; None where that is the newest."""
        return self._bounded(self.shown_ts + self.step_s)

    @property
    def event_before(self) -> int | None:
        """The time that shows the newest event which came up before this time; None if there is none."""
        return max((ts for ts in self._events() if ts < self.shown_ts), default=None)

    @property
    def event_after(self) -> int | None:
        """The time that shows the next event; None if there is none."""
        return min((ts for ts in self._events() if self.at is not None and self.at < ts <= self.end_ts), default=None)

    def _events(self) -> list[int]:
        first = self.first or 0
        return [max(first, each.shown_at) for each in self.timeline.happenings]

    def _bounded(self, ts: int) -> int | None:
        return None if ts >= self.end_ts else ts


def cannot_replay(action: str, moment: Moment) -> str | None:
    """Return why a key of the replay does nothing now; None if it does something."""
    if moment.first is None or moment.first >= moment.end_ts:
        return "Nothing is recorded yet that could be replayed."
    if action == "earlier" and moment.shown_ts <= moment.first:
        return f"The first row is of {format_utc(moment.first)}: nothing was recorded before."
    if action in ("later", "event_after", "now") and moment.at is None:
        return "This is the newest time: , steps back."
    if action == "event_before" and moment.event_before is None:
        return "No event is stored from before this time."
    if action == "event_after" and moment.event_after is None:
        return "No event is stored from after this time: n goes back to now."
    return None


def at_of(text: str, moment: Moment) -> int | str:
    """Return the whole minute of a time that somebody typed, or the sentence why it cannot be shown."""
    try:
        ts = parse_time(text, moment.end_ts) // _MINUTE * _MINUTE
    except ValueError as error:
        return f"{error}."
    if ts > moment.end_ts:
        return f"{format_utc(ts)} lies after the newest row, {format_utc(moment.end_ts)}."
    if moment.first is not None and ts < moment.first:
        return f"{format_utc(ts)}: nothing was recorded before {format_utc(moment.first)}."
    return ts


def lane(timeline: Timeline, end_ts: int, at: int, width: int) -> str:
    """Return the recorded stretch as one line: events, and the instant that is shown.

    `11-20 09:00 ──┴───┴┴──●─── 11-22 21:00`
    """
    start = timeline.first_ts if timeline.first_ts is not None else at
    left, right = (format_utc(ts)[5:-1] for ts in (start, end_ts))
    cells = max(1, width - len(left) - len(right) - 2)
    line = [_LINE] * cells

    def cell(ts: int) -> int:
        return min(cells - 1, max(0, (ts - start) * cells // max(1, end_ts - start)))

    for each in timeline.happenings:
        line[cell(each.ts)] = _EVENT
    line[cell(at)] = _HERE
    return f"{left} {''.join(line)} {right}"


def latest(timeline: Timeline, at: int, since_ts: int) -> str:
    """Return the newest happening before an instant as a line; empty if there is none since `since_ts`."""
    before: list[Happening] = list(timeline.happenings[: bisect_left([each.ts for each in timeline.happenings], at)])
    if not before or before[-1].ts < since_ts:
        return "No event in this window."
    return f"{format_utc(before[-1].ts)[5:]}  {literal(before[-1].message)}"
