"""What all screens have in common: the title line, the banner of a failed reading, the keys, the footer."""

from collections.abc import Callable
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer, Static

from pertoken.tui.keys import KEYS
from pertoken.tui.source import Read, View
from pertoken.tui.text.words import ago, literal
from pertoken.units import format_duration
from pertoken.window.inventory import STALE_TICKS

LATE_S = 10
"""Seconds without an answer of the database after which the title says so."""


def _bindings() -> list[Binding]:
    words = [key.footer for key in KEYS]
    groups = {word: Binding.Group(word, compact=True) for word in words if word and words.count(word) > 1}
    return [
        Binding(
            key.key,
            f"app.act('{key.action}')",
            key.footer,
            show=bool(key.footer),
            key_display=key.shown,
            tooltip=key.help,
            group=groups.get(key.footer),
        )
        for key in KEYS
    ]


class Page(Screen[None]):
    """One screen. A subclass composes its body and shows a view in it."""

    BINDINGS = _bindings()  # type: ignore[assignment]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall"), (32, "-high")]  # noqa: RUF012
    AUTO_FOCUS = ""

    def __init__(self, view: Callable[[], View], heading: str, windowed: bool) -> None:
        super().__init__()
        self.view = view
        self.heading = heading
        self.windowed = windowed
        """Whether what it shows depends on the window."""
        self._composed = False

    def compose(self) -> ComposeResult:
        """Title, banner, body, footer."""
        yield Static(id="title", markup=False)
        yield Static(id="banner", markup=False)
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """The widgets between banner and footer."""
        yield from ()

    def part(self, view: View) -> Read[Any]:
        """The part of a reading that this page shows."""
        return view.reading.fleet

    def show(self, view: View) -> None:
        """Show a view."""

    def cannot(self, action: str) -> str | None:
        """Why an action does nothing here now; None if it does something."""
        if action in ("narrow", "widen") and not self.windowed:
            return "The window belongs to the fleet: press 1 first."
        return None

    def on_mount(self) -> None:
        """Show what was read before."""
        self._composed = True
        self.renew()

    def on_screen_resume(self) -> None:
        """Catch up with what was read meanwhile."""
        self.renew()

    def renew(self) -> None:
        """Show the newest view, while there is where to show it."""
        if not (self._composed and self.is_attached and self.app.is_running and self.query("#title")):
            return  # a tick may come before the page has all its widgets, and once more while the app ends
        view = self.view()
        part = self.part(view)
        with self.app.batch_update():
            self.query_one("#title", Static).update(self._title(view, part))
            banner = self.query_one("#banner", Static)
            banner.display = part.error is not None or view.notice is not None
            banner.set_class(part.error is None, "-notice")
            banner.update(literal(view.notice or "") if part.error is None else _failure(part, view.now_ts))
            self.show(view)

    def _title(self, view: View, part: Read[Any]) -> str:
        if view.paused:
            state = "PAUSED, p goes on"
        elif part.error is not None:
            state = "not answering"
        elif part.ts is None:
            state = "reading"
        elif view.now_ts - part.ts > LATE_S:
            state = f"no answer for {format_duration(view.now_ts - part.ts)}"
        elif (silent_s := _silent_s(view)) is not None:
            state = f"no data for {format_duration(silent_s)}"
        else:
            state = "live"
        window = (f"last {format_duration(view.window_s)}",) if self.windowed else ()
        place = literal(view.reading.place.value or "")
        return " · ".join(filter(None, (f"pertoken  {self.heading}", *window, state, place)))


def _silent_s(view: View) -> float | None:
    """Seconds since the newest row, where every host stopped reporting."""
    report = view.reading.fleet.value
    if report is None or not report.hosts:
        return None
    ages = [(host.age_s + view.now_ts - report.now_ts, host) for host in report.hosts if host.age_s is not None]
    if any(age_s <= STALE_TICKS * host.interval_s for age_s, host in ages):
        return None
    return min((age_s for age_s, _ in ages), default=None)


def _failure(part: Read[Any], now_ts: float) -> str:
    shown = "Nothing could be read yet" if part.ts is None else f"These figures are from {ago(now_ts - part.ts)}"
    return f"{shown}: {literal(part.error or '')}"
