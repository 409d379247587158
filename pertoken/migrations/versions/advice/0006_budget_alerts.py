"""Budget thresholds that the spend of a month reached

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budget_alert",
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("threshold_1e4", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("spent_nano_usd", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("expected_nano_usd", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("budget_nano_usd", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("month", "kind", "threshold_1e4", name=op.f("pk_budget_alert")),
        schema=None if op.get_bind().dialect.name == "sqlite" else "advice",
    )
