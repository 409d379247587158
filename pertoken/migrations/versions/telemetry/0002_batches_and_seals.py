"""A row for each transaction, seals over the rows of every table, and keys in the order of time

Shares, histograms and an engine's other counters were keyed by owner, then by what they are, then by time: an owner's
last minute could only be found among all its rows. Now time comes second, as everywhere else.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_KEYS = {
    "device_share": ("device_id", "ts", "epoch_id"),
    "share_1m": ("device_id", "ts", "epoch_id"),
    "share_1h": ("device_id", "ts", "epoch_id"),
    "histogram_sample": ("epoch_id", "ts", "metric", "bucket_set_id", "bucket"),
    "histogram_1m": ("epoch_id", "ts", "metric", "bucket_set_id", "bucket"),
    "histogram_1h": ("epoch_id", "ts", "metric", "bucket_set_id", "bucket"),
    "engine_counter_sample": ("epoch_id", "ts", "metric"),
    "engine_counter_1m": ("epoch_id", "ts", "metric"),
    "engine_counter_1h": ("epoch_id", "ts", "metric"),
}


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    op.create_table(
        "batch",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("crc_sum", sa.BigInteger(), nullable=False),
        sa.Column("chain", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_batch")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    op.create_table(
        "seal",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("crc_sum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "owner_id", "ts", name=op.f("pk_seal")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    for name, keys in _KEYS.items():
        if schema is not None:
            op.drop_constraint(f"pk_{name}", name, type_="primary", schema=schema)
            op.create_primary_key(f"pk_{name}", name, list(keys), schema=schema)
        else:
            _rekey(name, keys)


def _rekey(name: str, keys: tuple[str, ...]) -> None:
    """SQLite keeps such a table in its key: it is written anew."""
    columns = {each["name"]: each for each in sa.inspect(op.get_bind()).get_columns(name)}
    order = [*keys, *(each for each in columns if each not in keys)]
    op.create_table(
        f"{name}_new",
        *(
            sa.Column(each, columns[each]["type"], autoincrement=False, nullable=columns[each]["nullable"])
            for each in order
        ),
        sa.PrimaryKeyConstraint(*keys, name=op.f(f"pk_{name}")),
        sqlite_with_rowid=False,
    )
    listed = ", ".join(f'"{each}"' for each in order)
    op.execute(f"INSERT INTO {name}_new ({listed}) SELECT {listed} FROM {name} ORDER BY {', '.join(keys)}")
    op.drop_table(name)
    op.rename_table(f"{name}_new", name)
