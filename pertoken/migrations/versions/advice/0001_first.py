"""First tables

Revision: 0001, after
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"

    op.create_table(
        "price",
        sa.Column("price_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("selector", sa.Text(), nullable=False),
        sa.Column("nano_usd_per_device_hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("price_id", name=op.f("pk_price")),
        schema=schema,
    )
    op.create_table(
        "recommendation",
        sa.Column("recommendation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rule_id", sa.Text(), nullable=False),
        sa.Column("deployment_id", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("bankable_nano_usd_month", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("capacity_nano_usd_month", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("created_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("updated_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recommendation_id", name=op.f("pk_recommendation")),
        schema=schema,
    )
    op.create_table(
        "recommendation_event",
        sa.Column("recommendation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("recommendation_id", "version", name=op.f("pk_recommendation_event")),
        schema=schema,
    )
