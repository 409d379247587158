"""A new telemetry file in the newest schema, without Alembic: the agent's first sample need not wait for that.

The file is what all migrations together would have made, and stamped so, that the next upgrade begins from there.
"""

from pertoken.store import telemetry
from pertoken.store.open import REVISIONS, explained, writing
from pertoken.store.place import Place


def create(place: Place) -> None:
    """Make the tables of a place that has no telemetry yet, in one transaction.

    Raises StoreError if that cannot be written.
    """
    with explained(place), writing(place, "telemetry").begin() as connection:
        telemetry.metadata.create_all(connection, checkfirst=False)
        # As Alembic lays its own table, whose one row is the revision.
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version "
            "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISIONS["telemetry"][-1],))
