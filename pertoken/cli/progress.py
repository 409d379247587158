"""Progress of work that may take seconds: one line on the terminal, redrawn by a thread, with the phase."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from pertoken.printable import literal
from pertoken.units import format_duration

SHOWN_AFTER_S = 1.0
REDRAWN_EVERY_S = 0.5
"""The line also moves during one long statement, so that the program does not seem to hang."""
_TURNS = "|/-\\"
_BAR_WIDTH = 24


def _on_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


@contextmanager
def progress_bar(label: str, length: int) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on standard error for `length` steps; yield a function that sets its phase and the steps done.

    The phase is cut to the terminal's width: a wider line would be wrapped, and each redraw would begin another one.
    """
    import click

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
