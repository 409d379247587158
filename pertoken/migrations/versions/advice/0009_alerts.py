"""Alerts and what is to be delivered of them

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"
    op.create_table(
        "alert",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seen_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "target", name=op.f("pk_alert")),
        schema=schema,
    )
    op.create_table(
        "alert_delivery",
        sa.Column("delivery_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("destination", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("next_ts", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("tries", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("delivery_id", name=op.f("pk_alert_delivery")),
        schema=schema,
    )
