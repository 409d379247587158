"""List prices that people import, and what owned servers cost

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _integer(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False)


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"
    op.create_table(
        "offer",
        _integer("offer_id"),
        _text("provider"),
        _text("instance_type"),
        _text("accelerator"),
        _integer("n_devices"),
        _text("region"),
        _text("purchase"),
        _integer("nano_usd_per_device_hour"),
        _text("as_of"),
        sa.Column("from_ts", sa.BigInteger(), nullable=True),
        _text("source"),
        _text("confidence"),
        _text("note"),
        _integer("set_ts"),
        _text("set_by"),
        _integer("seq"),
        sa.PrimaryKeyConstraint("offer_id", name=op.f("pk_offer")),
        schema=schema,
    )
    op.create_table(
        "owned",
        _integer("owned_id"),
        _text("host"),
        _text("terms"),
        _integer("from_ts"),
        _integer("set_ts"),
        _text("set_by"),
        _integer("seq"),
        sa.PrimaryKeyConstraint("owned_id", name=op.f("pk_owned")),
        schema=schema,
    )
