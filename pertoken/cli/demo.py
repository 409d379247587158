"""`pertoken demo`: a generated fleet with history, in a database of its own, opened in the screens."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import echo, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from pertoken.config import Settings
    from pertoken.demo.making import Demo, OnProgress
    from pertoken.store.connect.location import StoreLocation

LEFT_BY_A_DEMO = ("telemetry.db*", "telemetry.witness", "advice.db*", "pertoken.toml")
"""Files of an earlier demo, which a new one replaces."""


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
@click.option("--db", metavar="DIR", help="Folder of the demo [default: `demo` in your own data folder].")
@click.option("--no-open", is_flag=True, help="Generate it and print its folder, without opening the screens.")
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
    healthy; the rules then run as on real telemetry. The fleet goes on while the screens are open.

    The demo has a database of its own, which is replaced at each run. A folder with telemetry of real hosts is refused.
    """
    import sys

    from pertoken.demo.mark import default_folder, refuse_real
    from pertoken.demo.truth import truth_text
    from pertoken.errors import BadInput
    from pertoken.store.connect.location import AgentLock, locate

    where = locate(str(default_folder()) if db is None else db)
    if where.folder is None:
        raise BadInput("--db: a demo needs a folder, not a server; name a folder")
    refuse_real(where)
    lock = AgentLock(where.folder)
    lock.acquire()
    try:
        _clear(where.folder)
        made = _demo(where, seed, hosts, days)
        if truth_file is not None:
            truth_file.write_text(truth_text(made.fleet, made.market), encoding="utf-8")
        settings = settings_of(str(where.folder / "pertoken.toml"), db=str(where.folder))
        _advise(where, settings)
        terminal = sys.stdout.isatty() and sys.stdin.isatty()
        if terminal and not no_open:
            _open(where, made, settings)
    finally:
        lock.release()
    options = f"--db {where.folder} --config {where.folder / 'pertoken.toml'}"
    echo(f"A demo of {hosts} hosts and {days} days is in {where.folder}. To open it again:")
    for command in ("top", "costs --by gpu --hours 720", "advise", "plan"):
        echo(f"  pertoken {command} {options}")


def _clear(folder: Path) -> None:
    for pattern in LEFT_BY_A_DEMO:
        for file in folder.glob(pattern):
            file.unlink()


def _demo(where: StoreLocation, seed: int, hosts: int, days: int) -> Demo:
    import time

    from pertoken.demo.making import make

    with _bar(hosts) as progress:
        return make(where, seed, hosts, days, int(time.time()), progress)


def _advise(where: StoreLocation, settings: Settings) -> None:
    from pertoken.cli.advise import run_quietly

    run_quietly(where, settings)


def _open(where: StoreLocation, made: Demo, settings: Settings) -> None:
    from pertoken.cli.screens.source import screen_source
    from pertoken.demo.live import Live
    from pertoken.tui import amounts
    from pertoken.tui.app import PertokenApp

    live = Live(where, made)
    live.start()
    try:
        PertokenApp(screen_source(where, settings), notice=live.notice).run()
        amounts.reset()
    finally:
        live.stop()


@contextmanager
def _bar(hosts: int) -> Iterator[OnProgress]:
    """Show a progress bar on a terminal, host by host."""
    import sys

    bar: Any = click.progressbar(
        length=hosts,
        label="Making a demo",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
        item_show_func=lambda phase: str(phase or ""),
    )
    with bar:

        def progress(phase: str, done: int, of: int) -> None:
            bar.update(max(0, done - bar.pos), phase)

        yield progress
