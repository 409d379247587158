"""How many batches a server acknowledged

Revision: 0008, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.add_column("spool", sa.Column("acked_batch", sa.BigInteger(), nullable=True), schema=schema)
