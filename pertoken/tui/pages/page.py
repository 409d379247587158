"""What all screens have in common: the title line, the banner of a failed reading, the keys, the footer."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Footer

from pertoken.tui.keys import KEY_OF, KEYS
from pertoken.tui.source import Read, View
from pertoken.tui.text.words import ago, literal
from pertoken.tui.widgets.event_lane import EventLane
from pertoken.tui.widgets.moment_box import MomentBox
from pertoken.tui.widgets.plain_text import PlainText
from pertoken.units import format_duration, format_utc
from pertoken.window.observed import STALE_TICKS

NOW_S = 5
"""Seconds up to which what was computed is of now."""
MIN_HEIGHT = 10
"""Lines of a terminal in which every screen shows a row."""
_JUST_AFTER_S = 0.05
LATE_S = 10
"""Seconds without an answer of the database after which the title says so."""


def bindings(footer: Collection[str]) -> list[Binding]:
    """Return the bindings of all keys; the footer shows those of some actions."""
    words = [key.footer for key in KEYS]
    groups = {word: Binding.Group(word, compact=True) for word in words if word and words.count(word) > 1}
    return [
        Binding(
            key.key,
            f"app.act('{key.action}')",
            key.footer,
            show=key.action in footer,
            key_display=key.shown,
            tooltip=key.help,
            group=groups.get(key.footer),
            id=key.action,
        )
        for key in KEYS
    ]


class Page(Screen[None]):
    """One screen. A subclass composes its body and shows a view in it."""

    FOOTER: ClassVar[tuple[str, ...]] = ("fleet", "savings", "plan", "rules", "open", "filter", "sort", "keys", "quit")
    """Actions of which the footer shows the keys, in the order of the table of keys."""
    REPLAY_FOOTER: ClassVar[tuple[str, ...]] = (
        *("savings", "open", "earlier", "later", "event_before", "event_after", "moment", "now", "keys", "quit"),
    )
    OWN: ClassVar[frozenset[str]] = frozenset()
    """Actions of keys that do nothing on most pages, and something on this one."""
    OWN_WRITES: ClassVar[frozenset[str]] = frozenset()
    """Actions that store something on this page only."""
    late_s: float | None = LATE_S
    """Seconds without an answer after which the title says so; None where figures are made once, and have an age."""
    BINDINGS = bindings(FOOTER)  # type: ignore[assignment]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide"), (110, "-broad")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall"), (32, "-high")]  # noqa: RUF012
    AUTO_FOCUS = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a subclass with a footer of its own the bindings for it."""
        if "FOOTER" in vars(cls) and "BINDINGS" not in vars(cls):
            cls.BINDINGS = bindings(cls.FOOTER)
        super().__init_subclass__(**kwargs)

    def __init__(self, view: Callable[[], View], heading: str, windowed: bool) -> None:
        super().__init__()
        self.view = view
        self.heading = heading
        self.windowed = windowed
        """Whether what it shows depends on the window."""
        self._composed = False
        self._small = False
        self._css_update_count = 0  # of Textual: it is made by the style sheet of the start, unless the theme changed
        self._in_footer: tuple[str, ...] = self.FOOTER

    def compose(self) -> ComposeResult:
        """Title, banner, body, footer."""
        yield PlainText(id="title")
        yield PlainText(id="banner")
        yield EventLane()
        yield from self.body()
        yield MomentBox()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """The widgets between banner and footer."""
        yield from ()

    def part(self, view: View) -> Read[Any]:
        """The part of a reading that this page shows."""
        return view.reading.fleet

    def show(self, view: View) -> None:
        """Show a view."""

    def shows_banner(self, view: View) -> bool:
        """Return whether a failed reading, or a notice, stands above the page."""
        return self.part(view).error is not None or view.notice is not None

    def cannot(self, action: str) -> str | None:
        """Why an action does nothing here now; None if it does something."""
        if action in ("narrow", "widen") and not self.windowed:
            return "The window belongs to the fleet: press 1 first."
        key = KEY_OF[action]
        return key.elsewhere if key.elsewhere and action not in self.OWN else None

    def decide(self, decision: str) -> None:
        """Ask before a decision is stored; `cannot` returns why there is nothing to decide on."""

    def is_drawn(self) -> bool:
        """Return whether what was shown last has all its parts on the screen."""
        return True

    def top(self) -> None:
        """Go to the start of what scrolls."""
        if self.focused is not None:
            self.focused.scroll_home(animate=False)

    def bottom(self) -> None:
        """Go to the end of what scrolls."""
        if self.focused is not None:
            self.focused.scroll_end(animate=False)

    def down(self) -> None:
        """Scroll a line down."""
        if self.focused is not None:
            self.focused.scroll_down(animate=False)

    def up(self) -> None:
        """Scroll a line up."""
        if self.focused is not None:
            self.focused.scroll_up(animate=False)

    def as_text(self) -> str:
        """Return all that the page holds as text."""
        return ""

    def footer(self, view: View) -> tuple[str, ...]:
        """Return the actions of which the footer shows the keys now: those of a replay while the past is shown."""
        replays = view.at is not None and self.late_s is not None and {"savings", "quit"} <= set(self.FOOTER)
        return self.REPLAY_FOOTER if replays else self.FOOTER

    def close_input(self) -> bool:
        """Close the line a person types in, if one is open; return whether it was."""
        return False

    def give_back_keys(self) -> None:
        """Give the keys back to the page after something was typed."""

    def on_mount(self) -> None:
        """Show what was read before."""
        self._composed = True
        self.renew()

    def on_resize(self) -> None:
        """Show whether the terminal has become too small, or is not any more."""
        small = self.size.height < MIN_HEIGHT
        if small != self._small:
            self._small = small
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
        self._show_keys(self.footer(view))
        with self.app.batch_update():
            self.query_one("#title", PlainText).update(self._title(view, part))
            banner = self.query_one("#banner", PlainText)
            banner.display = self.shows_banner(view)
            banner.set_class(part.error is None, "-notice")
            banner.update(literal(view.notice or "") if part.error is None else _failure(part, view.now_ts))
            end_ts = view.recorded_until or int(view.now_ts)
            at = view.at if view.at is not None else view.recorded_until
            self.query_one(EventLane).show(view.reading.timeline.value, end_ts, at, view.window_s)
            self.show(view)

    def _show_keys(self, actions: tuple[str, ...]) -> None:
        """Have the footer show the keys of these actions."""
        if actions == self._in_footer:
            return
        self._in_footer = actions
        for key, bindings in self._bindings.key_to_bindings.items():
            self._bindings.key_to_bindings[key] = [
                replace(each, show=each.id in actions) if each.id in KEY_OF else each for each in bindings
            ]
        self.refresh_bindings()

    def _title(self, view: View, part: Read[Any]) -> str:
        if self.size.height < MIN_HEIGHT:
            state = "too small to show rows"
        elif view.paused:
            state = "PAUSED, p goes on"
        elif part.error is not None:
            state = "not answering"
        elif part.ts is None:
            state = "reading"
        elif self.late_s is None:
            age_s = view.now_ts - part.ts
            state = f"as of {ago(age_s) if age_s >= NOW_S else 'now'}"
        elif view.past(part) is None and view.now_ts - part.ts > self.late_s:
            state = f"no answer for {format_duration(view.now_ts - part.ts)}"
        elif (silent_s := _silent_s(view)) is not None:
            state = f"stale, no data for {format_duration(silent_s)}"
        elif view.past(part) is not None:
            state = "REPLAY" if view.recorded_until is None else "RECORDING"
        else:
            state = "live"
        window = _time_of(view, part, self.windowed)
        place = literal(view.reading.place.value or "")
        return " · ".join(filter(None, (f"pertoken  {self.heading}", *window, state, place)))


def _time_of(view: View, part: Read[Any], windowed: bool) -> tuple[str, ...]:
    """Return the time that the figures are of; what was asked for and is not read yet is added, never put instead."""
    asked = part.asked
    window_s = view.window_s if asked is None else asked.window_s
    past = view.past(part)
    shown = [f"last {format_duration(window_s)}"] if windowed else []
    shown += [f"{'to' if windowed else 'of'} {format_utc(past)}"] if past is not None else []
    pending = [format_duration(view.window_s)] if windowed and view.window_s != window_s else []
    if asked is not None and asked.at != view.at:
        pending.append("now" if view.at is None else f"to {format_utc(view.at)}")
    text = " ".join(shown) + (f" ({' '.join(pending)} is not read yet)" if pending else "")
    return (text.strip(),) if text else ()


def _silent_s(view: View) -> float | None:
    """Seconds since the newest row, where every host stopped reporting."""
    report = view.reading.fleet.value
    if report is None or not report.hosts:
        return None
    older_s = view.older_s
    ages = [(host.age_s + older_s, host) for host in report.hosts if host.age_s is not None]
    if any(age_s <= STALE_TICKS * host.interval_s for age_s, host in ages):
        return None
    return min((age_s for age_s, _ in ages), default=None)


def next_stale_s(view: View) -> float | None:
    """Return the seconds until the next host that reports becomes stale unless a row comes; None without any."""
    report = view.reading.fleet.value
    if report is None or view.past(view.reading.fleet) is not None:
        return None
    older_s = view.older_s
    left = [STALE_TICKS * host.interval_s - host.age_s - older_s for host in report.hosts if host.age_s is not None]
    return min((each + _JUST_AFTER_S for each in left if each >= 0), default=None)


def _failure(part: Read[Any], now_ts: float) -> str:
    shown = "Nothing could be read yet" if part.ts is None else f"These figures are from {ago(now_ts - part.ts)}"
    return f"{shown}: {literal(part.error or '')}"
