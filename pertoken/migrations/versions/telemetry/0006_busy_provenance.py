"""Rows of deployments record how their busy time is known

Rows that are there keep NULL, which is read as an upper bound: their busy time is the whole tick if anything ran in it.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"
    op.add_column("deployment_sample", sa.Column("busy_provenance", sa.SmallInteger()), schema=schema)
    for table in ("deployment_1m", "deployment_1h"):
        op.add_column(table, sa.Column("busy_provenance", sa.BigInteger()), schema=schema)
