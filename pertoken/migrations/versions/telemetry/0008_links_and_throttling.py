"""How the devices of a host are linked, and whether power or heat slowed their clocks

Rows that are there keep NULL: nobody knows of them.

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
    op.add_column("device", sa.Column("links", sa.Text()), schema=schema)
    for table in ("device_1m", "device_1h"):
        for name in ("throttled_power_samples", "throttled_thermal_samples"):
            op.add_column(table, sa.Column(name, sa.BigInteger()), schema=schema)
