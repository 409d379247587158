"""A PostgreSQL server made ready for a fleet, and kept ready: tables, partitions, roles, rights."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from sqlalchemy import Connection, event

from pertoken.errors import BadInput, StoreError
from pertoken.migrations import refuse_newer, upgrade_within
from pertoken.store.central.server import (
    AGES,
    LOCK_S,
    Progress,
    ages,
    keep_partitions,
    keeping,
    no_progress,
    partitioning,
    rights,
    roles,
)
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained, revision, upsert, writing
from pertoken.store.connect.sqlite import catalog, commands, set_local
from pertoken.store.schema.fleet import kept

GROUPS = ("telemetry", "advice", "fleet")
MIN_POSTGRES_VERSION = 15


def init_fleet(
    location: StoreLocation,
    now_ts: int,
    *,
    keep: Mapping[str, int] | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Make a server ready, or bring a ready one up to date; returns the statements that changed something.

    `keep` holds ages in seconds by resolution where they are to change. One transaction: whole or not at all;
    `dry_run` tries it all and takes it back. Raises StoreError where the server refuses, is too old, or is of a newer
    pertoken.
    """
    _server(location)
    with explained(location), writing(location, "fleet").connect() as connection:
        revision_by_group = {group: revision(connection.engine, group) for group in GROUPS}
        for group in GROUPS:
            refuse_newer(revision_by_group[group], group, location)
        with _recorded(connection) as statements:
            transaction = connection.begin()
            ((version,),) = catalog(connection, "SHOW server_version_num")
            if int(version) < MIN_POSTGRES_VERSION * 10_000:
                raise StoreError(
                    f"{location}: is PostgreSQL {int(version) // 10_000}; a fleet needs {MIN_POSTGRES_VERSION}"
                )
            set_local(connection, lock_timeout=f"{LOCK_S}s")
            _run(connection, roles(connection))
            _run(connection, (f"CREATE SCHEMA IF NOT EXISTS {group}" for group in GROUPS))
            for group in GROUPS:
                upgrade_within(connection, group)
            for resolution, age_s in {**AGES, **ages(connection), **(keep or {})}.items():
                statement = upsert("postgresql", kept).values(resolution=resolution, age_s=age_s)
                changed = {"age_s": age_s}
                connection.execute(
                    statement.on_conflict_do_update(
                        index_elements=["resolution"], set_=changed, where=kept.c.age_s != age_s
                    )
                )
            _run(connection, partitioning(connection))
            for group_ in keeping(connection, now_ts):
                _run(connection, group_)
            _run(connection, rights(connection))
            if dry_run:
                transaction.rollback()
            else:
                transaction.commit()
    return statements


def maintain(location: StoreLocation, now_ts: int, progress: Progress = no_progress) -> list[str]:
    """Make partitions that are due and drop what is past its age, each in a short transaction of its own."""
    _server(location)
    with explained(location), writing(location, "fleet").connect() as connection:
        if revision(connection.engine, "fleet") is None:
            raise StoreError(f"{location}: is not a fleet's server yet: run `pertoken db init-fleet`")
        return keep_partitions(connection, now_ts, progress)


def _server(location: StoreLocation) -> None:
    if location.url is None:
        raise BadInput(f"{location}: is a folder; a fleet needs a server: postgresql://owner@host/database")


def _run(connection: Connection, statements: Iterable[str]) -> None:
    # Made one by one: what comes later is made from what is there by then.
    for statement in statements:
        commands(connection, statement)


@contextmanager
def _recorded(connection: Connection) -> Iterator[list[str]]:
    statements: list[str] = []

    def record(
        _: object, cursor: object, statement: str, parameters: Mapping[str, object] | None, *rest: object
    ) -> None:
        reads = statement.split(None, 1)[0].upper() in ("SELECT", "SHOW", "SET")
        if not reads:
            statements.append(_shown(statement, parameters))

    event.listen(connection.engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(connection.engine, "before_cursor_execute", record)


def _shown(statement: str, parameters: Mapping[str, object] | None) -> str:
    text_ = statement.strip()
    for name, value in (parameters or {}).items():
        text_ = text_.replace(f"%({name})s", f"'{value}'")
    return text_.replace("%%", "%")
