"""The terminal program: reads a source again and again, and shows it on its pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from textual.app import App, SystemCommand
from textual.driver import Driver
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from pertoken.errors import PertokenError
from pertoken.proof.recommendation import Recommendation
from pertoken.tui.amounts import caption, note
from pertoken.tui.background import Background, Report, collect_garbage
from pertoken.tui.keys import DECISIONS, KEYS, STEPS_S, WINDOWS_S, WRITES
from pertoken.tui.pages.course_page import CoursePage
from pertoken.tui.pages.decision_page import AdvicePage, DecisionPage
from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.hours_page import HoursPage
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.page import Page, next_stale_s
from pertoken.tui.pages.plan_page import PlanPage
from pertoken.tui.pages.rules_page import RulesPage, SwitchPage
from pertoken.tui.pages.savings_page import SavingsPage
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.process.terminal import on_standard_output
from pertoken.tui.source import Asked, Read, Reading, Source, Study, View, attempt, read
from pertoken.tui.study import RuleList
from pertoken.tui.text.course.replay import REPLAYS, Moment, at_of, cannot_replay
from pertoken.tui.text.sheet import Section, Sheet
from pertoken.tui.widgets.moment_box import MomentBox
from pertoken.units import format_duration
from pertoken.window.course.timeline import Timeline

if TYPE_CHECKING:
    from pertoken.advisor.planning import PlanRequest

FIRST_FRAME_S = 2.0
"""Longest wait of the first reading for the first figures to be drawn."""
_FROZEN_TIME = "The figures are frozen: press p to go on, then change the time."
_FROZEN = "The figures are frozen: press p to go on, then change the window."


class PertokenApp(App[None]):
    """Shows `source`, read every `refresh_s` seconds in a thread of its own, so that keys never wait for it.

    `now` gives epoch seconds, for the age of what is shown; `notice` gives what to show above every page, if anything.
    """

    TITLE = "pertoken"
    CSS_PATH = "pertoken.tcss"

    class Answered(Message):
        """A reading is done."""

        def __init__(self, reading: Reading, asked: Asked) -> None:
            super().__init__()
            self.reading = reading
            self.asked = asked

    class Begun(Message):
        """The first figures are read; `drawn` is set once they are on the screen."""

        def __init__(self, reading: Reading, drawn: Event) -> None:
            super().__init__()
            self.reading = reading
            self.drawn = drawn

    class Decided(Message):
        """A decision was stored, or could not be."""

        def __init__(self, line: str, *, stored: bool) -> None:
            super().__init__()
            self.line = line
            self.stored = stored

    class Computed(Message):
        """A field of the study was computed, or could not be."""

        def __init__(self, field: str, read: Read[Any]) -> None:
            super().__init__()
            self.field = field
            self.read = read

    def __init__(
        self,
        source: Source,
        *,
        refresh_s: float = 2.0,
        now: Callable[[], float] = time.time,
        notice: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__()
        self._source, self._refresh_s, self._now, self._notice = source, refresh_s, now, notice
        self._reading = Reading()
        self._window_s = WINDOWS_S[1]
        self._at: int | None = None
        """Instant that is replayed; None: the newest there is."""
        self._paused = False
        self._waiting = False
        self._study = Study()
        self._work = {name: Background(name) for name in ("plan", "records", "rules", "detail")}
        self._request: PlanRequest | None = None
        self._planned: object = None
        """The advice that the plan and the records are of."""
        self._stale_timer: Timer | None = None

    def get_driver_class(self) -> type[Driver]:
        """Draw on standard output."""
        return on_standard_output(super().get_driver_class())

    def on_mount(self) -> None:
        """Open the fleet and start reading."""
        self.add_mode("fleet", lambda: FleetPage(self.view, "Fleet", windowed=True))
        self.add_mode("savings", lambda: SavingsPage(self.view, "Savings", windowed=False))
        self.add_mode("plan", lambda: PlanPage(self.view, "Plan", windowed=False))
        self.add_mode("rules", lambda: RulesPage(self.view, "Rules", windowed=False))
        self.add_mode("hours", lambda: HoursPage(self.view, "Hours", windowed=False))
        self.switch_mode("fleet")
        self.app_resume_signal.subscribe(self, lambda _: self._redraw())
        self.set_interval(self._refresh_s, self._tick)
        self._read()

    def view(self) -> View:
        """What pages show now."""
        working = {name: each.phase for name, each in self._work.items() if each.phase is not None}
        notices = (self._notice(), note())
        return View(
            self._reading,
            self._window_s,
            self._paused,
            self._now(),
            " ".join(filter(None, notices)) or None,
            self._at,
            self._source.recorded_until,
            self._study,
            working,
            self._request,
        )

    def _asked(self) -> Asked:
        """Return what the open page needs."""
        subject = self.screen.subject if self.screen_stack and isinstance(self.screen, CoursePage) else None
        tenants = any(isinstance(page, FleetPage) and page.group == "tenant" for page in self.screen_stack)
        return Asked(self._window_s, self._at, self.current_mode == "hours", tenants, subject)

    def _tick(self) -> None:
        collect_garbage()
        if not self._paused and not self._is_settled():
            self._read()
        self._renew()

    def _is_settled(self) -> bool:
        """Return whether the past that is asked for is shown: it changes no more."""
        fleet = self._reading.fleet
        past = self._at is not None or self._source.recorded_until is not None
        return past and self._reading.asked == self._asked() and fleet.error is None and fleet.ts is not None

    def _read(self) -> None:
        if self._waiting:
            return
        self._waiting = True
        Thread(
            target=self._ask,
            args=(self._asked(), self._reading),
            name="reading",
            daemon=True,
        ).start()

    def _ask(self, asked: Asked, last: Reading) -> None:
        reading = read(self._source, asked, self._now, last, self._begun)
        self._post(self.Answered(reading, asked))

    def _begun(self, reading: Reading) -> None:
        """Show the first figures, and wait until they are drawn before more is read."""
        drawn = Event()
        self._post(self.Begun(reading, drawn))
        drawn.wait(FIRST_FRAME_S)

    def on_pertoken_app_begun(self, event: Begun) -> None:
        """Show the first figures."""
        self._reading = event.reading
        self._renew()
        self.screen.call_after_refresh(event.drawn.set)

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody looks any more
            self.post_message(message)

    def on_pertoken_app_answered(self, event: Answered) -> None:
        """Show what was read; read again if something else was asked for meanwhile."""
        self._waiting = False
        collect_garbage()
        if self._paused:
            return
        now_asked = self._asked()
        if (event.asked.window_s, event.asked.at) == (now_asked.window_s, now_asked.at):
            if self._reading.advice.error is not None and event.reading.advice.error is None:
                self._planned = None  # what failed with the database is computed again
            self._reading = event.reading
            self._renew()
            self._watch_staleness()
        if event.asked != now_asked:
            self._read()
            return
        self._study_again()

    def _study_again(self) -> None:
        """Compute what is of the advice where the advice is new."""
        rows = self._reading.advice.value
        if rows is not None and (known := advice_version(rows)) != self._planned:
            self._planned = known
            self._compute("records", lambda _: self._source.records())
            self._plan()

    def _watch_staleness(self) -> None:
        """Show the page again at the instant at which the next host becomes stale, not only at the next refresh."""
        if self._stale_timer is not None:
            self._stale_timer.stop()
        wait_s = next_stale_s(self.view())
        self._stale_timer = None if wait_s is None else self.set_timer(wait_s, self._renew)

    def _renew(self) -> None:
        # An answer may come while the app ends, when there is no screen left.
        if self.screen_stack and isinstance(self.screen, Page):
            self.screen.renew()

    async def action_act(self, action: str) -> None:
        """Do what a key stands for, or say why it does nothing here."""
        page = self.screen
        if not isinstance(page, Page):
            return
        if action == "back" and page.close_input():
            return
        if action == "back" and page.query_one(MomentBox).drop():
            page.give_back_keys()
            return
        reason = page.cannot(action) or self._cannot(action)
        if reason is not None:
            self.notify(reason, markup=False)
        elif hasattr(self, f"_do_{action}"):
            await getattr(self, f"_do_{action}")()
        elif action in DECISIONS and isinstance(page, SavingsPage | AdvicePage):
            page.decide(action)
        else:
            getattr(page, action)()

    def _plan(self, *, fresh: bool = False) -> None:
        rows, request = self._reading.advice.value or (), self._request
        self._compute("plan", lambda report: self._source.plan(rows, request, report, fresh=fresh))

    def _compute(self, field: str, call: Callable[[Report], Any]) -> None:
        """Compute a field of the study in the background; it keeps its value where that fails."""

        def work(report: Report) -> Callable[[], None]:
            found = attempt(partial(call, report), self._now, getattr(self._study, field))
            return partial(self._post, self.Computed(field, found))

        self._work[field].ask(work)
        self._renew()

    def on_pertoken_app_computed(self, event: Computed) -> None:
        """Show what was computed."""
        self._study = replace(self._study, **{event.field: event.read})
        self._renew()

    def on_plan_page_requested(self, event: PlanPage.Requested) -> None:
        """Compose the plan that a person asks for."""
        self._request = event.request
        self._plan(fresh=event.fresh)

    def on_rules_page_reload(self) -> None:
        """Load the rules again."""
        self._load_rules()

    def _load_rules(self) -> None:
        self._compute("rules", lambda _: self._source.rules())

    def on_switch_page_switched(self, event: SwitchPage.Switched) -> None:
        """Leave the question, switch the rule in the background, and load the rules again."""
        self.pop_screen()

        def switched(_: Report) -> RuleList:
            line = self._source.switch(event.rule_id, event.on)
            self._post(self.Decided(line, stored=True))
            return self._source.rules()

        self._compute("rules", switched)

    def on_advice_page_opened(self, event: AdvicePage.Opened) -> None:
        """Compute all of a recommendation, and load the page of its rule."""
        rows = self._reading.advice.value or ()
        each, values = event.recommendation, event.values
        self._compute("detail", lambda report: self._source.detail(rows, each, values, report))
        if self._study.rules == Read():
            self._load_rules()

    def on_course_page_opened(self) -> None:
        """Read the history of the host or deployment whose page was opened."""
        if not self._paused:
            self._read()

    def on_decision_page_confirmed(self, event: DecisionPage.Confirmed) -> None:
        """Leave the question, and store the decision in a thread of its own."""
        self.pop_screen()
        Thread(target=self._decide, args=(event.recommendation, event.decision), name="deciding", daemon=True).start()

    def _decide(self, each: Recommendation, decision: str) -> None:
        try:
            done = self.Decided(self._source.decide(each, decision), stored=True)
        except PertokenError as error:
            done = self.Decided(str(error), stored=False)
        self._post(done)

    def on_pertoken_app_decided(self, event: Decided) -> None:
        """Report a decision, and read how things stand."""
        self.notify(event.line, severity="information" if event.stored else "error", markup=False)
        self._read()

    def _cannot(self, action: str) -> str | None:
        writes = action in WRITES or (action == "toggle" and isinstance(self.screen, RulesPage))
        if writes and self._source.read_only is not None:
            return self._source.read_only
        if action == "suspend" and not (self._driver is not None and self._driver.can_suspend):
            return "There is no shell to go back to: these screens are in a browser, or in no terminal."
        if action in REPLAYS:
            return _FROZEN_TIME if self._paused else cannot_replay(action, self._moment())
        if action in DECISIONS and self.view().at is not None:
            return "This is the past: press n to go back to now, then decide."
        if action not in ("narrow", "widen"):
            return None
        end = WINDOWS_S[0 if action == "narrow" else -1]
        if self._window_s == end:
            return f"{format_duration(end)} is the {'shortest' if action == 'narrow' else 'longest'} window."
        return _FROZEN if self._paused else None

    async def _do_fleet(self) -> None:
        await self._go("fleet")

    async def _do_savings(self) -> None:
        await self._go("savings")

    async def _do_plan(self) -> None:
        await self._go("plan")

    async def _do_rules(self) -> None:
        await self._go("rules")
        if self._study.rules == Read():
            self._load_rules()

    async def _do_hours(self) -> None:
        await self._go("hours")
        if not self._paused:
            self._read()

    async def _go(self, mode: str) -> None:
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        if self.current_mode != mode:
            await self.switch_mode(mode)

    async def _do_back(self) -> None:
        if isinstance(self.screen, ListPage):
            self.screen.back()
        else:
            await self.pop_screen()

    async def _do_pause(self) -> None:
        self._paused = not self._paused
        if not self._paused:
            self._read()
        self._renew()

    async def _do_group(self) -> None:
        if isinstance(self.screen, FleetPage):
            self.screen.group_next()
            self._read()

    async def _do_narrow(self) -> None:
        self._choose_window(-1)

    async def _do_widen(self) -> None:
        self._choose_window(1)

    def _choose_window(self, step: int) -> None:
        self._window_s = WINDOWS_S[WINDOWS_S.index(self._window_s) + step]
        self._read()
        self._renew()

    def _moment(self) -> Moment:
        """Return where the replay stands."""
        timeline = self._reading.timeline.value
        end = self._source.recorded_until or int(self._now())
        return Moment(self._at, end, STEPS_S[self._window_s], timeline or Timeline(None, end))

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
            page.query_one(MomentBox).open()

    def on_moment_box_chosen(self, event: MomentBox.Chosen) -> None:
        """Show the time that was typed, or report why it cannot be shown."""
        at = at_of(event.text, self._moment())
        if isinstance(at, str):
            self.notify(at, severity="error", markup=False)
        else:
            self._go_to(at)

    async def _do_keys(self) -> None:
        page = self.screen
        if isinstance(page, Page):
            await self.push_screen(SheetPage(self.view, "Keys", lambda _: _HELP, page.part, late_s=page.late_s))

    async def _do_palette(self) -> None:
        self.action_command_palette()

    def _redraw(self) -> None:
        """Draw all of the screen after `fg`: the terminal has forgotten what Textual thinks is there."""
        for widget in (self.screen, *self.screen.walk_children()):
            widget.refresh()

    async def _do_suspend(self) -> None:
        self.action_suspend_process()

    async def _do_quit(self) -> None:
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every key by its name, and the colours."""
        for key in KEYS:
            if key.action != "palette":
                yield SystemCommand(key.command, f"{key.shown}: {key.help}", partial(self.action_act, key.action))
        yield SystemCommand("Change the colours", "Choose another theme.", self.action_change_theme)


def advice_version(rows: Sequence[Recommendation]) -> object:
    """Return what changes whenever any of the advice does."""
    return tuple((each.recommendation_id, each.version, each.updated_ts) for each in rows)


_HELP: Sheet = (
    Section("Keys", tuple((key.shown, f"{key.command}. {key.help}") for key in KEYS)),
    Section(
        "Moving",
        (
            "Arrow keys, Page Up, Page Down, Home and End move; a click opens.",
            "tab also reaches the hints and the events; enter there opens all of them.",
        ),
    ),
    Section(
        "What you see",
        (
            "– is not known; it is never 0. Details (enter) say why, and how to switch it on.",
            "Dimmed rows are stale, with their age. A gap in a line of bars was not observed.",
            caption("$/Mtok") + ": all dollars of a deployment by its prompt (cached included) and generated tokens.",
            "run/wait: requests running and waiting. SLO: whether a change keeps your latency objective.",
            "Bankable dollars leave the bill. Capacity dollars let the same bill serve more.",
            "1,200–1,640–1,818: low, likely, high. Confidence: ●●● measured, ●●○ forecast or listed, ●○○ assumed.",
            "Record: saving measured / saving promised of a rule, of how many receipts.",
        ),
    ),
)
