"""`pertoken up`: agent, advisor and screens for one person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, settings_of, text_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from pertoken.cli.screens.children import Child
    from pertoken.costs.report.lines import FleetReport
    from pertoken.store.connect.location import StoreLocation
    from pertoken.tui.source import Source

FIRST_FIGURE_S = 30.0
"""Longest wait of a plain summary for the first figures."""


@click.command(short_help="Measure, advise and show it all, in one command.")
@db_option
@click.option("--interval", "agent_interval", metavar="TIME", help="Time between ticks, e.g. 1s or 10s [default: 10s].")
@click.option(
    "--engine", "agent_engines", metavar="URL", multiple=True, help="Base URL of an inference server (repeatable)."
)
def up(config_file: str | None, db: str | None, agent_interval: str | None, agent_engines: tuple[str, ...]) -> None:
    """Start the agent and the advisor, show the screens, and stop both when you leave.

    If an agent already records on this host, its data is shown and no other is started. An agent that `up` started is
    restarted if it ends, and the screens show that. Rules run every advisor.every, for the first time once five minutes
    are recorded. Without a terminal a plain summary is printed instead."""
    import sys

    from pertoken.advisor.configuration import check, configuration_of
    from pertoken.cli.screens.children import Child, OtherAgent, Watch, Watched
    from pertoken.cli.screens.source import screen_options, screen_source
    from pertoken.errors import BadInput
    from pertoken.store.connect.location import AgentLock, locate
    from pertoken.tui.store_source import StoreSource

    settings = settings_of(config_file, db=db, agent_interval=agent_interval, agent_engines=list(agent_engines) or None)
    where = locate(settings.db, settings.advice)
    if where.folder is None:
        raise BadInput("`up` records on this host, so --db must be a folder; `pertoken top --db URL` shows a server")
    check(where, configuration_of(settings))
    terminal = sys.stdout.isatty() and sys.stdin.isatty()
    options_of_screens = screen_options(where, settings) if terminal else None
    lock = AgentLock(where.folder)
    running = lock.owner()
    common = ["--config", config_file] if config_file else []
    children: list[Child] = []
    watch: Watch | None = None
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
        watch = Watch(*watched, *children)
        source = screen_source(where, settings) if terminal else StoreSource(where, settings=settings)
        if terminal:
            from pertoken.text import amounts
            from pertoken.tui.app import PertokenApp

            PertokenApp(source, notice=watch.notice, options=options_of_screens).run()
            amounts.reset()  # the screens showed the exchange rate
        else:
            echo("No terminal: a plain summary instead of the screens.\n")
            _await_figures(lambda: StoreSource(where, settings=settings).fleet(3600))  # each keeps what it read
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


def plain(source: Source, no_advice: str | None = None, hour_rate: float | None = None) -> str:
    """Return the content of the screens as plain text; `no_advice` and `hour_rate` as in `summary`."""
    from pertoken.text.advice.folds import HOUR_RATE
    from pertoken.text.summary import summary

    report, advice = source.fleet(3600), source.advice()
    reason = no_advice or (None if advice else source.no_advice())
    return summary(report, advice, text_width(), reason, hour_rate=hour_rate or HOUR_RATE)


def _await_database(where: StoreLocation, agent: Child) -> None:
    """Wait until the agent has made its tables. Raises PertokenError if it ends instead, with its last line."""
    import time

    from pertoken.errors import PertokenError, StoreError
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
    import time

    from pertoken.errors import StoreError

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
