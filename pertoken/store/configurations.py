"""Rows of the configurations that stored advice belonged to."""

from sqlalchemy import Connection, insert, select

from pertoken.store.query.fast_rows import Rows
from pertoken.store.schema import advice as a


def last_configuration(connection: Connection) -> Rows:
    """Return the row of the configuration that advice belongs to; empty before the first run."""
    newest = select(a.configuration).order_by(a.configuration.c.configuration_id.desc()).limit(1)
    return connection.execute(newest).all()


def add_configuration(connection: Connection, *, source: str, digest: str, set_ts: int, set_by: str) -> None:
    """Add the configuration that advice belongs to from now on."""
    number = 1 + max((row.configuration_id for row in last_configuration(connection)), default=0)
    connection.execute(
        insert(a.configuration).values(
            configuration_id=number, source=source, digest=digest, set_ts=set_ts, set_by=set_by
        )
    )
