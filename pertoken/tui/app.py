"""The terminal program: its screens and the actions of its keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import unescape
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from rich.segment import Segment
from textual import events, on
from textual.app import App, SuspendNotSupported
from textual.color import Color
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.driver import Driver
from textual.filter import LineFilter
from textual.markup import escape
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Input

from pertoken.text.fleet_sheets import notices_sheet
from pertoken.text.keys import (
    DECISIONS,
    KEYS,
    WRITES,
    Key,
    KeyChoice,
    KeyTarget,
    choices,
    help_sheet,
    name_keys,
    targets,
    with_keys,
)
from pertoken.text.study import RuleList
from pertoken.tui.options import SCREENS, mapped
from pertoken.tui.pages.fleet_page import FleetPage
from pertoken.tui.pages.list_page import ColumnsPage, ListPage
from pertoken.tui.pages.modes import MODES, page_of
from pertoken.tui.pages.page import KeysPage, Page, SheetPage, write_new
from pertoken.tui.reader_app import FROZEN, Report, TimeApp, on_standard_output
from pertoken.tui.source import Read, ScreenView
from pertoken.tui.widgets.boxes import JumpBox, MomentBox
from pertoken.tui.widgets.table import Rows
from pertoken.units import parse_duration_s

if TYPE_CHECKING:
    from pertoken.text.sheet import Sheet
    from pertoken.tui.pages.decision_page import AdvicePage, DecisionPage
    from pertoken.tui.pages.plan_page import PlanPage
    from pertoken.tui.pages.rules_page import SwitchPage
    from pertoken.tui.pages.settings_page import SettingsPage


CELL_WIDTH = 12.2
"""Width of a cell in a screenshot: Rich draws characters 20 high and 0.61 as wide."""
_TEXT = re.compile(r'<text [^>]*\bx="([0-9.e+]+)"[^>]*clip-path="url\(#[^)]*-line-(\d+)\)">([^<]*)</text>')
PAGERS = ("less", "more", "cat")
"""Programs to try if $PAGER is not set."""


def text_of_picture(svg: str, height: int) -> str:
    """Return the lines of text of a screenshot, without trailing blanks. `height`: lines of the screen."""
    lines = [""] * height
    for x, number, text in _TEXT.findall(svg):
        line = lines[int(number)]
        start = round(float(x) / CELL_WIDTH)
        lines[int(number)] = line + " " * (start - cell_len(line)) + unescape(text).replace("\xa0", " ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def dump(app: App[None], folder: Path, now_ts: float) -> tuple[Path, Path]:
    """Write the screen as text and as SVG into new files of a folder; return their paths. Raises OSError."""
    name = f"pertoken-screen-{datetime.fromtimestamp(now_ts, UTC):%Y%m%d-%H%M%S}"
    picture = app.export_screenshot(title="pertoken")
    text_file = write_new(folder, name, "txt", text_of_picture(picture, app.size.height))
    picture_file = text_file.with_suffix(".svg")
    picture_file.write_text(picture, encoding="utf-8")
    return text_file, picture_file


def save_screen(app: App[None], now_ts: float) -> None:
    """Write the screen into the folder that pertoken was started in, and notify the files or the error."""
    if app.is_web:
        app.notify("A browser writes no file on the server: save the page there.", markup=False)
        return
    try:
        files = dump(app, Path.cwd(), now_ts)
    except OSError as error:
        app.notify(f"{Path.cwd()}: {error.strerror or error}", severity="error", markup=False)
    else:
        app.notify("Wrote " + " and ".join(str(file) for file in files), markup=False)


def pager() -> list[str]:
    """Return the command of the pager as arguments; empty if there is no pager."""
    import shlex
    import shutil

    try:
        chosen = shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        chosen = []
    if chosen and shutil.which(chosen[0]):
        return chosen
    return next(([name] for name in PAGERS if shutil.which(name)), [])


def show_in_pager(app: App[None], text: str) -> None:
    """Show a text in the pager, which has the terminal until it ends; notify why it cannot be shown."""
    import subprocess

    command = pager()
    reason = None if command else "No pager was found: set $PAGER to a program."
    if command:
        try:
            with app.suspend():
                subprocess.run(command, input=text.encode(), check=False)
        except SuspendNotSupported:
            reason = with_keys("A browser has no pager: {dump} saves the screen instead.")
        except OSError as error:
            reason = f"{command[0]}: {error.strerror or error}"
    if reason is not None:
        app.notify(reason, severity="error", markup=False)


_SYNONYM = 0.9
"""Weight of a match of a synonym; a match of the name has 1."""


class KeyCommands(Provider):
    """Commands of the table of keys. The help of a command that does nothing now is the reason."""

    @property
    def _app(self) -> PertokenApp:
        return cast("PertokenApp", self.app)

    def _keys(self) -> list[Key]:
        return [key for key in mapped(self._app.options.keymap) if key.action != "palette"]

    def _help(self, key: Key) -> str:
        reason = self._app.why_not(key.action)
        return escape(f"{key.shown}: {key.help}" if reason is None else f"Not now: {reason}")

    async def discover(self) -> Hits:
        """Yield every command."""
        for key in self._keys():
            yield DiscoveryHit(key.command, partial(self._app.action_act, key.action), help=self._help(key))

    async def search(self, query: str) -> Hits:
        """Yield the commands with a matching name or synonym, best first."""
        matcher = self.matcher(query)
        for key in self._keys():
            by_name = matcher.match(key.command)
            by_synonym = max((matcher.match(word) for word in key.synonyms.split()), default=0.0) * _SYNONYM
            if score := max(by_name, by_synonym):
                shown = matcher.highlight(key.command) if by_name >= by_synonym else key.command
                yield Hit(
                    score, shown, partial(self._app.action_act, key.action), text=key.command, help=self._help(key)
                )


DARK = Theme(
    name="dark",
    primary="#5fafff",
    secondary="#87d7ff",
    warning="#ffd75f",
    error="#ff8787",
    success="#87d787",
    accent="#ffaf5f",
    foreground="#e4e4e4",
    background="#121212",
    surface="#1c1c1c",
    panel="#262626",
    boost="#303030",
    dark=True,
    variables={
        "text-muted": "#b2b2b2",
        "text-disabled": "#a0a0a0",
        "footer-key-foreground": "#ffd75f",
        "footer-background": "#262626",
        "footer-description-foreground": "#e4e4e4",
    },
)
LIGHT = Theme(
    name="light",
    primary="#00509e",
    secondary="#005f87",
    warning="#7a4b00",
    error="#b00020",
    success="#17650f",
    accent="#8a4b00",
    foreground="#1c1c1c",
    background="#fcfcfc",
    surface="#f4f4f4",
    panel="#e4e4e4",
    boost="#dadada",
    dark=False,
    variables={
        "text-muted": "#4a4a4a",
        "text-disabled": "#5a5a5a",
        "footer-key-foreground": "#8a1c00",
        "footer-background": "#e4e4e4",
        "footer-description-foreground": "#1c1c1c",
    },
)
TERMINAL = replace(BUILTIN_THEMES["ansi-dark"], name="16-colour")
ALL = (DARK, LIGHT, TERMINAL)

_DRAWN = {
    **dict.fromkeys("─━═╌╍┄┅┈┉╴╶╸╺╼╾▁▔", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋╵╷╹╻▏▕▎▍▌▐", "|"),
    **dict.fromkeys("┌┐└┘┏┓┗┛╔╗╚╝╭╮╰╯├┤┬┴┼┣┫┳┻╋╞╡╪╫╬┠┨┡┩┢┪╟╢╤╧╇╈╉╊┯┷┿╂", "+"),
    **dict(zip("▂▃▄▅▆▇█", "_.:-=+#", strict=True)),
    **dict(zip("▓▒░", "%=.", strict=True)),
    **dict.fromkeys("▀▖▗▘▙▚▛▜▝▞▟▪●•·", "*"),
    **dict(zip("◐○≈→←↑↓▲▼✓✗×≤≥–…↺", "oo~><^v^vvxx<>-~r", strict=True)),
}
ASCII = str.maketrans(_DRAWN)


class AsciiDrawing(LineFilter):
    """Filter that replaces every drawing character with an ASCII character of the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments of a line without box drawing."""
        return [Segment(text.translate(ASCII), style, control) for text, style, control in segments]


SWITCH_S = 0.01
"""Seconds in which another page is filled before it is drawn."""


class PertokenApp(TimeApp):
    """The app with all screens and key actions; `ReaderApp` documents the arguments."""

    TITLE = "pertoken"
    CSS_PATH = "pertoken.tcss"
    DEFAULT_MODE = "fleet"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {KeyCommands}

    def get_driver_class(self) -> type[Driver]:
        """Draw on standard output."""
        return on_standard_output(super().get_driver_class())

    def on_load(self) -> None:
        """Set the theme before the first screen is made: a later change makes Textual parse every style again."""
        name_keys(mapped(self.options.keymap))
        for theme in ALL:
            self.register_theme(theme)
        self._ascii = AsciiDrawing()
        chosen = self.remembered.theme or self.options.theme
        if chosen == DARK.name:  # dark like Textual's default theme: its filters and classes can stay
            self.set_reactive(App.theme, chosen)
            self.stylesheet.set_variables(self.get_css_variables())
        for mode in MODES:
            self.add_mode(mode, partial(self._page_of, mode))

    def _page_of(self, mode: str) -> Page:
        return page_of(mode, self.view, self.choices, self.options.settings)

    def on_unmount(self) -> None:
        """Use the names of the default keys again."""
        name_keys(KEYS)

    def on_mount(self) -> None:
        """Open the last screen and start reading."""
        self.theme = self.remembered.theme or self.options.theme
        self._draw_in(self.remembered.borders or self.options.borders)
        self.set_keymap(dict(self.options.keymap))
        self.switch_mode(self.remembered.screen or self.DEFAULT_MODE)
        self.app_resume_signal.subscribe(self, lambda _: self._redraw())
        self.start_reading()
        if self.remembered.screen == "rules":
            self._load_rules()

    def _draw_in(self, borders: str) -> None:
        self._ascii.enabled = borders == "ascii"
        self.set_class(self._ascii.enabled, "-ascii")

    def get_line_filters(self) -> list[LineFilter]:
        """Add the filter that draws in ASCII if a person chose it."""
        ascii_drawing = getattr(self, "_ascii", None)
        return [*super().get_line_filters(), *([ascii_drawing] if ascii_drawing and ascii_drawing.enabled else [])]

    def delay_update(self, delay: float = SWITCH_S) -> None:
        """Draw another page as soon as it has shown its values; Textual waits 50 ms at each change of the screen."""
        super().delay_update(min(delay, SWITCH_S))

    async def on_event(self, event: events.Event) -> None:
        """Ignore mouse moves without a pressed button, and send text to the input line that was opened before it.

        Characters that arrive together with the key that opens the line were sent to another widget: `/qwen` must not
        quit.
        """
        if isinstance(event, events.MouseMove) and not event.button and self.mouse_captured is None:
            return
        late = isinstance(event, events.Key) and event.is_forwarded and event.is_printable
        if late and isinstance(event, events.Key) and isinstance(self.focused, Input):
            self.focused.post_message(events.Key(event.key, event.character))
            return
        await super().on_event(event)

    async def action_act(self, action: str) -> None:
        """Run the action of a key, or notify why it does nothing on this page."""
        page = self.screen
        if not isinstance(page, Page):
            return
        if action == "back" and (page.close_input() or self._close_boxes(page)):
            return
        reason = self.why_not(action)
        if reason is not None:
            self.notify(reason, markup=False)
        elif action in MODES:
            await self._go(action)
        elif hasattr(self, f"_do_{action}"):
            await getattr(self, f"_do_{action}")()
        elif action in DECISIONS:
            page.decide(action)
        else:
            getattr(page, action)()

    def why_not(self, action: str) -> str | None:
        """Return the reason why an action does nothing on the topmost page now; None if it does something."""
        page = next((screen for screen in reversed(self.screen_stack) if isinstance(screen, Page)), None)
        writes = action in WRITES or (page is not None and action in page.OWN_WRITES)
        if writes and self._source.read_only is not None:
            return self._source.read_only
        if action == "suspend" and (self.is_headless or self.is_web):
            return "There is no shell to go back to: these screens run in a browser, or without a terminal."
        return (None if page is None else page.cannot(action)) or self.cannot_now(action)

    def _close_boxes(self, page: Page) -> bool:
        moments, jumps = page.query(MomentBox), page.query(JumpBox)
        closed = any([*(box.drop() for box in moments), *(box.close() for box in jumps)])
        if closed:
            page.give_back_keys()
        return closed

    # Messages of pages.

    def on_plan_page_requested(self, event: PlanPage.Requested) -> None:
        """Compose the plan with the limits and assumptions of a person."""
        self._request = event.request
        self._plan(fresh=event.fresh)

    def on_rules_page_reload(self) -> None:
        """Load the rules again."""
        self._load_rules()

    def on_switch_page_switched(self, event: SwitchPage.Switched) -> None:
        """Close the question, switch the rule in the background, and load the rules again."""
        self.pop_screen()

        def switched(_: Report) -> RuleList:
            self.report_decision(self._source.switch(event.rule_id, event.on))
            return self._source.rules()

        self._compute("rules", switched)

    def on_advice_page_opened(self, event: AdvicePage.Opened) -> None:
        """Compute the detail of a recommendation, and load the rules for the page of its rule."""
        rows = self._reading.advice.value or ()
        recommendation, values = event.recommendation, event.values
        self._compute("detail", lambda report: self._source.detail(rows, recommendation, values, report))
        if self._study.rules == Read():
            self._load_rules()

    def on_course_page_opened(self) -> None:
        """Read the history of the host or deployment of the page that was opened."""
        if not self._paused:
            self._read()

    def on_decision_page_confirmed(self, event: DecisionPage.Confirmed) -> None:
        """Close the question, and store the decision in a thread of its own."""
        self.pop_screen()
        Thread(target=self._decide, args=(event.recommendation, event.decision), name="deciding", daemon=True).start()

    def on_fleet_page_priced(self, event: FleetPage.Priced) -> None:
        """Store a price in a thread of its own."""
        Thread(target=self._set_price, args=(event.selector, event.nano_usd), name="pricing", daemon=True).start()

    @on(Rows.Arranged)
    def remember_table(self, event: Rows.Arranged) -> None:
        """Remember the hidden columns and the sort column of a table."""
        self.keep(self.remembered.with_table(event.table, event.arrangement))

    # Screens.

    async def _go(self, mode: str) -> None:
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        if self.current_mode != mode:
            await self.switch_mode(mode)
        if mode in SCREENS:
            self.keep(replace(self.remembered, screen=mode))
        if mode == "rules" and self._study.rules == Read():
            self._load_rules()
        if mode == "hours" and not self._paused:
            self._read()

    async def _do_back(self) -> None:
        if isinstance(self.screen, ListPage):
            self.screen.back()
        else:
            await self.pop_screen()

    async def _do_group(self) -> None:
        if isinstance(self.screen, FleetPage):
            self.screen.group_next()
            self._read()
        elif isinstance(self.screen, Page):
            self.screen.top()

    async def _do_columns(self) -> None:
        rows = self.screen.rows() if isinstance(self.screen, ListPage) else None
        if rows is not None:
            await self.push_screen(ColumnsPage(self.view, rows))

    async def _do_events(self) -> None:
        def sheet(view: ScreenView) -> Sheet | None:
            report = view.reading.fleet.value
            return None if report is None else notices_sheet(report)

        page = self.screen
        if isinstance(page, Page):
            await self.push_screen(SheetPage(self.view, "Events", sheet, page.part, late_s=page.late_s))

    async def _do_keys(self) -> None:
        page = self.screen
        if self._help is None:  # it stays when it is closed
            self._help = KeysPage(self.view, help_sheet(mapped(self.options.keymap)))
            self.install_screen(self._help, "keys")
        if isinstance(page, Page):
            self._help.over(page)
            await self.push_screen(self._help)

    _help: KeysPage | None = None

    async def _do_palette(self) -> None:
        self.action_command_palette()

    def _redraw(self) -> None:
        """Draw the whole screen after `fg`: the terminal no longer shows what Textual drew last."""
        for widget in (self.screen, *self.screen.walk_children()):
            widget.refresh()

    async def _do_suspend(self) -> None:
        self.action_suspend_process()

    async def _do_quit(self) -> None:
        self.exit()

    # Names.

    async def _do_jump(self) -> None:
        page = self.screen
        if not isinstance(page, Page):
            return
        boxes = page.query(JumpBox)
        if not boxes:
            await page.mount(JumpBox(self._targets), before="KeyLine")
        page.query_one(JumpBox).open()
        if self._study.rules == Read():
            self._load_rules()

    def _targets(self) -> tuple[KeyTarget, ...]:
        rules = () if self._study.rules.value is None else (rule.entry.id for rule in self._study.rules.value.rules)
        reading = self._reading
        settings = [line.name for line in self.options.settings()]
        return targets(reading.fleet.value, rules, reading.advice.value or (), settings)

    @on(JumpBox.Chosen)
    async def go_to_target(self, event: JumpBox.Chosen) -> None:
        """Open the page of the chosen name, or notify that no such name exists."""
        from pertoken.tui.pages.rules_page import RulesPage
        from pertoken.tui.pages.settings_page import SettingsPage
        from pertoken.window.course import Subject

        if isinstance(event.target, str):
            self.notify(event.target, severity="error", markup=False)
            return
        kind, name, key = event.target.kind, event.target.name, event.target.key
        if kind == "screen":
            await self._go(key)
        elif kind in ("host", "deployment"):
            await self._go("fleet")
            page = self.screen
            if isinstance(page, FleetPage):
                await self.push_screen(page.page_about(Subject(kind, int(key))))  # type: ignore[arg-type]
        elif kind == "rule":
            await self._go("rules")
            if isinstance(self.screen, RulesPage):
                await self.push_screen(self.screen.page_about(name))
        else:
            await self._go("settings")
            if isinstance(self.screen, SettingsPage):
                await self.push_screen(self.screen.page_about(name))

    # Choices.

    def choices(self) -> tuple[KeyChoice, ...]:
        """Return the choices of the settings screen with their current values."""
        borders = "ascii" if self._ascii.enabled else "unicode"
        looks = (self.theme, borders, *(("NO_COLOR",) if self.no_color else ()))
        memory = None if self.options.memory is None else str(self.options.memory)
        seconds = (self.refresh_s, self.window_s)
        return choices(looks, seconds, self.options.currency, self.options.keymap, memory)

    def on_settings_page_changed(self, event: SettingsPage.Changed) -> None:
        """Apply and remember another theme, border style, refresh time or window."""
        name, value = event.name, event.value
        if name == "theme":
            self.theme = value
            self.keep(replace(self.remembered, theme=value))
        elif name == "borders":
            self._draw_in(value)
            self.keep(replace(self.remembered, borders=value))
            self.screen.refresh(layout=True)
        elif name == "refresh":
            self.refresh_s = parse_duration_s(value)
            self.keep(replace(self.remembered, refresh_s=self.refresh_s))
            self.start_reading()
        elif self._paused:
            self.notify(with_keys(FROZEN), markup=False)
        else:
            self.choose_window(int(parse_duration_s(value)))
        self._renew()

    # Output.

    async def _do_dump(self) -> None:
        save_screen(self, self._now())

    async def _do_pager(self) -> None:
        page = self.screen
        if isinstance(page, Page):
            show_in_pager(self, page.as_text())
