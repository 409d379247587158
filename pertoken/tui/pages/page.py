"""Base of all screens: title line, banner of a failed reading, keys and footer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from pertoken.text.keys import KEY_OF, KEYS, with_keys
from pertoken.text.sheet import Section, Sheet, StyledText, laid_out, text_of
from pertoken.text.words import ago, literal
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.boxes import AskBox
from pertoken.tui.widgets.figures import EventLane
from pertoken.tui.widgets.layout import KeyLine, PlainText
from pertoken.units import format_duration, format_utc
from pertoken.window.figures import STALE_TICKS

if TYPE_CHECKING:
    from pertoken.window.course import Subject


NOW_S = 5
"""Age in seconds up to which computed figures are titled `now`."""
MIN_HEIGHT = 10
"""Fewest lines of a terminal in which every screen has space for a row."""
_JUST_AFTER_S = 0.05
INPUT_WORDS = {"open": "OK", "back": "Close"}
"""Words in the last line while an input line is open."""
LATE_S = 10
"""Seconds without an answer of the database after which the title reports it."""


def bindings() -> list[Binding]:
    """Return the bindings of all keys."""
    return [Binding(key.key, f"app.act('{key.action}')", key.command, show=False, id=key.action) for key in KEYS]


class Page(Screen[None]):
    """Base of a screen. A subclass composes the body and shows a view in it."""

    FOOTER: ClassVar[tuple[str, ...]] = ("fleet", "savings", "plan", "rules", "open", "filter", "sort", "keys", "quit")
    """Actions with a key in the last line."""
    REPLAY_FOOTER: ClassVar[tuple[str, ...]] = (
        *("savings", "open", "earlier", "later", "event_before", "event_after", "moment", "now", "keys", "quit"),
    )
    WORDS: ClassVar[Mapping[str, str]] = {}
    """Words in the last line that differ from the table of keys, by action."""
    OWN: ClassVar[frozenset[str]] = frozenset()
    """Actions that do something on this page and nothing on most others."""
    OWN_WRITES: ClassVar[frozenset[str]] = frozenset()
    """Actions that store something on this page, but not on others."""
    focused = reactive[Widget | None](None, repaint=False)
    """Widget with the focus. The widgets that lose and get it are drawn; Textual would draw the whole screen again."""
    subject: Subject | None = None
    """Host or deployment of the history that the page shows."""
    late_s: float | None = LATE_S
    """Seconds without an answer after which the title reports it; None: no refresh, and the title has an age."""
    BINDINGS = bindings()  # type: ignore[assignment]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide"), (110, "-broad")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (20, "-tall"), (32, "-high")]  # noqa: RUF012
    AUTO_FOCUS = ""

    def __init__(self, view: Callable[[], ScreenView], heading: str, windowed: bool) -> None:
        super().__init__()
        self.view = view
        self.heading = heading
        self.windowed = windowed
        """Whether the figures of the page depend on the window."""
        self._composed = False
        self._small = False
        self._look: tuple[object, ...] = ()
        """Theme and classes of the app that the widgets were styled for."""

    def compose(self) -> ComposeResult:
        """Yield title, banner, body and keys, with the classes of the size: Textual adds them after it styled all."""
        self._look = self._present_look()
        for cells, points in zip(self.app.size, (self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS), strict=True):
            names = [name for least, name in points if cells >= least]
            self.add_class(*names[-1:], update=False)
        yield PlainText(id="title")
        yield PlainText(id="banner")
        yield EventLane()
        yield from self.body()
        yield KeyLine()

    def body(self) -> ComposeResult:
        """Yield the widgets between banner and keys."""
        yield from ()

    def part(self, view: ScreenView) -> Read[object]:
        """Return the part of the view that this page shows, with its time and error."""
        return view.reading.fleet

    def show(self, view: ScreenView) -> None:
        """Show a view in the body."""

    def shows_banner(self, view: ScreenView) -> bool:
        """Return whether the banner is shown: for a failed reading or a notice."""
        return self.part(view).error is not None or view.notice is not None

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing on this page now; None if it does something."""
        if action in ("narrow", "widen") and not self.windowed:
            return with_keys("Only the fleet has a window: press {fleet} first.")
        key = KEY_OF[action]
        return with_keys(key.elsewhere) if key.elsewhere and action not in self.OWN else None

    def decide(self, decision: str) -> None:
        """Open the confirmation of a decision; called only if `cannot` returned None."""

    def is_drawn(self) -> bool:
        """Return whether everything that was last shown is drawn."""
        return True

    def top(self) -> None:
        """Scroll to the start."""
        if self.focused is not None:
            self.focused.scroll_home(animate=False)

    def bottom(self) -> None:
        """Scroll to the end."""
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
        """Return the content of the page as text."""
        return ""

    def footer(self, view: ScreenView) -> tuple[str, ...]:
        """Return the actions with a key in the last line now: the replay's while the past is shown."""
        replays = view.at is not None and self.late_s is not None and {"savings", "quit"} <= set(self.FOOTER)
        return self.REPLAY_FOOTER if replays else self.FOOTER

    def close_input(self) -> bool:
        """Close the input line; return whether it was open."""
        was_open = any([box.close() for box in self.query(AskBox)])
        if was_open:
            self.give_back_keys()
        return was_open

    def give_back_keys(self) -> None:
        """Move the focus back to the page after an input line was closed."""

    def on_mount(self) -> None:
        """Show the newest view."""
        self._composed = True
        self.renew()

    def on_resize(self) -> None:
        """Update the title when the terminal becomes too small, or large enough again."""
        small = self.size.height < MIN_HEIGHT
        if small != self._small:
            self._small = small
            self.renew()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Show values read while the page was hidden, and style the page again only if the look has changed."""
        look = self._present_look()
        event.refresh_styles = look != self._look
        self._look = look
        self.renew()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return a region as one blank strip, because widgets cover it."""
        _, background = self.background_colors
        strip = Strip.blank(crop.width, Style.from_color(bgcolor=background.rich_color))
        for line_filter in self.get_line_filters():
            strip = strip.apply_filter(line_filter, background)
        return [strip] * crop.height

    def _present_look(self) -> tuple[object, ...]:
        return self.app.theme, frozenset(self.app.classes)

    def renew(self) -> None:
        """Show the newest view if the page has its widgets."""
        if not (self._composed and self.is_attached and self.app.is_running and self.query("#title")):
            return  # a tick may come before the page has all its widgets, or while the app ends
        view = self.view()
        part = self.part(view)
        self._show_keys(view)
        with self.app.batch_update():
            self.query_one("#title", PlainText).update(self._title(view, part))
            banner = self.query_one("#banner", PlainText)
            banner.display = self.shows_banner(view)
            banner.set_class(part.error is None, "-notice")
            banner.update(literal(view.notice or "") if part.error is None else _failure(part, view.now_ts))
            end_ts = view.recorded_until or int(view.now_ts)
            shown_ts = view.at if view.at is not None else view.recorded_until
            self.query_one(EventLane).show(view.reading.timeline.value, end_ts, shown_ts, view.window_s)
            self.show(view)

    def on_descendant_focus(self) -> None:
        """Show the keys of an input line, in which other keys are text."""
        self._show_keys(self.view())

    def on_descendant_blur(self) -> None:
        """Show the keys of the page again."""
        self._show_keys(self.view())

    def _show_keys(self, view: ScreenView) -> None:
        for line in self.query(KeyLine):
            if isinstance(self.focused, Input):
                line.show(("open", "back"), getattr(self.focused, "KEY_WORDS", INPUT_WORDS))
            else:
                line.show(self.footer(view), self.WORDS)

    def _title(self, view: ScreenView, part: Read[object]) -> str:
        if self.size.height < MIN_HEIGHT:
            state = "too small to show rows"
        elif view.paused:
            state = with_keys("PAUSED, {pause} goes on")
        elif part.error is not None:
            state = "not answering"
        elif part.ts is None:
            state = "reading"
        elif self.late_s is None:
            age_s = view.now_ts - part.ts
            state = f"as of {ago(age_s) if age_s >= NOW_S else 'now'}"
            if part is view.study.plan and (silent_s := _silent_s(view)) is not None:
                state += f", telemetry {format_duration(silent_s)} old"
        elif view.past(part) is None and view.now_ts - part.ts > self.late_s:
            state = f"no answer for {format_duration(view.now_ts - part.ts)}"
        elif (silent_s := _silent_s(view)) is not None:
            state = f"stale {format_duration(silent_s)}"
        elif view.past(part) is not None:
            state = "REPLAY" if view.recorded_until is None else "RECORDING"
        else:
            state = "live"
        window = _time_of(view, part, self.windowed)
        database = literal(view.reading.database.value or "")
        return " · ".join(filter(None, (f"pertoken  {self.heading}", *window, state, database)))


def _time_of(view: ScreenView, part: Read[object], windowed: bool) -> tuple[str, ...]:
    """Return the time that the figures describe; a window or time that is not read yet is added in parentheses."""
    query = part.query
    window_s = view.window_s if query is None else query.window_s
    past = view.past(part)
    shown = [f"last {format_duration(window_s)}"] if windowed else []
    shown += [f"{'to' if windowed else 'of'} {format_utc(past)}"] if past is not None else []
    pending = [format_duration(view.window_s)] if windowed and view.window_s != window_s else []
    if query is not None and query.at != view.at:
        pending.append("now" if view.at is None else f"to {format_utc(view.at)}")
    text = " ".join(shown) + (f" ({' '.join(pending)} is not read yet)" if pending else "")
    return (text.strip(),) if text else ()


def _silent_s(view: ScreenView) -> float | None:
    """Return the seconds since the newest row if every host stopped reporting, else None."""
    report = view.reading.fleet.value
    if report is None or not report.hosts:
        return None
    older_s = view.older_s
    ages = [(host.age_s + older_s, host) for host in report.hosts if host.age_s is not None]
    if any(age_s <= STALE_TICKS * host.interval_s for age_s, host in ages):
        return None
    return min((age_s for age_s, _ in ages), default=None)


def next_stale_s(view: ScreenView) -> float | None:
    """Return the seconds until the next host becomes stale if it reports no row; None if none can become stale."""
    report = view.reading.fleet.value
    if report is None or view.past(view.reading.fleet) is not None:
        return None
    older_s = view.older_s
    stale_in_s = [
        STALE_TICKS * host.interval_s - host.age_s - older_s for host in report.hosts if host.age_s is not None
    ]
    return min((left_s + _JUST_AFTER_S for left_s in stale_in_s if left_s >= 0), default=None)


def _failure(part: Read[object], now_ts: float) -> str:
    shown = "Nothing could be read yet" if part.ts is None else f"These figures are from {ago(now_ts - part.ts)}"
    return f"{shown}: {literal(part.error or '')}"


_ALONE = "This page has no rows: esc goes back to the list."


class SheetText(Widget):
    """A sheet as lines of the present width."""

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"sheet--title", "sheet--label"}

    def __init__(self) -> None:
        super().__init__()
        self._sheet: Sheet = ()
        self._lines: Sequence[tuple[StyledText, ...]] = ()
        self._width: int | None = None
        """Width in cells of `_lines`; None: they are not made yet."""

    def show(self, sheet: Sheet) -> None:
        """Show a sheet."""
        self._sheet, self._width = sheet, None
        self.refresh(layout=True)

    def _at_width(self, width: int) -> Sequence[tuple[StyledText, ...]]:
        if width != self._width:
            self._lines, self._width = laid_out(self._sheet, width), width
        return self._lines

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at this width."""
        return len(self._at_width(width))

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        lines, width, usual = self._at_width(self.size.width), self.size.width, self.rich_style
        styles = {
            "title": self.get_component_rich_style("sheet--title"),
            "label": self.get_component_rich_style("sheet--label"),
            "text": usual,
        }
        texts = lines[y] if y < len(lines) else ()
        return Strip([Segment(text, styles[kind]) for text, kind in texts]).adjust_cell_length(width, usual)


class SheetPage(Page):
    """Page of one sheet. `sheet` makes it from a view; None once its subject is gone."""

    FOOTER: ClassVar[tuple[str, ...]] = ("fleet", "savings", "plan", "rules", "back", "jump", "pager", "keys", "quit")
    AUTO_FOCUS = "VerticalScroll"

    def __init__(
        self,
        view: Callable[[], ScreenView],
        heading: str,
        sheet: Callable[[ScreenView], Sheet | None],
        part: Callable[[ScreenView], Read[object]],
        windowed: bool = False,
        late_s: float | None = LATE_S,
    ) -> None:
        super().__init__(view, heading, windowed)
        self.late_s = late_s
        self._sheet, self._part = sheet, part
        self._text = SheetText()
        self._shown: Sheet | None = None

    def body(self) -> ComposeResult:
        """Yield a text that scrolls."""
        with VerticalScroll():
            yield self._text

    def part(self, view: ScreenView) -> Read[object]:
        """Return the part of the view that the sheet is made from."""
        return self._part(view)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; this page has no rows."""
        if action in ("open", "filter", "sort", "reverse", "next", "columns"):
            return _ALONE
        return super().cannot(action)

    def show(self, view: ScreenView) -> None:
        """Show the sheet of a view."""
        sheet = self._sheet(view)
        if sheet is None:
            self._shown = None
            self._text.show((Section("It no longer exists: esc goes back.", ()),))
        else:
            self.draw(sheet)

    def as_text(self) -> str:
        """Return the sheet as text."""
        return text_of(self._shown or ())

    def draw(self, sheet: Sheet) -> None:
        """Draw a sheet if it differs from the one that is shown."""
        if sheet != self._shown:
            self._shown = sheet
            self._text.show(sheet)


class KeysPage(SheetPage):
    """Help, over the page that `over` set last. It is made once: its text never changes."""

    def __init__(self, view: Callable[[], ScreenView], keys: Sheet) -> None:
        self._under: Page | None = None
        super().__init__(view, "Keys", lambda _: keys, self._part_under)

    def over(self, page: Page) -> None:
        """Show the state of a page in the title."""
        self._under, self.late_s = page, page.late_s

    def _part_under(self, view: ScreenView) -> Read[object]:
        return view.reading.fleet if self._under is None else self._under.part(view)

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now."""
        return "These are the keys: esc goes back." if action == "keys" else super().cannot(action)


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write a new file and return its path; if the name exists, a number is added to it. Raises OSError."""
    for number in itertools.count(1):
        file = folder / f"{name}{'' if number == 1 else f'-{number}'}.{suffix}"
        with suppress(FileExistsError), file.open("x", encoding="utf-8") as opened:
            opened.write(text)
            break
    return file


NO_COMMANDS = "This page has no command to copy."
SHOWN = 50
"""Characters of a command that the notice about its copy shows."""


class CommandPage(SheetPage):
    """Sheet page with commands. A subclass returns the commands that apply a change and those that undo it."""

    FOOTER: ClassVar[tuple[str, ...]] = ("savings", "plan", "back", "copy", "copy_all", "keys", "quit")
    OWN = frozenset({"copy", "copy_all"})
    _next = 0

    def commands(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the commands that apply the change, and those that undo it."""
        return (), ()

    def cannot(self, action: str) -> str | None:
        """Return the reason why an action does nothing now; None if it does something."""
        if action in ("copy", "copy_all") and not any(self.commands()):
            return NO_COMMANDS
        return super().cannot(action)

    def copy(self) -> None:
        """Copy the next command on every call: first those that apply the change, then those that undo it."""
        commands = [command for part in self.commands() for command in part]
        index = self._next % len(commands)
        self._next = index + 1
        self.app.copy_to_clipboard(commands[index])
        short = literal(commands[index])
        short = short if len(short) <= SHOWN else f"{short[:SHOWN]}…"
        self.app.notify(f"Copied {index + 1} of {len(commands)}: {short}", markup=False)

    def copy_all(self) -> None:
        """Copy every command; those that undo the change are copied as comments."""
        apply, undo = self.commands()
        self.app.copy_to_clipboard("\n".join((*apply, *(f"# undo: {command}" for command in undo))) + "\n")
        self.app.notify(f"Copied all {len(apply) + len(undo)} lines; the undo commands are comments.", markup=False)
