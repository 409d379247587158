"""The instant that a replay shows, the targets of its keys, and the timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pertoken.text.keys import with_keys
from pertoken.text.words import literal
from pertoken.units import format_utc, parse_time

if TYPE_CHECKING:
    from pertoken.window.timeline import Timeline


REPLAYS = ("earlier", "later", "event_before", "event_after", "moment", "now")
"""Actions that change the time that is shown."""
_MINUTE = 60
_LINE, _EVENT, _SHOWN = "─", "┴", "●"


@dataclass(frozen=True, slots=True)
class ReplayMoment:
    """The instant that is shown, and the interval that it can move in. Times are epoch seconds, whole minutes."""

    chosen_ts: int | None
    """None: the newest time."""
    end_ts: int
    """The newest time."""
    step_s: int
    timeline: Timeline

    @property
    def shown_ts(self) -> int:
        """The instant that is shown: `chosen_ts`, or the newest time."""
        return self.end_ts if self.chosen_ts is None else self.chosen_ts

    @property
    def first(self) -> int | None:
        """First whole minute with a row; None if nothing is recorded."""
        first = self.timeline.first_ts
        return None if first is None else (first // _MINUTE + 1) * _MINUTE

    @property
    def earlier(self) -> int:
        """Target of one step back, at least the first minute."""
        return max(self.first or 0, (self.shown_ts - self.step_s) // _MINUTE * _MINUTE)

    @property
    def later(self) -> int | None:
        """Target of one step forward; None: the newest time."""
        ts = self.shown_ts + self.step_s
        return None if ts >= self.end_ts else ts

    @property
    def event_before(self) -> int | None:
        """Time of the previous event; None if there is none."""
        return max((ts for ts in self._events() if ts < self.shown_ts), default=None)

    @property
    def event_after(self) -> int | None:
        """Time of the next event; None if there is none."""
        return min((ts for ts in self._events() if self.shown_ts < ts <= self.end_ts), default=None)

    def _events(self) -> list[int]:
        first = self.first or 0
        return [max(first, happening.shown_at) for happening in self.timeline.happenings]


def cannot_replay(action: str, moment: ReplayMoment) -> str | None:
    """Return the reason why an action of the replay does nothing now; None if it does something."""
    if moment.first is None or moment.first >= moment.end_ts:
        return "Nothing is recorded yet: there is no past to show."
    if action == "earlier" and moment.shown_ts <= moment.first:
        return f"{format_utc(moment.first)} is the first recorded time."
    if action in ("later", "event_after", "now") and moment.chosen_ts is None:
        return with_keys("This is the newest time: press {earlier} to step back.")
    if action == "event_before" and moment.event_before is None:
        return "No event is stored before this time."
    if action == "event_after" and moment.event_after is None:
        return with_keys("No event is stored after this time: {now} goes back to now.")
    return None


def at_of(text: str, moment: ReplayMoment) -> int | str:
    """Return the whole minute of a typed time, epoch seconds, or an error message."""
    try:
        ts = parse_time(text, moment.end_ts) // _MINUTE * _MINUTE
    except ValueError as error:
        return f"{error}."
    if ts > moment.end_ts:
        return f"{format_utc(ts)} is after the newest row, {format_utc(moment.end_ts)}."
    if moment.first is not None and ts < moment.first:
        return f"{format_utc(ts)}: nothing was recorded before {format_utc(moment.first)}."
    return ts


def lane(timeline: Timeline, end_ts: int, shown_ts: int, width: int) -> str:
    """Return the timeline as one line of `width` cells with its events and the instant that is shown.

    `11-20 09:00 ──┴───┴┴──●─── 11-22 21:00`
    """
    start = timeline.first_ts if timeline.first_ts is not None else shown_ts
    start_label, end_label = (format_utc(ts)[5:-1] for ts in (start, end_ts))
    cells = max(1, width - len(start_label) - len(end_label) - 2)
    line = [_LINE] * cells

    def cell(ts: int) -> int:
        return min(cells - 1, max(0, (ts - start) * cells // max(1, end_ts - start)))

    for happening in timeline.happenings:
        line[cell(happening.ts)] = _EVENT
    line[cell(shown_ts)] = _SHOWN
    return f"{start_label} {''.join(line)} {end_label}"


def latest(timeline: Timeline, shown_ts: int, since_ts: int) -> str:
    """Return the newest event before `shown_ts` as a line, or a sentence if there is none since `since_ts`."""
    earlier = [happening for happening in timeline.happenings if happening.ts < shown_ts]
    if not earlier or earlier[-1].ts < since_ts:
        return "No event in this window."
    return f"{format_utc(earlier[-1].ts)[5:]}  {literal(earlier[-1].message)}"
