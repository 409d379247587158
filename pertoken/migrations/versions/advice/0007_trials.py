"""Trials of recommendations

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "trial",
        sa.Column("trial_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("recommendation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("design", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("started_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ended_ts", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_trial")),
        schema=None if op.get_bind().dialect.name == "sqlite" else "advice",
    )
