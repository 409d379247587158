"""The terminal program: reads a source again and again, and shows it on its pages."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread

from textual.app import App, SystemCommand
from textual.message import Message
from textual.screen import Screen

from pertoken.tui.keys import KEYS, WINDOWS_S
from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.hours_page import HoursPage
from pertoken.tui.pages.list_page import ListPage
from pertoken.tui.pages.page import Page
from pertoken.tui.pages.savings_page import SavingsPage
from pertoken.tui.pages.sheet_page import SheetPage
from pertoken.tui.source import Read, Reading, Source, View, read
from pertoken.tui.text.sheet import Section, Sheet
from pertoken.units import format_duration

_FROZEN = "The figures are frozen: press p to go on, then change the window."


class PertokenApp(App[None]):
    """Shows `source`, read every `refresh_s` seconds in a thread of its own, so that keys never wait for it.

    `now` gives epoch seconds, for the age of what is shown; `notice` gives what to show above every page, if anything.
    """

    TITLE = "pertoken"
    CSS_PATH = "pertoken.tcss"

    class Answered(Message):
        """A reading is done."""

        def __init__(self, reading: Reading, window_s: int) -> None:
            super().__init__()
            self.reading = reading
            self.window_s = window_s

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
        self._paused = False
        self._waiting = False

    def on_mount(self) -> None:
        """Open the fleet and start reading."""
        self.add_mode("fleet", lambda: FleetPage(self.view, "Fleet", windowed=True))
        self.add_mode("savings", lambda: SavingsPage(self.view, "Savings", windowed=False))
        self.add_mode("hours", lambda: HoursPage(self.view, "Hours", windowed=False))
        self.switch_mode("fleet")
        self.set_interval(self._refresh_s, self._tick)
        self._read()

    def view(self) -> View:
        """What pages show now."""
        return View(self._reading, self._window_s, self._paused, self._now(), self._notice())

    def _tick(self) -> None:
        if not self._paused:
            self._read()
        self._renew()

    def _read(self) -> None:
        if self._waiting:
            return
        self._waiting = True
        Thread(
            target=self._ask,
            args=(self._window_s, self._reading, self.current_mode == "hours"),
            name="reading",
            daemon=True,
        ).start()

    def _ask(self, window_s: int, last: Reading, hours: bool) -> None:
        reading = read(self._source, window_s, self._now, last, hours=hours)
        with suppress(RuntimeError):  # the loop has ended: nobody looks any more
            self.post_message(self.Answered(reading, window_s))

    def on_pertoken_app_answered(self, event: Answered) -> None:
        """Show what was read; read again if another window was chosen meanwhile."""
        self._waiting = False
        if self._paused:
            return
        if event.window_s != self._window_s:
            self._read()
            return
        self._reading = event.reading
        self._renew()
        if self.current_mode == "hours" and event.reading.hours == Read():
            self._read()  # the page was opened meanwhile

    def _renew(self) -> None:
        # An answer may come while the app ends, when there is no screen left.
        if self.screen_stack and isinstance(self.screen, Page):
            self.screen.renew()

    async def action_act(self, action: str) -> None:
        """Do what a key stands for, or say why it does nothing here."""
        page = self.screen
        if not isinstance(page, Page):
            return
        reason = page.cannot(action) or self._cannot(action)
        if reason is not None:
            self.notify(reason, markup=False)
        elif hasattr(self, f"_do_{action}"):
            await getattr(self, f"_do_{action}")()
        else:
            getattr(page, action)()

    def _cannot(self, action: str) -> str | None:
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

    async def _do_narrow(self) -> None:
        self._choose_window(-1)

    async def _do_widen(self) -> None:
        self._choose_window(1)

    def _choose_window(self, step: int) -> None:
        self._window_s = WINDOWS_S[WINDOWS_S.index(self._window_s) + step]
        self._read()
        self._renew()

    async def _do_keys(self) -> None:
        page = self.screen
        if isinstance(page, Page):
            await self.push_screen(SheetPage(self.view, "Keys", lambda _: _HELP, page.part))

    async def _do_palette(self) -> None:
        self.action_command_palette()

    async def _do_quit(self) -> None:
        self.exit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every key by its name, and the colours."""
        for key in KEYS:
            if key.action != "palette":
                yield SystemCommand(key.command, f"{key.shown}: {key.help}", partial(self.action_act, key.action))
        yield SystemCommand("Change the colours", "Choose another theme.", self.action_change_theme)


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
            "$/Mtok: all dollars of a deployment by its prompt (cached included) and generated tokens.",
            "run/wait: requests running and waiting. SLO: whether a change keeps your latency objective.",
            "Bankable dollars leave the bill. Capacity dollars let the same bill serve more.",
        ),
    ),
)
