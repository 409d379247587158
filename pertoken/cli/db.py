"""`pertoken db`: upgrade, check, describe and clean a database."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from pertoken.cli.options import Database, Progress, confirm, db_option, echo, json_option, recording_in, seconds_of
from pertoken.errors import BadInput, StoreError
from pertoken.units import counted, format_utc, parse_duration_s

if TYPE_CHECKING:
    from pertoken.store.connect.location import StoreLocation


@click.command("init-fleet", short_help="Make a PostgreSQL server ready for a fleet, or bring it up to date.")
@click.argument("url", required=False)
@click.option("--raw", metavar="AGE", help="Keep requested ticks this long [at first: 2d].")
@click.option("--minutes", metavar="AGE", help="Keep 1-min roll-ups this long [at first: 30d].")
@click.option("--hours", metavar="AGE", help="Keep 1-h roll-ups this long [at first: 730d].")
@click.option("--dry-run", is_flag=True, help="Run it, print the SQL, and roll back.")
@db_option
def init_fleet(
    database: Database, url: str | None, raw: str | None, minutes: str | None, hours: str | None, dry_run: bool
) -> None:
    """Make a PostgreSQL server (15 or newer) ready for a fleet, or bring a ready one up to date.

    Run it as the owner of the database. It makes tables, day partitions, retention, and the group roles pertoken_agent
    (writes its own hosts' rows), pertoken_reader (screens) and pertoken_advisor (advice). A second run changes nothing.
    Leave the password out of URL: libpq reads it from ~/.pgpass or PGPASSFILE."""
    from pertoken.migrations.fleet import init_fleet

    where = _server(replace(database, db=url or database.db))
    try:
        keep = {name: int(parse_duration_s(age)) for name, age in (("raw", raw), ("1m", minutes), ("1h", hours)) if age}
    except ValueError as error:
        raise BadInput(str(error)) from None
    if any(age_s < 86_400 for age_s in keep.values()):
        raise BadInput("a fleet's server keeps everything for at least one day")
    with Progress("Making the server ready"):
        statements = init_fleet(where, int(time.time()), keep=keep, dry_run=dry_run)
    if dry_run:
        for statement in statements:
            echo(f"{statement};")
        echo(f"-- {where}: rolled back; nothing changed.", err=True)
    else:
        echo(f"{where}: ready. `pertoken db enroll LOGIN` makes a login for a host.")


@click.command("maintain", short_help="Make a fleet's next partitions and drop those past their age.")
@db_option
def maintain(database: Database) -> None:
    """Make the partitions of the next days, move late rows into theirs, and drop partitions past their age.

    Run it daily, as the owner of the database. If it does not run for a week, nothing is lost: rows go to a DEFAULT
    partition and are moved by the next run.
    """
    from pertoken.migrations.fleet import maintain

    where = _server(database)
    with Progress("Looking at partitions") as progress:

        def step(done: int, total: int) -> None:
            progress.phase("Making and dropping partitions", total)
            progress.advance(done)

        statements = maintain(where, int(time.time()), progress=step)
    made = sum(statement.startswith("CREATE TABLE") for statement in statements)
    dropped = sum(statement.startswith("DROP TABLE") for statement in statements)
    echo(f"{where}: {made} partitions made, {dropped} dropped.")


@click.command("enroll", short_help="Make a login: of a host that ships, of a reader or of an advisor.")
@click.argument("login")
@click.option(
    "--hosts", metavar="N", type=click.IntRange(1), default=1, show_default=True, help="How many hosts it may ship."
)
@click.option(
    "--reader", is_flag=True, help="A login that reads everything and ships nothing: for screens and reports."
)
@click.option(
    "--advisor", is_flag=True, help="A login that reads everything, stores advice and requests ticks of hosts."
)
@click.option("--new-password", is_flag=True, help="Give an existing login another password.")
@click.option("--via", metavar="HOST:PORT", help="Print the URL with this address, of a pooler, instead.")
@db_option
def enroll(
    database: Database, login: str, hosts: int, reader: bool, advisor: bool, new_password: bool, via: str | None
) -> None:
    """Let LOGIN ship a host: it owns the first hosts that it ships, and cannot write rows of others.

    The URL with the new password is printed once. An existing login keeps its password, unless --new-password is given.
    """
    from pertoken.store.central.server import enroll, let_read

    if reader and advisor:
        raise BadInput("--reader and --advisor: give only one of them")
    where = _server(database)
    assert where.url is not None
    url = where.url.set(drivername="postgresql", username=login)
    if via is not None:
        host, _, port = via.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"--via {via}: write it like pooler.example.com:6432")
        url = url.set(host=host, port=int(port))
    with Progress(f"Enrolling {login}"):
        if reader or advisor:
            password = let_read(where, login, advisor=advisor, new_password=new_password)
        else:
            password = enroll(where, login, hosts, new_password=new_password)
    what = "advise" if advisor else "read" if reader else f"ship {counted(hosts, 'host')}"
    if password is None:
        echo(f"{where}: the existing login {login} may {what}.", err=True)
        return
    echo(url.set(password=password).render_as_string(hide_password=False))
    echo(
        "This line is shown only now. Put its password into ~/.pgpass (mode 0600) of the user who reads."
        if reader or advisor
        else "Put this line, shown only now, into /etc/credstore/pertoken.database-url on the host (mode 0600).",
        err=True,
    )


@click.command("remove-login", short_help="Delete a login of a host, reader or advisor.")
@click.argument("login")
@db_option
def remove_login(database: Database, login: str) -> None:
    """Delete LOGIN and end its sessions. Hosts that it shipped keep their rows; another login may ship them."""
    from pertoken.store.central.server import remove

    where = _server(database)
    with Progress(f"Removing {login}"):
        hosts = remove(where, login)
    echo(f"{where}: the login {login} is gone; {counted(hosts, 'host')} may be shipped by another.")


@click.command("disown", short_help="Release a host from the login that ships it.")
@click.argument("host")
@db_option
def disown(database: Database, host: str) -> None:
    """Release HOST from the login that ships it, so that another login can ship it: for a host that was reinstalled.

    HOST is a name, or id:ID where several hosts have one name.
    """
    from pertoken.store.central.server import disown

    where = _server(database)
    with Progress(f"Releasing {host}"):
        login = disown(where, host)
    echo(f"{where}: {host} is no longer owned by {login}; the next login that ships it owns it.")


@click.command("request-raw", short_help="Request the ticks of a host over a stretch of time.")
@click.argument("host")
@click.option("--since", metavar="AGE", default="1h", show_default=True, help="Start, this long ago.")
@click.option("--until", metavar="AGE", default="0s", show_default=True, help="End, this long ago.")
@db_option
def request_raw(database: Database, host: str, since: str, until: str) -> None:
    """Request the ticks of HOST, which otherwise stay on the host; it sends them with its next batch."""
    from pertoken.store.central.server import request_raw

    where = _server(database)
    now_ts = int(time.time())
    try:
        start, end = now_ts - int(parse_duration_s(since)), now_ts - int(parse_duration_s(until))
    except ValueError as error:
        raise BadInput(str(error)) from None
    if start >= end:
        raise BadInput("--since must be longer ago than --until")
    with Progress(f"Asking {host} for its ticks"):
        request_raw(where, host, start, end, now_ts)
    echo(f"{where}: {host} will send its ticks of that time with its next batch.")


def _server(database: Database) -> StoreLocation:
    _, where = database.located()
    if where.url is None:
        raise BadInput(f"{where}: is a folder; name a server: postgresql://owner@host/database")
    return where


COMMANDS = (init_fleet, maintain, enroll, remove_login, disown, request_raw)


@click.group(short_help="Upgrade, check, describe and clean a database.")
def db() -> None:
    """Upgrade, check, describe and clean a database."""


@db.command("upgrade", short_help="Upgrade a database to the schema of this version.")
@db_option
def upgrade(database: Database) -> None:
    """Bring telemetry and advice to the schema of this version of pertoken, in one transaction."""
    from pertoken.migrations import upgrade
    from pertoken.store.connect.location import GROUPS
    from pertoken.store.connect.open import explained, reading, revision

    _, where = database.located()
    if where.url is not None:
        with explained(where):
            fleet = revision(reading(where, "fleet"), "fleet")
        if fleet is not None:  # it holds these tables too
            raise BadInput(f"{where}: is a fleet's server: its owner runs `pertoken db init-fleet` there")
    with recording_in(where.folder):
        for group in GROUPS:
            with Progress(f"Upgrading {group}"):
                revision_before, revision_after = upgrade(where, group)
            what = (
                f"is at {revision_after}"
                if revision_before == revision_after
                else f"went from {revision_before or 'nothing'} to {revision_after}"
            )
            echo(f"{where}: {group} {what}.")


@db.command("check", short_help="Check schema and integrity.")
@db_option
def check(database: Database) -> None:
    """Check that the schema is that of this version and that every row is as it was stored; exit 1 if not.

    A fault is printed with its table, device or epoch, and time. An agent may run meanwhile; it makes the same check
    as it runs.
    """
    from pertoken.store.check import faults
    from pertoken.store.integrity.verify import steps

    _, where = database.located()
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
def info(database: Database, as_json: bool) -> None:
    """Show what a database holds: rows of each table, time covered, size."""
    from pertoken.store.check import contents

    _, store = database.opened()
    with Progress("Counting rows"):
        summary = contents(store)
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
    database: Database,
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
    from pertoken.store.connect.open import open_store
    from pertoken.store.query.read import first_and_last
    from pertoken.store.write.retention import Ages, aged_rows, purged_from, purging
    from pertoken.store.write.writer import Writer

    settings, where = database.located()

    def age(option: str, text: str | None, kept: float) -> int:
        return int(kept if text is None else seconds_of(option, text))

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
        confirm(
            f"Delete these {sum(counts.values()):,} rows of {where} for good?",
            "the rows shown would be deleted for good: nothing was deleted; pass --yes to do it",
            "nothing was deleted",
        )
    deleted = 0
    with recording_in(where.folder), Progress("Bringing roll-ups up to date") as progress, Writer(where) as writer:
        from_ts = purged_from(writer, now_ts)
        for n in purging(writer, ages, from_ts):
            if not deleted:
                progress.phase("Deleting rows", sum(counts.values()))
            deleted += n
            progress.advance(n)
    echo(f"{where}: {deleted:,} rows deleted.")
    if now_ts - from_ts > 86_400:
        echo(f"Ages were counted from the newest tick, at {format_utc(from_ts)}, not from now.")


for _command in COMMANDS:
    db.add_command(_command)
