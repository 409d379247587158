"""Measurements of idle servers by `pertoken probe`

Revision: 0008, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "probe",
        sa.Column("deployment_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("started_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ended_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("deployment_id", "started_ts", name=op.f("pk_probe")),
        schema=None if op.get_bind().dialect.name == "sqlite" else "advice",
    )
