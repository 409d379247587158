"""A row for each tick stored, and seals over the rows of every table

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.create_table(
        "batch",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("crc_sum", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_batch")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    op.create_table(
        "seal",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("crc_sum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "owner_id", "ts", name=op.f("pk_seal")),
        sqlite_with_rowid=False,
        schema=schema,
    )
