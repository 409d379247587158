"""Keys that change the window and the instant that are shown, and pause."""

from __future__ import annotations

from dataclasses import replace

from textual import on

from pertoken.text.course import REPLAYS, Moment, at_of, cannot_replay
from pertoken.text.keys import DECISIONS, STEPS_S, WINDOWS_S, with_keys
from pertoken.tui.pages.page import Page
from pertoken.tui.reader_app import ReaderApp
from pertoken.tui.remembered import Remembered, remember
from pertoken.tui.widgets.moment_box import MomentBox
from pertoken.units import format_duration
from pertoken.window.course import Timeline

_FROZEN_TIME = "The figures are frozen: press {pause} to go on, then change the time."
FROZEN = "The figures are frozen: press {pause} to go on, then change the window."


class TimeApp(ReaderApp):
    """App with the actions that change the window and the instant, or pause the figures."""

    def cannot_now(self, action: str) -> str | None:
        """Return the reason why an action does nothing at the instant that is shown; None if it does something."""
        if action in REPLAYS:
            return with_keys(_FROZEN_TIME) if self._paused else cannot_replay(action, self._moment())
        if action in DECISIONS and self.view().at is not None:
            return with_keys("This is the past: press {now} to go back to now, then decide.")
        if action not in ("narrow", "widen"):
            return None
        end = WINDOWS_S[0 if action == "narrow" else -1]
        if self.window_s == end:
            return f"{format_duration(end)} is the {'shortest' if action == 'narrow' else 'longest'} window."
        return with_keys(FROZEN) if self._paused else None

    def keep(self, remembered: Remembered) -> None:
        """Remember this state for the next run; an error is notified once."""
        if remembered == self.remembered:
            return
        self.remembered = remembered
        if self._memory_works and (reason := remember(self.options.memory, remembered)) is not None:
            self._memory_works = False
            self.notify(reason, severity="warning", markup=False)

    _memory_works = True

    async def _do_pause(self) -> None:
        self._paused = not self._paused
        if not self._paused:
            self._read()
        self._renew()

    async def _do_narrow(self) -> None:
        self.choose_window(WINDOWS_S[WINDOWS_S.index(self.window_s) - 1])

    async def _do_widen(self) -> None:
        self.choose_window(WINDOWS_S[WINDOWS_S.index(self.window_s) + 1])

    def choose_window(self, window_s: int) -> None:
        """Show and remember another window."""
        self.window_s = window_s
        self.keep(replace(self.remembered, window_s=window_s))
        self._read()
        self._renew()

    def _moment(self) -> Moment:
        """Return the instant that is shown, with the timeline that it moves in."""
        timeline = self._reading.timeline.value
        end = self._source.recorded_until or int(self._now())
        return Moment(self._at, end, STEPS_S[self.window_s], timeline or Timeline(None, end))

    def _go_to(self, at: int | None) -> None:
        self._at = at
        self._read()
        self._renew()

    async def _do_earlier(self) -> None:
        self._go_to(self._moment().earlier)

    async def _do_later(self) -> None:
        self._go_to(self._moment().later)

    async def _do_event_before(self) -> None:
        self._go_to(self._moment().event_before)

    async def _do_event_after(self) -> None:
        self._go_to(self._moment().event_after)

    async def _do_now(self) -> None:
        self._go_to(None)

    async def _do_moment(self) -> None:
        page = self.screen
        if isinstance(page, Page):
            if not page.query(MomentBox):
                await page.mount(MomentBox(), before="KeyLine")
            page.query_one(MomentBox).open()

    @on(MomentBox.Chosen)
    def show_moment(self, event: MomentBox.Chosen) -> None:
        """Show the time that was typed, or notify why it cannot be shown."""
        at = at_of(event.text, self._moment())
        if isinstance(at, str):
            self.notify(at, severity="error", markup=False)
        else:
            self._go_to(at)
