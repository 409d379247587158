"""Contents of a database, and its faults."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import func, select

from pertoken.errors import StoreError
from pertoken.store.connect.location import GROUPS, StoreLocation
from pertoken.store.connect.open import Store, check_revision, explained, reading, revision
from pertoken.store.connect.sqlite import check_pages
from pertoken.store.integrity.verify import verify
from pertoken.store.query.read import first_and_last
from pertoken.store.schema import advice, telemetry
from pertoken.store.write import rollup
from pertoken.units import MAX_DATED_S

FIXED_WAL_RESET = (3, 51, 3)
"""First SQLite in which two connections that write cannot corrupt a WAL; we keep to one writer on any."""


def faults(location: StoreLocation) -> Iterator[str | None]:
    """Yield what is wrong with a place, one line each: another schema, damaged pages, rows that are not as they were
    stored.

    None after each step that found nothing.
    """
    for group in GROUPS:
        if not location.exists(group):
            if group == "telemetry":
                yield f"{location}: holds no telemetry.db"
            continue
        engine = reading(location, group)
        try:
            with explained(location):
                check_revision(revision(engine, group), group, location)
                if location.url is None and group == "telemetry":
                    for fault in verify(location):
                        yield None if fault is None else f"{location.file(group)}: {fault}"
                    with engine.connect() as connection:
                        for finding in rollup.findings(connection):
                            yield f"{location.file(group)}: {finding}"
                elif location.url is None:
                    with engine.connect() as connection:
                        yield from (f"{location.file(group)}: {line}" for line in check_pages(connection, group))
        except StoreError as error:
            yield str(error)


def contents(store: Store) -> dict[str, object]:
    """Return revisions, time covered, size and rows of each table, by name."""
    report: dict[str, object] = {"database": str(store.location)}
    if store.location.url is None:
        report["sqlite"] = sqlite3.sqlite_version
        files = [store.location.file(group) for group in GROUPS if store.location.exists(group)]
        report["bytes"] = sum(file.stat().st_size for file in files)
    for group, engine, metadata in (
        ("telemetry", store.telemetry, telemetry.metadata),
        ("advice", store.advice, advice.metadata),
    ):
        if engine is None:
            continue
        with explained(store.location):
            report[f"{group} schema"] = revision(engine, group)
        with store.read(group) as connection:
            if group == "telemetry":
                first, last = first_and_last(connection)
                report["from"], report["to"] = _when(first), _when(last)
            report[f"{group} rows"] = {
                table.name: connection.execute(select(func.count()).select_from(table)).scalar()
                for table in metadata.sorted_tables
            }
    return report


def _when(ts: int | None) -> str | None:
    if ts is None or not 0 <= ts <= MAX_DATED_S:
        return None if ts is None else f"second {ts}"
    return datetime.fromtimestamp(ts, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
