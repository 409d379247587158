"""Lives of processes: what a process is told by no longer has a wall clock in it

The new columns come last and may be NULL, so that the checksums of the rows that are there still hold. What was stored
by the wall clock stays where it was, and is replaced as the agent reads each counter again.

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"
    for table in ("counter_state", "engine"):
        op.add_column(table, sa.Column("life", sa.BigInteger()), schema=schema)
