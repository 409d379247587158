"""Busy time of deployments by kind of work: prefill and decode

Rows that are there keep NULL: their busy time is not split.

Revision: 0010, after 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"
    for table in ("deployment_sample", "deployment_1m", "deployment_1h"):
        for column in ("split_ms", "prefill_ms", "decode_ms"):
            op.add_column(table, sa.Column(column, sa.BigInteger()), schema=schema)
