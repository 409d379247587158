"""How many batches a server acknowledged

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.add_column("spool", sa.Column("acked_batch", sa.BigInteger(), nullable=True), schema=schema)
