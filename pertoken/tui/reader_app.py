"""Base of the terminal program: reads a source periodically in a thread, and keeps the values that screens show."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TextIO

from textual import on
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.timer import Timer

from pertoken.errors import PertokenError
from pertoken.text.amounts import note
from pertoken.text.keys import DECISIONS, STEPS_S, WINDOWS_S, with_keys
from pertoken.text.replay import REPLAYS, ReplayMoment, at_of, cannot_replay
from pertoken.text.words import progress_line
from pertoken.tui.options import Options, Remembered, recall, remember
from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.modes import load_later
from pertoken.tui.pages.page import Page, next_stale_s
from pertoken.tui.source import Query, Read, Reading, ScreenView, Study, attempt, read
from pertoken.tui.widgets.boxes import MomentBox
from pertoken.units import format_duration
from pertoken.window.timeline import Timeline

if TYPE_CHECKING:
    from pertoken.advisor.planning import PlanRequest
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.recommendation import Recommendation
    from pertoken.tui.store_source import StoreSource


Report = Callable[[str, float], None]
Call = Callable[[Report], Callable[[], None]]
"""Function that computes a result and returns a function that delivers it."""


class Background:
    """A worker that makes one call at a time. A new call replaces the one that waits, so only the newest waits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = Lock()
        self._waiting: Call | None = None
        self._busy = False
        self.phase: str | None = None
        """Step of the call that runs now; None while no call runs."""
        self.share = 0.0
        """Completed share of the call, 0 to 1; 0 if it is not known."""

    def ask(self, call: Call) -> None:
        """Schedule a call, which receives a function for its progress reports and must not raise."""
        with self._lock:
            self._waiting = call
            if self._busy:
                return
            self._busy = True
            self.phase, self.share = "starting", 0.0
        Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                call, self._waiting = self._waiting, None
            if call is not None:
                deliver = call(self._report)
            with self._lock:
                last = self._waiting is None
                if last:
                    self._busy, self.phase = False, None
            if call is not None:
                deliver()  # after the state is updated: the receiver reads `phase`
            if last:
                return

    def _report(self, phase: str, share: float) -> None:
        self.phase, self.share = phase, share


class Output:
    """Standard output that drops text written after its terminal is gone.

    An error would end Textual's thread of output, and the program would wait for that thread for ever.
    """

    def __init__(self, file: TextIO | None) -> None:
        self.file = file

    def fileno(self) -> int:
        """Return its descriptor; -1 if the program was started without one."""
        return -1 if self.file is None else self.file.fileno()

    def write(self, text: str) -> None:
        """Write a text, if there still is a terminal."""
        with suppress(OSError):
            if self.file is not None:
                self.file.write(text)

    def flush(self) -> None:
        """Flush the written text, if there still is a terminal."""
        with suppress(OSError):
            if self.file is not None:
                self.file.flush()


class TerminalDriver(LinuxDriver):
    """Driver for standard output: Textual's own draws on standard error, so `2>/dev/null` would blank the screen."""

    def __init__(
        self, app: App[None], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        standard_error = sys.__stderr__
        sys.__stderr__ = Output(sys.__stdout__)  # type: ignore[assignment, misc]  # where Textual's driver will draw
        try:
            super().__init__(app, debug=debug, mouse=mouse, size=size)
        finally:
            sys.__stderr__ = standard_error  # type: ignore[misc]


def hung_up(terminal_fd: int) -> bool:
    """Return whether a terminal is gone. That ends a program as a rule, but not one that `nohup` started."""
    poll = select.poll()
    with suppress(OSError):
        poll.register(terminal_fd, 0)
        return any(state & (select.POLLHUP | select.POLLNVAL) for _, state in poll.poll(0))
    return True


def on_standard_output(driver: type[Driver]) -> type[Driver]:
    """Return `TerminalDriver` in place of Textual's driver for a terminal; other drivers are returned as they are."""
    return TerminalDriver if driver is LinuxDriver else driver


STANDARD_INPUT_FD = 0
FIRST_FRAME_S = 2.0
"""Longest wait in seconds for values to be drawn before more is read."""


@dataclass
class PartRead(Message):
    """The part of a reading that a person waits for; the app sets `drawn` once it is on the screen."""

    reading: Reading
    drawn: Event


@dataclass
class ReadingDone(Message):
    """A reading is complete; `query` is its query."""

    reading: Reading
    query: Query


@dataclass
class Decided(Message):
    """A decision, price or switch was stored; with `stored` False, `line` is the error."""

    line: str
    stored: bool


@dataclass
class Computed(Message):
    """A field of the study was computed; `read` has the value, or the error."""

    field: str
    read: Read[Any]


class ReaderApp(App[None]):
    """App that reads `source` every few seconds in a thread, so that keys never wait for it.

    `now` returns epoch seconds, from which ages are computed; `notice` returns a sentence to show above every page, or
    None. `refresh_s` is for tests and replaces the refresh time of the options.
    """

    def __init__(
        self,
        source: StoreSource,
        *,
        refresh_s: float | None = None,
        clock: Callable[[], float] = time.time,
        notice: Callable[[], str | None] = lambda: None,
        options: Options | None = None,
    ) -> None:
        super().__init__()
        self.options = options or Options()
        self.remembered = recall(self.options.memory, self.options.database)
        self._source, self._now, self._notice = source, clock, notice
        self.refresh_s = refresh_s or self.remembered.refresh_s or self.options.refresh_s
        self._reading = Reading()
        self.window_s = self.remembered.window_s or WINDOWS_S[1]
        self._at: int | None = None
        """Instant that is replayed; None: the newest time."""
        self._paused = False
        self._waiting = False
        self._study = Study()
        self._work = {name: Background(name) for name in ("plan", "records", "rules", "detail", "findings")}
        self._request: PlanRequest | None = None
        self._planned: tuple[object, tuple[object, ...] | None] | None = None
        """Version of the advice that plan and records were computed from, and of the prices."""
        self._stale_timer: Timer | None = None
        self._ticker: Timer | None = None

    def start_reading(self) -> None:
        """Read now, and then every `refresh_s` seconds."""
        if self._ticker is not None:
            self._ticker.stop()
        self._ticker = self.set_interval(self.refresh_s, self._tick)
        self._read()

    def view(self) -> ScreenView:
        """Return everything that pages show now."""
        working = {
            name: progress_line(background.phase, background.share)
            for name, background in self._work.items()
            if background.phase
        }
        notices = (self._notice(), note())
        return ScreenView(
            self._reading,
            self.window_s,
            self._paused,
            self._now(),
            " ".join(filter(None, notices)) or None,
            self._at,
            self._source.recorded_until,
            self._study,
            working,
            self._request,
            self.options.hour_rate,
        )

    def _current_query(self) -> Query:
        subject = self.screen.subject if self.screen_stack and isinstance(self.screen, Page) else None
        spend_by = next((page.spend_by for page in self.screen_stack if isinstance(page, FleetPage)), None)
        return Query(self.window_s, self._at, self.current_mode == "hours", spend_by, subject)

    def _tick(self) -> None:
        if not (self.is_headless or self.is_web) and hung_up(STANDARD_INPUT_FD):
            self.exit()  # else Textual reads the end of its input without a pause
            return
        due = not self._paused and not self._is_settled() and not self._waiting
        if due:
            self._read()
        else:  # a reading under way shows the page again
            self._renew()

    def _is_settled(self) -> bool:
        """Return whether a replayed time is shown, which needs no further reading."""
        fleet = self._reading.fleet
        past = self._at is not None or self._source.recorded_until is not None
        return past and self._reading.query == self._current_query() and fleet.error is None and fleet.ts is not None

    def _read(self) -> None:
        if self._waiting:
            return
        self._waiting = True
        Thread(
            target=self._read_in_thread,
            args=(self._current_query(), self._reading),
            name="reading",
            daemon=True,
        ).start()

    def _read_in_thread(self, query: Query, last: Reading) -> None:
        reading = read(self._source, query, self._now, last, self._part_read)
        self._post(ReadingDone(reading, query))
        if last.query is None:
            load_later()

    def _part_read(self, reading: Reading) -> None:
        """Show a part of a reading, and wait until it is drawn before more is read."""
        drawn = Event()
        self._post(PartRead(reading, drawn))
        drawn.wait(FIRST_FRAME_S)

    @on(PartRead)
    def show_first(self, event: PartRead) -> None:
        """Show the part of a reading, unless figures are frozen."""
        if self._paused and event.reading.query is not None:
            event.drawn.set()
            return
        self._reading = event.reading
        self._renew()
        self._when_drawn(event.drawn)

    def _when_drawn(self, drawn: Event) -> None:
        """Set an event once the rows are drawn: a table draws them only after it has a size."""
        page = self.screen
        if isinstance(page, Page) and not page.is_drawn():
            page.call_after_refresh(self._when_drawn, drawn)
        else:
            page.call_after_refresh(drawn.set)

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self.post_message(message)

    @on(ReadingDone)
    def show_answer(self, event: ReadingDone) -> None:
        """Show a reading; read again if the query has changed meanwhile."""
        self._waiting = False
        if self._paused:
            return
        current_query = self._current_query()
        if (event.query.window_s, event.query.at) == (current_query.window_s, current_query.at):
            if self._reading.advice.error is not None and event.reading.advice.error is None:
                self._planned = None  # computations failed with the database: make them again
            self._reading = event.reading
            self._renew()
            self._watch_staleness()
            self._diagnose()
        if event.query != current_query:
            self._read()
            return
        self._study_again()

    def _study_again(self) -> None:
        """Compute plan and records again if the advice or a price has changed."""
        rows, fleet, last = self._reading.advice.value, self._reading.fleet.value, self._planned
        if rows is None:
            return
        prices = prices_version(fleet) if fleet is not None and self._at is None else last and last[1]
        version, last_prices = (advice_version(rows), prices), None if last is None else last[1]
        repriced = (
            prices is not None and last_prices is not None and prices[0] == last_prices[0] and prices != last_prices
        )
        self._planned = version
        if last is None or version[0] != last[0] or repriced:
            self._compute("records", lambda _: self._source.records())
            self._plan(fresh=repriced)

    def _watch_staleness(self) -> None:
        """Set a timer that shows the page again when the next host becomes stale, before the next refresh."""
        if self._stale_timer is not None:
            self._stale_timer.stop()
        wait_s = next_stale_s(self.view())
        self._stale_timer = None if wait_s is None else self.set_timer(wait_s, self._renew)

    def _renew(self) -> None:
        # An answer may come while the app ends, when there is no screen left.
        if self.screen_stack and isinstance(self.screen, Page):
            self.screen.renew()

    def _plan(self, *, fresh: bool = False) -> None:
        rows, request = self._reading.advice.value or (), self._request
        self._compute("plan", lambda report: self._source.plan(rows, request, report, fresh=fresh))

    def _compute(self, field: str, call: Callable[[Report], object]) -> None:
        """Compute a field of the study in the background; if that fails, the field keeps its value."""

        def work(report: Report) -> Callable[[], None]:
            result = attempt(partial(call, report), self._now, getattr(self._study, field))
            return partial(self._post, Computed(field, result))

        self._work[field].ask(work)
        self._renew()

    @on(Computed)
    def show_computed(self, event: Computed) -> None:
        """Show a computed field of the study."""
        self._study = replace(self._study, **{event.field: event.read})
        self._renew()

    def _load_rules(self) -> None:
        self._compute("rules", lambda _: self._source.rules())

    def _diagnose(self) -> None:
        """Examine this host once if nothing is served yet; the fleet page shows the findings."""
        report, diagnose = self._reading.fleet.value, self.options.diagnose
        if diagnose is not None and report is not None and not report.deployments and self._study.findings == Read():
            self.options = replace(self.options, diagnose=None)
            self._compute("findings", lambda _: diagnose())

    def report_decision(self, line: str) -> None:
        """Post from any thread that something was stored."""
        self._post(Decided(line, stored=True))

    def _set_price(self, selector: str, nano_usd: int) -> None:
        self._store(lambda: self._source.set_price(selector, nano_usd))

    def _decide(self, recommendation: Recommendation, decision: str) -> None:
        self._store(lambda: self._source.decide(recommendation, decision))

    def _store(self, call: Callable[[], str]) -> None:
        try:
            done = Decided(call(), stored=True)
        except PertokenError as error:
            done = Decided(str(error), stored=False)
        self._post(done)

    @on(Decided)
    def show_decision(self, event: Decided) -> None:
        """Notify the outcome, and read the new state."""
        self.notify(event.line, severity="information" if event.stored else "error", markup=False)
        self._read()


def advice_version(rows: Sequence[Recommendation]) -> object:
    """Return a value that changes with any of the advice."""
    return tuple((row.recommendation_id, row.version, row.updated_ts) for row in rows)


def prices_version(fleet: FleetReport) -> tuple[object, ...]:
    """Return a value that changes with the price of any device; hosts that report are part of it.

    It is made of sums: the lines of thousands of devices are made only for the rows that are shown.
    """
    reporting = tuple(host.host_id for host in fleet.hosts if not host.stale)
    return reporting, fleet.nano_usd_per_hour, fleet.unpriced_n, fleet.unpriced_devices


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

    def _moment(self) -> ReplayMoment:
        """Return the instant that is shown, with the timeline that it moves in."""
        timeline = self._reading.timeline.value
        end = self._source.recorded_until or int(self._now())
        return ReplayMoment(self._at, end, STEPS_S[self.window_s], timeline or Timeline(None, end))

    def _go_to(self, shown_ts: int | None) -> None:
        self._at = shown_ts
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
        ts_or_error = at_of(event.text, self._moment())
        if isinstance(ts_or_error, str):
            self.notify(ts_or_error, severity="error", markup=False)
        else:
            self._go_to(ts_or_error)
