"""Energy of hosts at the plug, and what measures it

Rows that are there keep NULL: their power was not read.

Revision: 0011, after 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"
    op.add_column("host", sa.Column("plug_source", sa.Text()), schema=schema)
    for table in ("host_sample", "host_1m", "host_1h"):
        for column in ("plug_mj", "plug_ms"):
            op.add_column(table, sa.Column(column, sa.BigInteger()), schema=schema)
