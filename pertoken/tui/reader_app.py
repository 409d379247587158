"""Base of the terminal program: reads a source periodically in a thread, and keeps the values that screens show."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import App
from textual.message import Message
from textual.timer import Timer

from pertoken.errors import PertokenError
from pertoken.text.amounts import note
from pertoken.text.keys import WINDOWS_S
from pertoken.text.words import progress_line
from pertoken.tui.background import Background, Report
from pertoken.tui.options import Options
from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.modes import load_later
from pertoken.tui.pages.page import Page, next_stale_s
from pertoken.tui.process.terminal import hung_up
from pertoken.tui.remembered import recall
from pertoken.tui.source import Query, Read, Reading, Source, Study, View, attempt, read

if TYPE_CHECKING:
    from pertoken.advisor.planning import PlanRequest
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.recommendation import Recommendation


STANDARD_INPUT_FD = 0
FIRST_FRAME_S = 2.0
"""Longest wait in seconds for values to be drawn before more is read."""


class PartRead(Message):
    """The part of a reading that a person waits for; the app sets `drawn` once it is on the screen."""

    def __init__(self, reading: Reading, drawn: Event) -> None:
        super().__init__()
        self.reading = reading
        self.drawn = drawn


class ReadingDone(Message):
    """A reading is complete; `query` is its query."""

    def __init__(self, reading: Reading, query: Query) -> None:
        super().__init__()
        self.reading = reading
        self.query = query


class Decided(Message):
    """A decision, price or switch was stored; with `stored` False, `line` is the error."""

    def __init__(self, line: str, *, stored: bool) -> None:
        super().__init__()
        self.line = line
        self.stored = stored


class Computed(Message):
    """A field of the study was computed; `read` has the value, or the error."""

    def __init__(self, field: str, read: Read[Any]) -> None:
        super().__init__()
        self.field = field
        self.read = read


class ReaderApp(App[None]):
    """App that reads `source` every few seconds in a thread, so that keys never wait for it.

    `now` returns epoch seconds, from which ages are computed; `notice` returns a sentence to show above every page, or
    None. `refresh_s` is for tests and replaces the refresh time of the options.
    """

    def __init__(
        self,
        source: Source,
        *,
        refresh_s: float | None = None,
        now: Callable[[], float] = time.time,
        notice: Callable[[], str | None] = lambda: None,
        options: Options | None = None,
    ) -> None:
        super().__init__()
        self.options = options or Options()
        self.remembered = recall(self.options.memory, self.options.database)
        self._source, self._now, self._notice = source, now, notice
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

    def view(self) -> View:
        """Return everything that pages show now."""
        working = {
            name: progress_line(background.phase, background.share)
            for name, background in self._work.items()
            if background.phase
        }
        notices = (self._notice(), note())
        return View(
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
        """Return the query of the open page."""
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
        known, seen = (advice_version(rows), prices), None if last is None else last[1]
        repriced = prices is not None and seen is not None and prices[0] == seen[0] and prices != seen
        self._planned = known
        if last is None or known[0] != last[0] or repriced:
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

    def _compute(self, field: str, call: Callable[[Report], Any]) -> None:
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
