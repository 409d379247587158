"""What is still to be shipped to a fleet's server

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.create_table(
        "spool",
        sa.Column("spool_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("raw", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("spool_id", name=op.f("pk_spool")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    op.create_table(
        "outbox",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", "owner_id", "ts", name=op.f("pk_outbox")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    op.create_index(op.f("ix_outbox_seq"), "outbox", ["seq"], schema=schema)
