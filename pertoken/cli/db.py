"""`pertoken db`: upgrade, check, describe and clean a database."""

from __future__ import annotations

import click

from pertoken.cli.fleet import COMMANDS as FLEET_COMMANDS
from pertoken.cli.options import db_option, echo, json_option, settings_of


@click.group(short_help="Upgrade, check, describe and clean a database.")
def db() -> None:
    """Upgrade, check, describe and clean a database."""


@db.command("upgrade", short_help="Upgrade a database to the schema of this version.")
@db_option
def upgrade(config_file: str | None, db: str | None) -> None:
    """Bring telemetry and advice to the schema of this version of pertoken, in one transaction."""
    from pertoken.cli.progress import Progress
    from pertoken.errors import BadInput
    from pertoken.migrations import upgrade as bring
    from pertoken.store.connect.location import GROUPS, AgentLock, locate
    from pertoken.store.connect.open import explained, reading, revision

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    if where.url is not None:
        with explained(where):
            fleet = revision(reading(where, "fleet"), "fleet")
        if fleet is not None:  # it holds these tables too
            raise BadInput(f"{where}: is a fleet's server: its owner runs `pertoken db init-fleet` there")
    lock = AgentLock(where.folder) if where.folder else None
    if lock:
        lock.acquire()  # telemetry has one writer: not while an agent runs
    try:
        for group in GROUPS:
            with Progress(f"Upgrading {group}"):
                before, now = bring(where, group)
            what = f"is at {now}" if before == now else f"went from {before or 'nothing'} to {now}"
            echo(f"{where}: {group} {what}.")
    finally:
        if lock:
            lock.release()


@db.command("check", short_help="Check schema and integrity.")
@db_option
def check(config_file: str | None, db: str | None) -> None:
    """Check that the schema is that of this version and that every row is as it was stored; exit 1 if not.

    A fault is printed with its table, device or epoch, and time. An agent may run meanwhile; it makes the same check
    as it runs.
    """
    from pertoken.cli.progress import Progress
    from pertoken.errors import StoreError
    from pertoken.store.check import faults
    from pertoken.store.connect.location import locate
    from pertoken.store.integrity.verify import steps

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)
    n_faults = 0
    # Pages, checksums and rows of a folder are checked in steps of about one size.
    with Progress("Checking", steps(where) if where.folder else None) as progress:
        for fault in faults(where):
            progress.advance()
            if fault is not None:
                progress.clear()
                echo(fault)
                n_faults += 1
    if n_faults:
        raise StoreError(f"{where}: {n_faults} fault{'s' if n_faults > 1 else ''} found")
    echo(f"{where}: schema and integrity are good.")


@db.command("info", short_help="Show what a database holds.")
@db_option
@json_option
def info(config_file: str | None, db: str | None, as_json: bool) -> None:
    """Show what a database holds: rows of each table, time covered, size."""
    import json

    from pertoken.cli.progress import Progress
    from pertoken.store.check import contents
    from pertoken.store.connect.location import locate
    from pertoken.store.connect.open import open_store

    settings = settings_of(config_file, db=db)
    with Progress("Counting rows"):
        summary = contents(open_store(locate(settings.db, settings.advice)))
    if as_json:
        echo(json.dumps(summary, indent=2))
        return
    for name, value in summary.items():
        if isinstance(value, dict):
            echo(f"{name}:")
            for table, rows in value.items():
                echo(f"  {table:22} {rows:>12,}")
        else:
            echo(f"{name}: {value}")


@db.command("purge", short_help="Delete old telemetry.")
@click.option("--raw-before", metavar="AGE", help="Delete ticks older than this [default: store.raw].")
@click.option("--minutes-before", metavar="AGE", help="Delete 1-min roll-ups older than this [default: store.minutes].")
@click.option("--hours-before", metavar="AGE", help="Delete 1-h roll-ups older than this [default: store.hours].")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option("--yes", is_flag=True, help="Delete without being asked.")
@db_option
def purge(
    config_file: str | None,
    db: str | None,
    raw_before: str | None,
    minutes_before: str | None,
    hours_before: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete telemetry by age: ticks, minutes, hours, events; an agent does the same as it runs.

    Roll-ups are brought up to date first, so that no total changes. Ticks and minutes are deleted by whole hours, and
    hours by whole days. Ages count back from the newest tick stored: a clock that is ahead deletes nothing more.
    The number of rows to delete is printed first, by table; without --yes you are asked.
    """
    import time

    from pertoken.cli.progress import Progress
    from pertoken.errors import BadInput
    from pertoken.store.connect.location import AgentLock, locate
    from pertoken.store.connect.open import open_store
    from pertoken.store.query.read import first_and_last
    from pertoken.store.write.retention import Ages, aged_rows, purged_from, purging
    from pertoken.store.write.writer import Writer
    from pertoken.units import format_utc, parse_duration_s

    settings = settings_of(config_file, db=db)
    where = locate(settings.db, settings.advice)

    def age(option: str, text: str | None, kept: float) -> int:
        try:
            return int(kept if text is None else parse_duration_s(text))
        except ValueError as error:
            raise BadInput(f"{option}: {error}") from None

    ages = Ages(
        age("--raw-before", raw_before, settings.store_raw),
        age("--minutes-before", minutes_before, settings.store_minutes),
        age("--hours-before", hours_before, settings.store_hours),
        int(settings.store_events),
    )
    if where.folder is None:
        raise BadInput("purge works on a folder")
    if not where.exists("telemetry"):
        raise BadInput(f"{where}: holds no telemetry.db")
    now_ts = int(time.time())
    with Progress("Counting old rows"), open_store(where).read() as connection:
        _, newest_ts = first_and_last(connection)
        counts = aged_rows(connection, ages, min(now_ts, newest_ts or now_ts))
    for name, count in counts.items():
        echo(f"  {name:22} {count:>16,}")
    if dry_run or not counts:
        echo("Nothing was deleted." if counts else f"{where}: nothing is that old; nothing was deleted.")
        return
    if not yes:
        if not _asks():
            raise BadInput("the rows shown would be deleted for good: nothing was deleted; pass --yes to do it")
        if not click.confirm(f"Delete these {sum(counts.values()):,} rows of {where} for good?"):
            raise BadInput("nothing was deleted")
    lock = AgentLock(where.folder)
    lock.acquire()
    try:
        with Progress("Bringing roll-ups up to date") as progress, Writer(where) as writer:
            from_ts = purged_from(writer, now_ts)
            deleted = 0
            for n in purging(writer, ages, from_ts):
                if not deleted:
                    progress.phase("Deleting rows", sum(counts.values()))
                deleted += n
                progress.advance(n)
    finally:
        lock.release()
    echo(f"{where}: {deleted:,} rows deleted.")
    if now_ts - from_ts > 86_400:
        echo(f"Ages were counted from the newest tick, at {format_utc(from_ts)}, not from now.")


def _asks() -> bool:
    """Return whether there is a person to ask."""
    import sys

    return sys.stdin.isatty()


for _command in FLEET_COMMANDS:
    db.add_command(_command)
