"""`pertoken top`: the screens alone, over any pertoken database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pertoken.cli.options import db_option, echo, settings_of

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
def top(config_file: str | None, db: str | None, web_port: int | None) -> None:
    """Show fleet and savings of a recorded database. Telemetry is only ever read."""
    import os
    import sys

    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store
    from pertoken.tui.store_source import StoreSource

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    open_store(where)  # a wrong --db is told here, in one line, before the screen is taken
    if web_port is not None:
        _serve(where, config_file, db, web_port)
        return
    source = StoreSource(where)
    # The web server runs this command with a driver of its own and no terminal.
    if not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ:
        from pertoken.cli.screens.up import plain

        echo(plain(source))
        return
    from pertoken.tui.app import PertokenApp

    PertokenApp(source).run()


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
