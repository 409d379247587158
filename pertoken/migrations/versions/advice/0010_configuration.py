"""The configuration that advice belongs to

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "configuration",
        sa.Column("configuration_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("set_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("configuration_id", name=op.f("pk_configuration")),
        schema=None if op.get_bind().dialect.name == "sqlite" else "advice",
    )
