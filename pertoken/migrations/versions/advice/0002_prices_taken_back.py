"""A price can be taken back, and prices have an order of setting

Prices that are there keep their values; their order is that of the time they were set.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COLUMNS = "price_id, selector, nano_usd_per_device_hour, from_ts, set_ts, set_by, note"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _renew()
        return
    op.alter_column("price", "nano_usd_per_device_hour", nullable=True, schema="advice")
    op.add_column("price", sa.Column("seq", sa.BigInteger()), schema="advice")
    op.execute(
        "UPDATE advice.price SET seq = place FROM (SELECT price_id AS id, row_number() OVER (ORDER BY set_ts, price_id)"
        " AS place FROM advice.price) AS ordered WHERE price_id = id"
    )
    op.alter_column("price", "seq", nullable=False, schema="advice")


def _renew() -> None:
    """SQLite knows whether a column may be NULL by the text of its table alone: write it again, with its rows."""
    op.create_table(
        "price_new",
        sa.Column("price_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("selector", sa.Text(), nullable=False),
        sa.Column("nano_usd_per_device_hour", sa.BigInteger(), autoincrement=False, nullable=True),
        sa.Column("from_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("price_id", name=op.f("pk_price")),
    )
    op.execute(
        f"INSERT INTO price_new ({_COLUMNS}, seq) "
        f"SELECT {_COLUMNS}, row_number() OVER (ORDER BY set_ts, price_id) FROM price"
    )
    op.drop_table("price")
    op.rename_table("price_new", "price")
