"""Driver that draws the screens on standard output, and what happens when the terminal is gone."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver

from pertoken.tui.app import PertokenApp
from pertoken.tui.reader_app import Output, TerminalDriver, hung_up, on_standard_output
from tests.tui.reports import FixedSource
from tests.values import new_store

DEADLINE_S = 60.0


async def test_screens_are_drawn_on_standard_output_so_that_messages_can_go_elsewhere() -> None:
    app = PertokenApp(FixedSource())
    assert app.driver_class is TerminalDriver
    assert TerminalDriver(app)._file.file is sys.__stdout__  # type: ignore[union-attr]


def test_output_after_the_terminal_is_gone_is_dropped() -> None:
    window, terminal = pty.openpty()
    file = os.fdopen(terminal, "w")
    output = Output(file)
    output.write("seen")
    output.flush()
    assert os.read(window, 16) == b"seen" and output.fileno() == terminal
    os.close(window)
    for _ in range(100):  # more than Textual's thread keeps
        output.write("lost")
        output.flush()
    with pytest.raises(OSError, match="Input/output error"):
        file.close()


def test_another_driver_such_as_that_of_a_browser_is_left_alone() -> None:
    assert on_standard_output(HeadlessDriver) is HeadlessDriver
    assert on_standard_output(LinuxDriver) is TerminalDriver


async def test_a_terminal_is_gone_once_its_window_is_closed() -> None:
    window, terminal = pty.openpty()
    assert not hung_up(terminal)
    os.close(window)
    assert hung_up(terminal)
    os.close(terminal)
    assert hung_up(terminal)


def test_screens_end_with_their_terminal_although_no_signal_ends_them(tmp_path: Path) -> None:
    new_store(tmp_path)
    window, terminal = pty.openpty()
    # A session without a controlling terminal gets no SIGHUP, as under `nohup`.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pertoken", "top", "--db", str(tmp_path)],
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path)},
        start_new_session=True,
    )
    os.close(terminal)
    try:
        shown, deadline = b"", time.monotonic() + DEADLINE_S
        while b"\x1b[?1049h" not in shown:  # the alternate screen
            assert time.monotonic() < deadline and process.poll() is None, shown
            if select.select([window], [], [], 1.0)[0]:
                shown += os.read(window, 65536)
        os.close(window)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
