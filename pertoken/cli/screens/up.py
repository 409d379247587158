"""`pertoken up`: agent, advisor and screens for one person at a terminal."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from pertoken.cli.options import Database, db_option, echo, text_width
from pertoken.errors import BadInput, PertokenError, StoreError
from pertoken.text import amounts
from pertoken.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from pertoken.agent.doctor import Finding
    from pertoken.config import Settings
    from pertoken.costs.report.lines import FleetReport
    from pertoken.proof.detection import ChangeWatch
    from pertoken.state.service import Slo
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.options import Options
    from pertoken.tui.store_source import StoreSource


FIRST_FIGURE_S = 30.0
"""Longest wait of a plain summary for the first figures."""


@click.command(short_help="Measure, advise and show it all, in one command.")
@db_option
@click.option("--interval", "agent_interval", metavar="TIME", help="Time between ticks, e.g. 1s or 10s [default: 10s].")
@click.option(
    "--engine", "agent_engines", metavar="URL", multiple=True, help="Base URL of an inference server (repeatable)."
)
def up(database: Database, agent_interval: str | None, agent_engines: tuple[str, ...]) -> None:
    """Start the agent and the advisor, show the screens, and stop both when you leave.

    If an agent already records on this host, its data is shown and no other is started. An agent that `up` started is
    restarted if it ends, and the screens show that. Rules run every advisor.every, for the first time once five minutes
    are recorded. Without a terminal a plain summary is printed instead."""
    from pertoken.advisor.configuration import check, configuration_of
    from pertoken.store.connect.location import AgentLock
    from pertoken.tui.store_source import StoreSource

    settings, where = database.located(agent_interval=agent_interval, agent_engines=list(agent_engines) or None)
    if where.folder is None:
        raise BadInput("`up` records on this host, so --db must be a folder; `pertoken top --db URL` shows a server")
    check(where, configuration_of(settings))
    terminal = sys.stdout.isatty() and sys.stdin.isatty()
    options_of_screens = screen_options(where, settings) if terminal else None
    lock = AgentLock(where.folder)
    running = lock.owner()
    common = ["--config", database.config_file] if database.config_file else []
    children: list[Child] = []
    watch: ProcessWatch | None = None
    try:
        watched: list[Watched] = []
        if running is None:
            options = ["--db", str(where.folder), *common]
            options += ["--interval", f"{settings.agent_interval}s"]
            options += [part for url in agent_engines for part in ("--engine", url)]
            children.append(Child("agent", "agent", options, where.folder))
            _await_database(where, children[0])
        else:
            echo(f"An agent (pid {running}) already records in {where}; showing what it sees.", err=True)
            watched.append(OtherAgent(lock.owner, running))
        options = ["--db", str(where.folder), "--every", f"{settings.advisor_every}s", *common]
        children.append(Child("advisor", "advise", options, where.folder))
        watch = ProcessWatch(*watched, *children)
        source = screen_source(where, settings) if terminal else StoreSource(where, settings=settings)
        if terminal:
            from pertoken.tui.app import PertokenApp

            PertokenApp(source, notice=watch.notice, options=options_of_screens).run()
            amounts.reset()  # the screens showed the exchange rate
        else:
            echo("No terminal: a plain summary instead of the screens.\n")
            _await_figures(lambda: StoreSource(where, settings=settings).fleet(3600))  # each keeps its reading
            echo(plain(source, hour_rate=settings.advisor_hour_rate))
            if notice := watch.notice():
                echo(notice, err=True)
    finally:
        if watch:
            watch.close()
        for child in children:
            child.leave()
        for child in children:
            child.wait()


def plain(source: StoreSource, no_advice: str | None = None, hour_rate: float | None = None) -> str:
    """Return the content of the screens as plain text; `no_advice` and `hour_rate` as in `summary`."""
    from pertoken.text.advice_table import HOUR_RATE
    from pertoken.text.summary import summary

    report, advice = source.fleet(3600), source.advice()
    reason = no_advice or (None if advice else source.no_advice())
    return summary(report, advice, text_width(), reason, hour_rate=hour_rate or HOUR_RATE)


def _await_database(where: StoreLocation, agent: Child) -> None:
    """Wait until the agent has made its tables. Raises PertokenError if it ends instead, with its last line."""
    from pertoken.store.connect.open import open_store

    echo(f"Starting the agent; it records in {where} (log: {agent.log}) ...", err=True)
    deadline = time.monotonic() + FIRST_FIGURE_S
    while time.monotonic() < deadline:
        if why := agent.end():
            raise PertokenError(f"the agent {why}")
        try:
            open_store(where)
        except StoreError:
            time.sleep(0.1)
        else:
            return
    raise PertokenError(f"the agent did not make its tables within {FIRST_FIGURE_S:.0f} s; see {agent.log}")


def _await_figures(read: Callable[[], FleetReport]) -> None:
    """Wait for the first stored tick and, with an engine, for tokens per second, up to `FIRST_FIGURE_S`."""
    deadline = time.monotonic() + FIRST_FIGURE_S
    while time.monotonic() < deadline:
        try:
            report = read()
        except StoreError:
            report = None
        if report and any(host.cpu_util is not None for host in report.hosts):
            readable = [line for line in report.deployments if not line.fault]
            if all(line.generated_tok_s_now is not None for line in readable):
                return
        time.sleep(0.2)


MAX_PAUSE_S = 60.0
SETTLED_S = 60.0
"""After running this long, a child is next restarted with the shortest pause, and its last end is no longer shown."""
STOP_S = 30.0
"""How long a child may take to store its last tick and end."""
_POLL_S = 0.25


class Watched(Protocol):
    """A process that may end while the screens are open."""

    def poll(self) -> None:
        """Check whether it ended, and restart it if it is our child."""

    def notice(self) -> str | None:
        """Return a line about its end for the screens; None while it runs."""


class Child:
    """A `pertoken COMMAND` that ends when this process does (its standard input ends), with its log in a file."""

    def __init__(
        self, name: str, command: str, options: list[str], folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.log = name, folder / f"{command}.log"
        self._arguments = [sys.executable, "-P", "-m", "pertoken", command, *options, "--with-parent"]
        self._clock = clock
        self._ends = 0
        """Consecutive ends, each sooner than `SETTLED_S` after its start."""
        self._ended_s: float | None = None
        self._why = ""
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._process = self._start()

    @property
    def pid(self) -> int:
        """Id of the running process, or of the last one."""
        return self._process.pid

    def end(self) -> str | None:
        """Return how it ended as text; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return f"ended with exit status {status}: {lines[-1] if lines else 'its log is empty'}"

    def poll(self) -> None:
        """Start it again if it ended: after 1 s, then twice as long each time."""
        now_s = self._clock()
        why = self.end()
        if why is None:
            return
        if self._ended_s is None or self._ended_s < self._started_s:
            self._ends = 1 if now_s - self._started_s >= SETTLED_S else self._ends + 1
            self._ended_s, self._why = now_s, why
            self.leave()
        if now_s - self._ended_s >= self._pause_s:
            self._process = self._start()

    def notice(self) -> str | None:
        """Return how it ended and when it is or was restarted; None once it has run for `SETTLED_S` again."""
        if self._ended_s is None:
            return None
        now_s = self._clock()
        if self._started_s >= self._ended_s:
            if now_s - self._started_s >= SETTLED_S:
                return None
            ago = format_duration(now_s - self._ended_s)
            return f"The {self.name} {self._why}; it was started again ({ago} ago)."
        pause_s = max(0.0, self._pause_s - (now_s - self._ended_s))
        return f"The {self.name} {self._why}; it starts again in {format_duration(pause_s)}."

    def leave(self) -> None:
        """Make it end by closing its standard input."""
        if self._process.stdin:
            self._process.stdin.close()

    def wait(self) -> None:
        """Wait for its end after `leave`. Raises PertokenError if it does not end."""
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise PertokenError(
                f"the {self.name} (pid {self.pid}) did not end within {STOP_S:.0f} s: look at {self.log}, "
                f"and end it with `kill {self.pid}`"
            ) from None

    @property
    def _pause_s(self) -> float:
        return min(MAX_PAUSE_S, 2.0 ** (self._ends - 1))

    def _start(self) -> subprocess.Popen[bytes]:
        self._started_s = self._clock()
        with self.log.open("ab") as log:
            # -P: never import a module from the working directory.
            return subprocess.Popen(
                self._arguments,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # ctrl+c goes to the screens; children end with their standard input
            )


class OtherAgent:
    """An agent that another user or program started: it is watched, and not restarted."""

    def __init__(self, owner: Callable[[], int | None], pid: int) -> None:
        self._owner, self._pid = owner, pid
        self._ended = False

    def poll(self) -> None:
        """Check whether an agent records."""
        pid = self._owner()
        self._ended, self._pid = pid is None, pid or self._pid

    def notice(self) -> str | None:
        """Return a line if it ended; None while an agent records."""
        if not self._ended:
            return None
        return (
            f"The agent (pid {self._pid}) has ended: nothing is recorded. Start it again, or leave and `pertoken up`."
        )


class ProcessWatch:
    """Thread that polls processes until it is closed."""

    def __init__(self, *watched: Watched) -> None:
        self._watched = watched
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="children", daemon=True)
        self._thread.start()

    def notice(self) -> str | None:
        """Return the first notice of any process."""
        return next((notice for process in self._watched if (notice := process.notice())), None)

    def close(self) -> None:
        """Stop polling; nothing is restarted afterwards."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_POLL_S):
            for process in self._watched:
                process.poll()


def screen_options(where: StoreLocation, settings: Settings) -> Options:
    """Return the options of the screens; with a database of this host the doctor can explain missing figures.

    Raises BadInput if two actions have the same key.
    """
    from pertoken.tui.options import options_of

    def diagnose() -> tuple[Finding, ...]:
        from pertoken.agent.doctor import examine

        return examine(settings)

    return options_of(settings, diagnose if where.folder is not None else None, str(where))


READ_ONLY = "These screens are read-only: decide at a terminal with `pertoken top`, or serve them with --web-writes."


def screen_source(where: StoreLocation, settings: Settings, *, read_only: bool = False) -> StoreSource:
    """Return the source of the screens, which also detects changes and judges those that are due.

    With `read_only` it stores nothing.
    """
    from pertoken.tui.store_source import StoreSource

    def watch() -> ChangeWatch:
        from pertoken.proof.detection import ChangeWatch

        return ChangeWatch(where, settings)

    def slo(model: str) -> Slo:
        from pertoken.costs.fleet import objectives

        return objectives(model, settings)

    teams = {tenant.name: tenant.team for tenant in settings.tenants}
    return StoreSource(
        where,
        watch=None if read_only else watch,
        settings=settings,
        teams=teams,
        objectives=slo,
        read_only=READ_ONLY if read_only else None,
    )
