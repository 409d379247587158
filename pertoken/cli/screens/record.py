"""`pertoken record` and `pertoken replay`: write a window of a database to one file, and show it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, db_option, echo, seconds_of, settings_of
from pertoken.errors import BadInput, BadRecording, StoreError
from pertoken.units import format_bytes, format_utc

if TYPE_CHECKING:
    from pertoken.store.export.anonymous import Anonymizer

MIN_WINDOW_S = 60
MIN_KEY_BYTES = 16
"""Shortest secret for pseudonyms."""


@click.command(short_help="Write a window of a database to one file, for `replay`.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--last", default="2h", show_default=True, metavar="TIME", help="How far back: 30m, 2h, 7d.")
@click.option(
    "--anonymize", is_flag=True, help="Replace every text that is no number and no word of pertoken or its catalog."
)
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="With --anonymize: secret file that gives the same pseudonyms in each recording.  [default: a random key]",
)
@db_option
def record(database: Database, file: Path, last: str, anonymize: bool, key: Path | None) -> None:
    """Write the last hours of a database to FILE: telemetry, prices and advice, compressed.

    `pertoken replay FILE` opens the screens over it on any host. With --anonymize a name has the same pseudonym
    everywhere, and ids are others; numbers, times, published names of models and devices, and the words of
    pertoken's own messages stay. FILE is an SQLite archive: `sqlite3 FILE -A -x` unpacks it.
    """
    import tempfile

    from pertoken.migrations import upgrade
    from pertoken.proof.judging.receipts import resealed
    from pertoken.store.connect.location import GROUPS, StoreLocation
    from pertoken.store.export.recording import Recording, copy, pack
    from pertoken.window.reading import first_recorded

    last_s = seconds_of("--last", last)
    if last_s < MIN_WINDOW_S:
        raise BadInput(f"--last {last}: the shortest recording is a minute")
    if file.exists():
        raise BadInput(f"{file}: exists already; choose another name")
    anonymizer = _anonymizer(key) if anonymize else None
    if key is not None and anonymizer is None:
        raise BadInput("--key: makes pseudonyms only with --anonymize")
    _, store = database.opened()
    first_ts = first_recorded(store)
    if first_ts is None:
        raise BadInput(f"{store.location}: nothing is recorded in it yet")
    end_ts = int(time.time()) // 60 * 60  # the last full minute
    if first_ts >= end_ts:
        raise BadInput(f"{store.location}: its first row is less than a minute old")
    recording = Recording(int(end_ts - last_s), end_ts, anonymize)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder, Progress("Making an empty database") as progress:
        location = StoreLocation(folder=Path(folder))
        for group in GROUPS:
            upgrade(location, group)
        copy(store, location, recording, anonymizer, resealed, lambda table: progress.phase(f"Copying {table}"))
        progress.phase("Compressing")
        pack(location, recording, file)
    interval = f"{format_utc(recording.start_ts)} to {format_utc(recording.end_ts)}"
    names = ", without names" if anonymize else ""
    echo(f"{file}: {interval}{names}, {format_bytes(file.stat().st_size)}. `pertoken replay {file}` shows it.")


def _anonymizer(key_file: Path | None) -> Anonymizer:
    """Return an anonymizer by the key in a file; None: a random key. Raises BadInput for an invalid key."""
    import secrets

    from pertoken.store.export.anonymous import Anonymizer, Pseudonyms, public_vocabulary, published

    key = secrets.token_bytes(32)
    if key_file is not None:
        try:
            key = key_file.read_bytes()
        except OSError as error:
            raise BadInput(f"--key {key_file}: cannot be read: {error.strerror}") from None
    if len(key) < MIN_KEY_BYTES:
        raise BadInput(f"--key {key_file}: holds fewer than {MIN_KEY_BYTES} bytes: `openssl rand 32 > {key_file}`")
    return Anonymizer(Pseudonyms(key, published), public_vocabulary())


@click.command(short_help="Show the screens over a file of `pertoken record`.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Print the content of the screens as text and end.")
def replay(file: Path, once: bool) -> None:
    """Open the screens at the end of a recording, read-only: , and . step in time, < and > go from event to event.

    FILE may come from anybody: it is checked before it is shown, and nothing in it is run.
    """
    import tempfile

    from pertoken.cli.screens.up import plain
    from pertoken.store.connect.location import StoreLocation
    from pertoken.store.export.recording import unpack
    from pertoken.tui.store_source import StoreSource

    with tempfile.TemporaryDirectory(prefix="pertoken-") as folder:
        with Progress(f"Unpacking {file}"):
            recording = unpack(file, Path(folder))
        location = StoreLocation(folder=Path(folder))
        source = StoreSource(location, as_of=recording.end_ts, recorded_from=recording.start_ts, shown_as=str(file))
        with _bad_recording(file, folder):
            text = plain(source, "No proposal stood unchanged at the end of this recording.")
        if once or (not sys.stdout.isatty() and "TEXTUAL_DRIVER" not in os.environ):
            echo(text)
            return
        from pertoken.tui.app import PertokenApp
        from pertoken.tui.options import options_of

        PertokenApp(source, options=options_of(settings_of(None))).run()


@contextmanager
def _bad_recording(file: Path, folder: str) -> Iterator[None]:
    """Raise BadRecording for unreadable contents that the tables allow, such as JSON with unknown fields."""
    try:
        yield
    except StoreError as error:
        raise BadRecording(str(error).replace(folder, str(file))) from error
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        raise BadRecording(f"{file}: its contents cannot be shown: {type(error).__name__}: {error}") from error
