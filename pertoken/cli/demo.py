"""`pertoken demo`: a generated fleet with history, in a database of its own, opened in the screens."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo, progress_bar, recording_in, settings_of
from pertoken.text import amounts

if TYPE_CHECKING:
    from pertoken.config import Settings
    from pertoken.demo.making import Demo
    from pertoken.store.connect.location import StoreLocation


@click.command(short_help="Show a generated fleet with history: no GPU server needed.")
@click.option("--hosts", type=click.IntRange(1, 200), default=24, show_default=True, help="Hosts of the fleet.")
@click.option("--days", type=click.IntRange(1, 365), default=30, show_default=True, help="Days of history.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=1,
    show_default=True,
    help="Seed of the generator: another number gives another fleet.",
)
@click.option(
    "--db",
    metavar="DIR|URL",
    help="Folder of the demo, or an empty PostgreSQL database [default: `demo` in your own data folder].",
)
@click.option("--no-open", is_flag=True, help="Generate it and print where it is, without opening the screens.")
@click.option(
    "--truth",
    "truth_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the planted problems, and the true saving of fixing each, as JSON to this file.",
)
def demo(hosts: int, days: int, seed: int, db: str | None, no_open: bool, truth_file: Path | None) -> None:
    """Generate a fleet with history and open it in the screens, without a GPU server.

    Hosts, engines and requests are simulated: lengths and bursts follow production traces, and speed follows the
    forecast's physics with efficiencies that the advisor does not know. Some services have planted problems, others are
    healthy; the rules then run as on real telemetry. Of 30 days or more, one change that a rule proposed a week before
    the end was made, and is judged like any other. The fleet goes on while the screens are open.

    The demo has a database of its own, which is replaced at each run. A database with telemetry of real hosts
    is refused.
    """
    from shlex import quote

    from pertoken.cli.advise import run_quietly
    from pertoken.demo.fleet import truth_text
    from pertoken.demo.live import follow
    from pertoken.demo.making import SETTINGS_FILE, make, write_settings
    from pertoken.demo.place import clear, default_folder, refuse_real, settings_folder
    from pertoken.store.connect.location import locate

    db = str(default_folder()) if db is None else db
    where = locate(db)
    refuse_real(where)
    folder = settings_folder(where)
    with recording_in(folder):
        clear(where)
        with progress_bar("Making a demo", hosts) as show:
            made = make(where, seed, hosts, days, int(time.time()), lambda phase, done, _: show(phase, done))
        if truth_file is not None:
            truth_file.write_text(truth_text(made.fleet, made.market), encoding="utf-8")
        if where.folder is None:
            write_settings(folder, made.fleet)
        settings = settings_of(str(folder / SETTINGS_FILE), db=db)
        follow(where, made, settings)  # advice of a week ago, which the run of the rules then judges
        run_quietly(where, settings)
        if sys.stdout.isatty() and sys.stdin.isatty() and not no_open:
            _open(where, made, settings)
    options = f"--db {quote(str(where))} --config {quote(str(folder / SETTINGS_FILE))}"
    echo(f"A demo of {hosts} hosts and {days} days is in {where}. To open it again:")
    for command in ("top", "costs --by gpu --hours 720", "advise", "plan"):
        echo(f"  pertoken {command} {options}")


def _open(where: StoreLocation, made: Demo, settings: Settings) -> None:
    from pertoken.cli.screens.up import screen_options, screen_source
    from pertoken.demo.live import Live
    from pertoken.tui.app import PertokenApp

    live = Live(where, made)
    live.start()
    try:
        # Of no host here, and not the screens that a person goes back to: nothing is examined or remembered.
        options = replace(screen_options(where, settings), memory=None, diagnose=None)
        PertokenApp(screen_source(where, settings), notice=live.notice, options=options).run()
        amounts.reset()
    finally:
        live.stop()
