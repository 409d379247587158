"""Buckets whose roll-up cannot be computed

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.create_table(
        "quarantine",
        sa.Column("rollup", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("rollup", "owner_id", "ts", name=op.f("pk_quarantine")),
        sqlite_with_rowid=False,
        schema=schema,
    )
