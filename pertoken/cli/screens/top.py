"""`pertoken top`: the screens alone, over any pertoken database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import click

from pertoken.cli.lake import DUCKDB, is_lake, show_lake
from pertoken.cli.options import (
    AsOf,
    Database,
    at_option,
    db_option,
    echo,
    echo_json,
    engine_option,
    json_option,
    settings_of,
    text_width,
    warn_of_other_settings,
)
from pertoken.errors import BadInput
from pertoken.text import amounts

if TYPE_CHECKING:
    from pertoken.store.connect.location import StoreLocation
    from pertoken.text.study import ShownPlan
    from pertoken.tui.store_source import StoreSource


SCREENS = ("fleet", "savings", "plan", "rules", "hours")
WINDOW_S = 3600


def values(source: StoreSource, screens: Sequence[str]) -> dict[str, object]:
    """Return the content of screens by name, as JSON values. Raises PertokenError."""
    return {name: _VALUES[name](source) for name in screens}


def text(source: StoreSource, screen: str, width: int | None, hour_rate: float) -> str:
    """Return the content of a screen as text; tables have at most `width` cells, None for any. Raises PertokenError."""
    if screen == "plan":
        from pertoken.text.plan import plan_text

        shown = _plan(source)
        return plan_text(shown.plan, shown.window_s)
    if screen == "rules":
        return "\n\n".join(rule.page.strip() for rule in source.rules().rules) + "\n"
    if screen == "hours":
        from pertoken.text.summary import hours_summary

        return hours_summary(source.hours(), width)
    from pertoken.text.summary import advice_summary, fleet_summary

    report = source.fleet(WINDOW_S)
    if screen == "fleet":
        return fleet_summary(report, width)
    advice = source.advice()
    return advice_summary(report, advice, width, hour_rate=hour_rate, no_advice=None if advice else source.no_advice())


def _savings(source: StoreSource) -> dict[str, object]:
    from pertoken.cli.advise import all_values

    return {"recommendations": all_values(source.advice()), "banked": asdict(source.banked())}


def _plan_values(source: StoreSource) -> dict[str, object]:
    from pertoken.text.export import plan_values

    shown = _plan(source)
    return plan_values(shown.plan, shown.window_s)


def _rules(source: StoreSource) -> list[dict[str, object]]:
    records = source.records()
    rows = []
    for rule in source.rules().rules:
        record = records.get(rule.entry.id)
        rows.append({**asdict(rule.entry), "page": rule.page, "record": None if record is None else asdict(record)})
    return rows


def _hours(source: StoreSource) -> list[dict[str, object]]:
    from pertoken.cli.costs import hour_lines

    return list(hour_lines(source.hours(), "model"))


def _plan(source: StoreSource) -> ShownPlan:
    from pertoken.window.figures import no_progress

    return source.plan(source.advice(), None, no_progress)


_VALUES: dict[str, Callable[[StoreSource], object]] = {
    "fleet": lambda source: asdict(source.fleet(WINDOW_S).whole()),
    "savings": _savings,
    "plan": _plan_values,
    "rules": _rules,
    "hours": _hours,
}


@click.command(short_help="Show the screens over any pertoken database.")
@db_option
@click.option(
    "--web",
    "web_port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    help="Serve the screens to browsers of this host on this port of 127.0.0.1 (needs pertoken[web]).",
)
@click.option(
    "--web-host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="Address that --web listens on: everyone who reaches it sees everything, without a password.",
)
@click.option(
    "--web-writes",
    is_flag=True,
    help="Let browsers decide on advice, switch rules and write files on this host, in your name.",
)
@click.option("--read-only", is_flag=True, help="Refuse decisions, switches of rules, and files.")
@click.option("--once", is_flag=True, help="Print the content of the screens as text and end.")
@click.option(
    "--screen",
    type=click.Choice(SCREENS),
    help="With --once or --json: print only this screen. Otherwise --once prints fleet and savings, --json all.",
)
@engine_option
@json_option
@at_option
def top(
    database: Database,
    web_port: int | None,
    web_host: str,
    web_writes: bool,
    read_only: bool,
    once: bool,
    screen: str | None,
    as_json: bool,
    moment: AsOf,
    engine: str | None,
) -> None:
    """Show the screens over a recorded database. Telemetry is never changed.

    With --web the screens are read-only and reachable from this host only, unless --web-writes and --web-host are
    given.

    With --db lake:URL the screens are over all databases of a lake (docs/lake.md), and read-only.

    --once --at TIME prints the screens as of that time. Advice that has changed since is left out, because its earlier
    state is not stored: `pertoken advise --at TIME` computes it.
    """
    from pertoken.tui.store_source import StoreSource

    if screen is not None and not (once or as_json):
        raise BadInput("--screen needs --once or --json; in the screens a key switches between them")
    once = once or as_json
    if moment.dated and not once:
        raise BadInput("--at needs --once: the screens show the present")
    if once and web_port is not None:
        raise BadInput("--once prints text, and --web serves screens: give one of them")
    if web_port is None and (web_writes or web_host != "127.0.0.1"):
        raise BadInput("--web-host and --web-writes are for --web: give the port, too")
    if is_lake(database.db):
        if web_port is not None or screen is not None:
            raise BadInput("of a lake there are the tables of --once and --json, and screens in a terminal")
        budget_usd = settings_of(database.config_file).budget_usd_per_month
        return show_lake(str(database.db), moment, engine or DUCKDB, budget_usd, once=once, as_json=as_json)
    # A wrong --db or --at is reported here, in one line, before the screen is taken.
    settings, store = database.opened(moment)
    where = store.location
    if web_port is not None:
        _serve(where, database, web_port, web_host, writes=web_writes and not read_only)
        return
    other_settings = warn_of_other_settings(where, settings)
    # The web server runs this command with a driver of its own and no terminal.
    if once or (not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ):
        from pertoken.cli.screens.up import plain

        source = StoreSource(where, as_of=moment.ts if moment.dated else None, settings=settings)
        if as_json:
            echo_json(values(source, SCREENS if screen is None else (screen,)))
            return
        if screen is not None:
            echo(text(source, screen, text_width(), settings.advisor_hour_rate), nl=False)
            return
        computed = "No proposal has stood unchanged since then; `pertoken advise --at TIME` computes those of a time."
        echo(plain(source, computed if moment.dated else None, settings.advisor_hour_rate))
        return
    from pertoken.cli.screens.up import screen_options, screen_source
    from pertoken.tui.app import PertokenApp

    PertokenApp(
        screen_source(where, settings, read_only=read_only),
        notice=lambda: other_settings,
        options=screen_options(where, settings),
    ).run()
    amounts.reset()  # the screens showed the exchange rate


def _serve(where: StoreLocation, database: Database, port: int, host: str, *, writes: bool) -> None:
    import shlex
    import socket

    try:
        from pertoken.cli.screens.web import ScreenServer
    except ModuleNotFoundError:
        from pertoken.installed import install_command

        raise BadInput(f"--web needs textual-serve: {install_command('web')}") from None
    try:
        if IPv4Address(host).is_unspecified:
            raise BadInput(f"--web-host {host}: name one address of this host; browsers are asked for it")
        socket.create_server((host, port)).close()
    except ValueError:
        raise BadInput(f"--web-host {host}: is no IPv4 address") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"--web {port} at {host}: {reason}; choose another, or stop what listens there") from None
    command = [sys.executable, "-P", "-m", "pertoken", "top"]
    command += ["--config", database.config_file] if database.config_file else []
    if database.db and where.url is None:
        command += ["--db", str(where.folder)]
    elif database.db:
        os.environ["PERTOKEN_DB"] = (
            database.db
        )  # a URL may hold a password, which a command line would show to everyone
    command += [] if writes else ["--read-only"]
    if not IPv4Address(host).is_loopback:
        echo(f"Everyone who reaches {host}:{port} sees everything, without a password or encryption.", err=True)
    if writes:
        echo("Browsers may decide on advice, switch rules and write files on this host, in your name.", err=True)
    ScreenServer(shlex.join(command), host, port).serve()
