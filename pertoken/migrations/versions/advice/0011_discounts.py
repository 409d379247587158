"""Discounts on a provider's list prices, and prices with an end or in another currency

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"
    op.add_column("price", sa.Column("until_ts", sa.BigInteger(), nullable=True), schema=schema)
    op.add_column("price", sa.Column("entered", sa.Text(), nullable=True), schema=schema)
    op.create_table(
        "discount",
        sa.Column("discount_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("millionths", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("from_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("until_ts", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("set_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("discount_id", name=op.f("pk_discount")),
        schema=schema,
    )
