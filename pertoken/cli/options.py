"""Options that several commands share, and the progress that they show: one line, redrawn by a thread."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from pertoken.config import FILE_NAME, SERVICE_FOLDER, SERVICE_SETTINGS, Settings, default_file, load
from pertoken.errors import BadInput, StoreError
from pertoken.printable import literal, literal_lines
from pertoken.settings.owners import LABEL, is_basis
from pertoken.text.amounts import beside, show_headline, show_in, show_of
from pertoken.units import format_duration, parse_duration_s, parse_time

if TYPE_CHECKING:
    from pathlib import Path

    from pertoken.reports.gates import Gate
    from pertoken.settings.alerts import FigureLimit
    from pertoken.store.connect.location import StoreLocation
    from pertoken.store.connect.open import Store


Command = Callable[..., object]


class GroupingType(click.Choice[str]):
    """One of the groupings, or `label:` with the name of a pod label."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the grouping. Raises UsageError."""
        return value if value.startswith(LABEL) and is_basis(value) else super().convert(value, param, ctx)


def config_option(command: Command) -> Command:
    """`--config FILE`."""
    text = "Settings file [default: the platform's]."
    return click.option("--config", "config_file", metavar="FILE", help=text)(command)


@dataclass(frozen=True, slots=True)
class Database:
    """The database and the settings file that a command names."""

    config_file: str | None
    db: str | None

    def settings(self, **options: object) -> Settings:
        """Return the settings with these options; those beside the database where no file is named. Raises BadInput."""
        return settings_of(self.config_file or _file_beside(self.db), db=self.db, **options)

    def located(self, **options: object) -> tuple[Settings, StoreLocation]:
        """Return the settings, and the location of the database. Raises BadInput."""
        from pertoken.store.connect.location import locate

        settings = self.settings(**options)
        return settings, locate(settings.db, settings.advice)

    def opened(self, moment: AsOf | None = None, **options: object) -> tuple[Settings, Store]:
        """Return the settings, and the database for reading. Raises StoreError; BadInput for an unrecorded moment."""
        from pertoken.store.connect.open import open_store

        settings, where = self.located(**options)
        store = open_store(where)
        if moment is not None:
            check_recorded(moment, store)
        return settings, store


def db_option(command: Command) -> Command:
    """`--db DIR|URL` with `--config`, which the command takes together as `database`."""

    def note_file(context: click.Context, option: click.Parameter, file: str | None) -> None:
        context.meta["config_file"] = file  # it is read first, and is no parameter of the command

    config = click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=note_file,
        help="Settings file [default: pertoken.toml beside the database, else the platform's].",
    )
    return click.option(
        "--db",
        "database",
        metavar="DIR|URL",
        callback=lambda context, option, db: Database(context.meta["config_file"], db),
        help="Database: a folder, or a postgresql:// URL [default: the service's folder, else your own].",
    )(config(command))


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def engine_option(command: Command) -> Command:
    """`--engine NAME`."""
    text = "What answers over a lake: duckdb, or spark://HOST:PORT (needs the extra `spark`). [default: duckdb]"
    return click.option("--engine", metavar="NAME", help=text)(command)


def at_option(command: Command) -> Command:
    """`--at TIME`, which the command takes as `moment`."""
    return click.option(
        "--at",
        "moment",
        metavar="TIME",
        callback=lambda context, option, text: as_of(text),
        help="Compute everything as of this whole minute: 2026-11-21T10:00Z, 2026-11-21, or -3h. [default: now]",
    )(command)


@dataclass(frozen=True, slots=True)
class AsOf:
    """The instant that figures refer to."""

    ts: int
    dated: bool
    """Whether `--at` gave it: then it is a whole minute, and everything recorded later is left out."""


def as_of(text: str | None = None) -> AsOf:
    """Return the instant of `--at`, or now. Raises BadInput for an invalid or future time."""
    now_s = time.time()
    if text is None:
        return AsOf(int(now_s), dated=False)
    try:
        ts = parse_time(text, now_s)
    except ValueError as error:
        raise BadInput(f"--at: {error}") from None
    if ts > now_s:
        raise BadInput(f"--at {text}: lies in the future; it is {_utc(int(now_s))} now")
    show_of(ts)
    return AsOf(ts // 60 * 60, dated=True)


def seconds_of(option: str, text: str) -> float:
    """Return the duration that an option states. Raises BadInput."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise BadInput(f"{option}: {error}") from None


def check_recorded(moment: AsOf, store: Store) -> None:
    """Raise BadInput if `--at` lies before anything was recorded."""
    from pertoken.window.reading import first_recorded

    if not moment.dated:
        return
    first = first_recorded(store)
    if first is None or moment.ts <= first:
        since = "the database is empty" if first is None else f"the first row is of {_utc(first)}"
        raise BadInput(f"--at {_utc(moment.ts)}: nothing was recorded before then; {since}")


def report_faults(moment: AsOf, store: Store, seconds: int) -> None:
    """Print to standard error which hosts have values in the last `seconds` that no figure uses as they came."""
    from pertoken.window.reading import faults_of_hosts

    for sentence in faults_of_hosts(store, moment.ts - seconds, moment.ts, dated=moment.dated):
        echo(f"pertoken: {sentence}", err=True)


def _utc(ts: int) -> str:
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parent_option(command: Command) -> Command:
    """`--with-parent`, hidden: end when standard input closes, which it does however the parent ends."""
    return click.option("--with-parent", is_flag=True, hidden=True)(command)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text with control characters escaped, since it holds names that others chose. JSON stays valid JSON."""
    # JSON escapes every control character but DEL, and has no \\x7f.
    lines = literal_lines(str(text).replace("\x7f", "\\u007f"))
    click.echo("\n".join(lines), err=err, nl=nl)


def echo_json(values: object) -> None:
    """Print values as JSON, with amounts in US dollars and, beside them, in the currency of the settings."""
    import json  # the agent, which prints none, starts without it

    echo(json.dumps(beside(values), indent=2))


def has_person() -> bool:
    """Return whether there is a person to ask."""
    return sys.stdin.isatty()


def confirm(question: str, unasked: str, declined: str) -> None:
    """Ask a person. Raises BadInput: `unasked` without a terminal, `declined` after a no."""
    if not has_person():
        raise BadInput(unasked)
    if not click.confirm(question):
        raise BadInput(declined)


def write_file(file: Path, text: str) -> None:
    """Write a file. Raises StoreError."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file}: cannot be written: {error.strerror}") from None


def text_width() -> int | None:
    """Return the cells that a table may take; None where output goes to a file or a pipe, so that nothing is cut."""
    from pertoken.text.summary import WIDTH

    return WIDTH if sys.stdout.isatty() else None


def terminal_width() -> int | None:
    """Return the cells of the terminal; None where output goes to a file or a pipe, so that nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def settings_of(config_file: str | None, **options: object) -> Settings:
    """Return settings of file, environment and these options; show amounts in their currency. Raises BadInput."""
    settings = load(config_file, os.environ, **options)
    show_in(settings.currency)
    show_headline(settings.headline)
    return settings


def _file_beside(db: str | None) -> str | None:
    """Report and return the settings file beside a database, or of the services; None if none is there or one is named.

    It can name programs and rules to run, so that one of another user is not read.
    """
    from pertoken.store.connect.location import locate

    db = db or os.environ.get("PERTOKEN_DB")
    if os.environ.get("PERTOKEN_CONFIG") or (db is None and default_file().is_file()):
        return None
    folder = locate(db).folder
    if folder is None:
        return None
    of_service = folder == SERVICE_FOLDER
    file, origin = (SERVICE_SETTINGS, "of the services") if of_service else (folder / FILE_NAME, "beside the database")
    try:
        owner = file.stat().st_uid
    except OSError:  # there is none; a folder that cannot be read is reported by who opens the database
        return None
    if owner not in (0, os.geteuid()):
        echo(f"pertoken: {file}, {origin}, is of another user and not read; --config reads it", err=True)
        return None
    echo(f"pertoken: settings of {file}, {origin}", err=True)
    return str(file)


@contextmanager
def recording_in(folder: Path | None) -> Iterator[None]:
    """Keep agents off a folder (None: a server) meanwhile: its telemetry has one writer. Raises StoreError."""
    from pertoken.store.connect.location import AgentLock

    if folder is None:
        yield
        return
    lock = AgentLock(folder)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def warn_of_other_settings(where: StoreLocation, settings: Settings) -> str | None:
    """Report on stderr that stored advice is of other settings than those in use; return that line, None if not so."""
    from pertoken.advisor.configuration import configuration_of, difference, stored_configuration

    changed = difference(stored_configuration(where), configuration_of(settings))
    if changed is not None:
        echo(f"pertoken: {changed}", err=True)
    return changed


def fail_on_option(command: Command) -> Command:
    """`--fail-on EXPR`."""
    return click.option(
        "--fail-on",
        "fail_on",
        metavar="EXPR",
        multiple=True,
        callback=_gates,
        help="Exit with 1 if this is true, such as 'usd_per_mtok[service=chat] > 2.5' (repeatable; docs/alerts.md).",
    )(command)


def _gates(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[FigureLimit, ...]:
    if not texts:
        return ()
    from pertoken.reports.gates import read_gates

    return read_gates(texts)


def judged(
    fail_on: Sequence[FigureLimit], store: Store, settings: Settings, window_s: int, moment: AsOf
) -> tuple[Gate, ...]:
    """Return the gates over the last `window_s` seconds; print those not kept to standard error. Raises StoreError."""
    if not fail_on:
        return ()
    from pertoken.reports.gates import Figures, judge

    figures = Figures(store, settings, window_s, moment.ts, dated=moment.dated)
    gates = judge(fail_on, figures)
    for gate in gates:
        if gate.status != "kept":
            echo(f"pertoken: {gate.line}", err=True)
    return gates


def leave(gates: Sequence[Gate]) -> None:
    """End with the exit status of the gates: 0 kept, 1 broken, 3 not measurable."""
    from pertoken.reports.gates import exit_status

    if gates and (status := exit_status(gates)):
        raise click.exceptions.Exit(status)


SHOWN_AFTER_S = 1.0
REDRAWN_EVERY_S = 0.5
"""The line also moves during one long statement, so that the program does not seem to hang."""
_TURNS = "|/-\\"
_BAR_WIDTH = 24


def _on_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress_bar(label: str, length: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on standard error for `length` steps; yield a function that sets its phase and the steps done.

    The phase is cut to the terminal's width: a wider line would be wrapped, and each redraw would begin another one.
    """
    room = shutil.get_terminal_size().columns - len(f"{label}  [{'#' * _BAR_WIDTH}]  100%  ") - 1
    phases: tuple[str, ...] = ()  # it iterates over none: `show` moves it
    with click.progressbar(
        phases,
        length=length,
        label=label,
        width=_BAR_WIDTH,
        file=sys.stderr,
        hidden=not _on_terminal(),
        item_show_func=lambda phase: literal(str(phase or ""))[: max(0, room)],
        show_eta=False,
    ) as bar:

        def show(phase: str, done: int) -> None:
            bar.pos = max(bar.pos, min(length, done))  # it never moves back
            bar.current_item = phase
            bar.render_progress()

        yield show


class Progress:
    """`| Exporting device_sample: 12,000 of 40,000 (30%), 4s`, after a second and while it is entered.

    Prints nothing where standard error is not a terminal. Call `clear` before printing anything else.
    """

    def __init__(self, phase: str, total: int | None = None) -> None:
        self._phase, self._total, self._done = phase, total, 0
        self._started_s = time.monotonic()
        self._turn = self._width = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def phase(self, name: str, total: int | None = None) -> None:
        """Begin another phase, of `total` steps if their number is known."""
        with self._lock:
            self._phase, self._total, self._done = name, total, 0

    def advance(self, n: int = 1) -> None:
        """Count steps of the phase."""
        with self._lock:
            self._done += n

    def clear(self) -> None:
        """Remove the line until it is redrawn."""
        with self._lock:
            self._clear()

    def __enter__(self) -> Self:
        """Begin to show it if standard error is a terminal."""
        self._stream = sys.stderr
        if _on_terminal():
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Remove the line."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self.clear()

    def _run(self) -> None:
        self._stop.wait(SHOWN_AFTER_S)
        while not self._stop.is_set():
            with self._lock:
                self._draw()
            self._stop.wait(REDRAWN_EVERY_S)

    def _draw(self) -> None:
        self._turn += 1
        line = f"{_TURNS[self._turn % len(_TURNS)]} {self._phase}{self._counted()}, "
        line += format_duration(time.monotonic() - self._started_s)
        line = literal(line)[: shutil.get_terminal_size().columns - 1]
        self._clear()
        self._stream.write(line)
        self._stream.flush()
        self._width = len(line)

    def _counted(self) -> str:
        if self._total:
            return (
                f": {min(self._done, self._total):,} of {self._total:,} ({min(100, 100 * self._done // self._total)}%)"
            )
        return f": {self._done:,}" if self._done else ""

    def _clear(self) -> None:
        if self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._stream.flush()
            self._width = 0
