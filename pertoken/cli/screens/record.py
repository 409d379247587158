"""`pertoken record` and `pertoken replay`: write a window of a database to one file, and show it."""

from __future__ import annotations

from pathlib import Path

import click

from pertoken.cli.options import db_option, echo, settings_of

MIN_WINDOW_S = 60


@click.command(short_help="Write a window of a database to one file, for `replay`.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--last", default="2h", show_default=True, metavar="TIME", help="How far back: 30m, 2h, 7d.")
@click.option(
    "--anonymize", is_flag=True, help="Replace names of hosts, users, devices and own models, addresses, paths."
)
@db_option
def record(config_file: str | None, db: str | None, file: Path, last: str, anonymize: bool) -> None:
    """Write the last hours of a database to FILE: telemetry, prices and advice, compressed.

    `pertoken replay FILE` opens the screens over it on any host. With --anonymize a name has the same pseudonym
    everywhere; published names of models are kept. FILE is an SQLite archive: `sqlite3 FILE -A -x` unpacks it.
    """
    import tempfile
    import time

    from pertoken.catalog.market import load_market
    from pertoken.cli.progress import Progress
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade
    from pertoken.store.connect.location import GROUPS, StoreLocation, locate
    from pertoken.store.connect.open import open_store
    from pertoken.store.export import recording as r
    from pertoken.units import format_bytes, format_utc, parse_duration_s
    from pertoken.window.reading import first_recorded

    try:
        last_s = parse_duration_s(last)
    except ValueError as error:
        raise BadInput(f"--last: {error}") from None
    if last_s < MIN_WINDOW_S:
        raise BadInput(f"--last {last}: the shortest recording is a minute")
    if file.exists():
        raise BadInput(f"{file}: exists already; choose another name")
    settings = settings_of(config_file, db=db)
    store = open_store(locate(settings.db, settings.advice))
    first = first_recorded(store)
    if first is None:
        raise BadInput(f"{store.location}: nothing is recorded in it yet")
    end = int(time.time()) // 60 * 60
    recording = r.Recording(int(end - last_s), end, anonymize)
    if first >= end:
        raise BadInput(f"{store.location}: its first row is less than a minute old")
    published = {model.name.casefold() for model in load_market().models}
    with tempfile.TemporaryDirectory(dir=file.parent) as folder, Progress("Making an empty database") as progress:
        location = StoreLocation(folder=Path(folder))
        for group in GROUPS:
            upgrade(location, group)
        r.copy(
            store,
            location,
            recording,
            lambda name: name.casefold() in published,
            lambda table: progress.phase(f"Copying {table}"),
        )
        progress.phase("Compressing")
        r.pack(location, recording, file)
    names = ", without names" if anonymize else ""
    span = f"{format_utc(recording.start_ts)} to {format_utc(recording.end_ts)}{names}"
    echo(f"{file}: {span}, {format_bytes(file.stat().st_size)}. `pertoken replay {file}` shows it.")


@click.command(short_help="Show the screens over a file of `pertoken record`.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--once", is_flag=True, help="Print the content of the screens as text and end.")
def replay(file: Path, once: bool) -> None:
    """Open the screens at the end of a recording, read-only: , and . step in time, < and > go from event to event."""
    import os
    import sys
    import tempfile

    from pertoken.cli.progress import Progress
    from pertoken.store.connect.location import StoreLocation
    from pertoken.store.export.recording import unpack
    from pertoken.tui.store_source import StoreSource

    with tempfile.TemporaryDirectory(prefix="pertoken-") as folder:
        with Progress(f"Unpacking {file}"):
            recording = unpack(file, Path(folder))
        location = StoreLocation(folder=Path(folder))
        source = StoreSource(location, as_of=recording.end_ts, recorded_from=recording.start_ts, shown_as=str(file))
        if once or (not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ):
            from pertoken.cli.screens.up import plain

            echo(plain(source, "No proposal stood unchanged at the end of this recording."))
            return
        from pertoken.tui.app import PertokenApp
        from pertoken.tui.options import options_of

        PertokenApp(source, options=options_of(settings_of(None))).run()
