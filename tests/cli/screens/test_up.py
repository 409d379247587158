"""`pertoken up`: what it does about a child that ends, and how often it advises."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from pertoken.cli.screens.up import Child, OtherAgent
from pertoken.store.connect.location import AgentLock
from tests.scenario import LOW_BATCH_70B, seed

DEADLINE_S = 60.0
SHOWN_WITHIN_S = 12.0
UP = (sys.executable, "-P", "-m", "pertoken", "up", "--interval", "1s")


class Terminal:
    """A process at a terminal of its own; `text` is all it wrote."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self.master, self.process, self.text = master, process, ""

    def until(self, condition: Callable[[], object], what: str, within_s: float = DEADLINE_S) -> None:
        """Read what it writes until the condition holds."""
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come: {self.text[-2000:]}"
            if select.select([self.master], [], [], 0.1)[0]:
                with suppress(OSError):  # it has left the terminal
                    self.text += os.read(self.master, 65_536).decode(errors="replace")

    def leave(self) -> None:
        os.write(self.master, b"q")
        self.until(lambda: self.process.poll() is not None, "its end")


@contextmanager
def terminal(folder: Path, **environment: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    given = {"PERTOKEN_AGENT_DISCOVER": "false", "PERTOKEN_AGENT_PROBES": "", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*UP, "--db", str(folder)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, **given, **environment},
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


def test_a_killed_agent_is_restarted_and_the_screen_shows_it_within_12_seconds(tmp_path: Path) -> None:
    lock = AgentLock(tmp_path / "db")
    with terminal(tmp_path / "db") as up:
        up.until(lambda: "live" in up.text, "the screens")
        first = lock.owner()
        assert first is not None
        up.text = ""
        killed_s = time.monotonic()
        os.kill(first, signal.SIGKILL)
        up.until(lambda: lock.owner() not in (None, first), "another agent", SHOWN_WITHIN_S)
        left_s = SHOWN_WITHIN_S - (time.monotonic() - killed_s)
        up.until(lambda: "The agent was killed by SIGKILL; it was started again" in up.text, "the notice", left_s)
        up.leave()
    assert lock.owner() is None


def test_it_advises_every_advisor_every_and_first_once_telemetry_is_there(tmp_path: Path) -> None:
    with terminal(tmp_path / "db", PERTOKEN_ADVISOR_EVERY="2h") as up:
        up.until(lambda: "live" in up.text, "the screens")
        commands = [child.cmdline() for child in psutil.Process(up.process.pid).children()]
        (advise,) = [command for command in commands if "advise" in command]
        assert advise[advise.index("--every") + 1] == "7200.0s"
        assert "advised" not in (tmp_path / "db" / "advise.log").read_text()
        up.leave()
    seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=6, end_ts=int(time.time()) // 60 * 60)
    with terminal(tmp_path / "db", PERTOKEN_ADVISOR_EVERY="2h") as up:
        up.until(lambda: "advised" in (tmp_path / "db" / "advise.log").read_text(), "advice")
        up.leave()


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[Child, list[float]]]:
    """A child that ends at once, and the clock it is judged by."""
    clock = [1000.0]
    child = Child("agent", "agent", ["--interval", "7s"], tmp_path / "db", lambda: clock[0])
    yield child, clock
    child.leave()
    child.wait()


def test_a_child_that_ends_again_and_again_is_started_after_longer_and_longer_pauses(
    failing: tuple[Child, list[float]],
) -> None:
    child, clock = failing
    pauses = []
    for _ in range(8):
        child._process.wait(DEADLINE_S)
        child.poll()
        pid, ended_s = child.pid, clock[0]
        assert "ended with exit status 2: pertoken: --interval" in str(child.notice())
        while child.pid == pid:
            clock[0] += 0.5
            child.poll()
        pauses.append(clock[0] - ended_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_child_that_ran_for_a_minute_since_is_no_news_and_starts_at_once_the_next_time(
    failing: tuple[Child, list[float]],
) -> None:
    child, clock = failing
    child._process.wait(DEADLINE_S)
    child.poll()
    clock[0] += 1
    child.poll()
    assert "it was started again" in str(child.notice())
    clock[0] += 60
    assert child.notice() is None
    child._process.wait(DEADLINE_S)
    child.poll()
    clock[0] += 1
    pid = child.pid
    child.poll()
    assert child.pid != pid


def test_an_agent_started_elsewhere_that_ends_is_shown_and_not_restarted() -> None:
    owner: list[int | None] = [7]
    other = OtherAgent(lambda: owner[0], 7)
    other.poll()
    assert other.notice() is None
    owner[0] = None
    other.poll()
    assert "agent (pid 7) has ended: nothing is recorded" in str(other.notice())
    owner[0] = 8
    other.poll()
    assert other.notice() is None
