"""`pertoken top`: the screens alone, over any pertoken database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import as_of, at_option, check_recorded, db_option, echo, settings_of

if TYPE_CHECKING:
    from pertoken.store.connect.location import StoreLocation


@click.command(short_help="Show the screens over any pertoken database.")
@db_option
@click.option(
    "--web",
    "web_port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    help="Serve the same screens to browsers of this host on this port of 127.0.0.1 (needs pertoken[web]).",
)
@click.option("--once", is_flag=True, help="Print the facts of the screens as text and end.")
@at_option
def top(config_file: str | None, db: str | None, web_port: int | None, once: bool, at: str | None) -> None:
    """Show fleet and savings of a recorded database. Telemetry is only ever read.

    --once --at TIME prints them as of then. Advice that has changed since is left out, because what it was then is not
    kept: `pertoken advise --at TIME` computes it.
    """
    import os
    import sys

    from pertoken.errors import BadInput
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.tui.store_source import StoreSource

    if at is not None and not once:
        raise BadInput("--at needs --once: the screens show the present")
    if once and web_port is not None:
        raise BadInput("--once prints text, and --web serves screens: give one of them")
    moment = as_of(at)
    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    # A wrong --db or --at is reported here, in one line, before the screen is taken.
    check_recorded(moment, open_store(where))
    if web_port is not None:
        _serve(where, config_file, db, web_port)
        return
    # The web server runs this command with a driver of its own and no terminal.
    if once or (not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ):
        from pertoken.cli.screens.up import plain

        source = StoreSource(where, as_of=moment.ts if moment.dated else None)
        computed = "No proposal has stood unchanged since then; `pertoken advise --at TIME` computes those of a time."
        echo(plain(source, computed if moment.dated else None))
        return
    from pertoken.cli.screens.source import screen_options, screen_source
    from pertoken.tui import amounts
    from pertoken.tui.app import PertokenApp

    PertokenApp(screen_source(where, settings), options=screen_options(where, settings)).run()
    amounts.reset()  # the screens showed the rate


def _serve(where: StoreLocation, config_file: str | None, db: str | None, port: int) -> None:
    import os
    import shlex
    import socket
    import sys

    from pertoken.errors import BadInput

    try:
        from pertoken.cli.screens.web import ScreenServer
    except ModuleNotFoundError:
        raise BadInput("--web needs textual-serve: pip install 'pertoken[web]'") from None
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(f"--web {port}: {reason}; choose another port, or stop what listens there") from None
    command = [sys.executable, "-P", "-m", "pertoken", "top"]
    command += ["--config", config_file] if config_file else []
    if db and where.url is None:
        command += ["--db", str(where.folder)]
    elif db:
        os.environ["PERTOKEN_DB"] = db  # a URL may hold a password, which a command line would show to everyone
    ScreenServer(shlex.join(command), port).serve()
