"""A new telemetry file in the newest schema, without Alembic: the agent's first sample need not wait for that.

The file is what all migrations together would have made, and stamped so, that the next upgrade begins from there.
"""

from sqlalchemy import insert

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import REVISIONS, explained, version_table, writing
from pertoken.store.schema import telemetry


def create(location: StoreLocation) -> None:
    """Make the tables of a place that has no telemetry yet, in one transaction.

    Raises StoreError if that cannot be written.
    """
    version = version_table("telemetry")
    with explained(location), writing(location, "telemetry").begin() as connection:
        telemetry.metadata.create_all(connection, checkfirst=False)
        version.create(connection)
        connection.execute(insert(version).values(version_num=REVISIONS["telemetry"][-1]))
