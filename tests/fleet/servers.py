"""A fleet's server for tests: prepared once, with logins of two hosts, and hosts whose databases are seeded."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, make_url, select, text

from pertoken.agent.shipper.child import Shipper
from pertoken.store.connect.location import DatabaseServer, StoreLocation, server_url
from pertoken.store.connect.open import reading, writing
from pertoken.store.sync import Local
from pertoken.store.write.outbox import ROLLED
from pertoken.store.write.writer import Writer
from tests.scenario import LOW_BATCH_70B, seed
from tests.values import new_store

NOW = 1_790_000_400
"""A whole minute, 5 min into its hour."""


def login(owner: str, name: str, password: str | None = None) -> DatabaseServer:
    """Return the same server as its owner's URL, entered by another login."""
    url: URL = make_url(owner).set(username=name, password=password)
    return DatabaseServer(server_url(url.render_as_string(hide_password=False), "test"))


def host(
    folder: Path, *, raw: bool = False, gpus: int = 2, minutes: int = 90, end_ts: int = NOW, **more: Any
) -> StoreLocation:
    """Return a host's database with `minutes` of a served model, all of it marked to be shipped."""
    where = new_store(folder)
    with Writer(where) as writer:
        writer.ship(True, raw=raw)
    return seed(where, LOW_BATCH_70B, gpus=gpus, usd_per_hour=None, minutes=minutes, end_ts=end_ts, **more)


def shipper(
    where: StoreLocation, server: DatabaseServer, messages: list[dict[str, Any]] | None = None, **more: Any
) -> Shipper:
    """Return a shipper of one host, without its process."""
    return Shipper(
        Local(where),
        server,
        lambda **message: (messages if messages is not None else []).append(message),
        threading.Event(),
        **more,
    )


def rolled(connection: Connection, owners: Sequence[int] | None = None) -> dict[str, list[tuple[Any, ...]]]:
    """Return every roll-up row by table, sorted; of some owners only, where a server holds several hosts."""
    rows = {}
    for source in ROLLED:
        table, owner = source.tables[0]
        query = select(table)
        if owners is not None:
            query = query.where(table.c[owner].in_(owners))
        rows[table.name] = sorted(tuple(row) for row in connection.execute(query))
    return rows


def local_rows(where: StoreLocation) -> dict[str, list[tuple[Any, ...]]]:
    """Return the roll-ups of a host's own database."""
    with reading(where, "telemetry").connect() as connection, connection.begin():
        return rolled(connection)


def owners(where: StoreLocation) -> list[int]:
    """Return ids of a host, its devices and its epochs."""
    state = Local(where).state()
    assert state is not None
    return [owner_id for ids in state.owners.values() for owner_id in ids]


def server_rows(server: StoreLocation, where: StoreLocation) -> dict[str, list[tuple[Any, ...]]]:
    """Return the roll-ups that a server holds of one host."""
    with reading(server, "telemetry").connect() as connection, connection.begin():
        return rolled(connection, owners(where))


def execute(server: StoreLocation, statement: str, **parameters: Any) -> int:
    """Change something behind everyone's back; returns the rows it changed."""
    with writing(server, "telemetry").connect() as connection, connection.begin():
        return connection.execute(text(statement), parameters).rowcount


def scalar(server: StoreLocation, query: str, **parameters: Any) -> Any:
    """Return the one value that answers a query."""
    with reading(server, "telemetry").connect() as connection, connection.begin():
        return connection.execute(text(query), parameters).scalar()


def ts_of(table: str, row: tuple[Any, ...]) -> int:
    from pertoken.store.schema import telemetry as t

    names = [column.name for column in t.metadata.tables[f"telemetry.{table}"].columns]
    return int(row[names.index("ts")])


__all__ = [
    "NOW",
    "execute",
    "host",
    "local_rows",
    "login",
    "owners",
    "rolled",
    "scalar",
    "server_rows",
    "shipper",
    "ts_of",
]
