"""Who shipped last, how far the host had come, and ids that another host has

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("shipped", sa.Column("shipper_id", sa.BigInteger(), nullable=True), schema="fleet")
    op.add_column("shipped", sa.Column("boot_id", sa.Text(), nullable=True), schema="fleet")
    op.add_column("shipped", sa.Column("chain_seq", sa.BigInteger(), nullable=True), schema="fleet")
    op.add_column("shipped", sa.Column("chain", sa.BigInteger(), nullable=True), schema="fleet")
    op.create_table(
        "alias",
        sa.Column("host_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stored_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host_id", "id", name=op.f("pk_alias")),
        schema="fleet",
    )
