"""Counts that are as many as the samples are left out, and so are shares of what is held whole; one seal for a table

Rows that are there keep their values: those of a gauge's count, and shares, leave with their age. Seals were kept for
each owner, and are added up; from now on they also count what is still to be shipped.

Revision: 0004, after 0003
"""

import marshal
from zlib import crc32

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_GAUGES = {
    "device": (
        "util_1e4",
        "memory_used_bytes",
        "power_mw",
        "sm_clock_mhz",
        "temperature_c",
        "sm_active_1e4",
        "sm_occupancy_1e4",
        "tensor_active_1e4",
        "dram_active_1e4",
        "nvlink_rx_mib_s",
        "nvlink_tx_mib_s",
    ),
    "host": ("cpu_util_1e4", "load_1e2", "memory_used_bytes"),
    "deployment": ("running_1e2", "waiting_1e2", "kv_use_1e4"),
}
_PRIME = 2**61 - 1


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "telemetry"

    for name, gauges in _GAUGES.items():
        counts = [f"{gauge}_n" for gauge in gauges]
        for table in (f"{name}_1m", f"{name}_1h"):
            if schema is None:
                _relax(table, counts)
            else:
                for count in counts:
                    op.alter_column(table, count, nullable=True, schema=schema)
    op.add_column("deployment_sample", sa.Column("whole_provenance", sa.SmallInteger()), schema=schema)
    for table in ("deployment_1m", "deployment_1h"):
        for added in ("whole_ms", "whole_busy_ms", "whole_provenance"):
            op.add_column(table, sa.Column(added, sa.BigInteger()), schema=schema)

    seals = op.get_bind().execute(sa.text(f"SELECT name, owner_id, ts, row_count, crc_sum FROM {_seal(schema)}")).all()
    op.drop_table("seal", schema=schema)
    op.create_table(
        "seal",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("row_count", sa.BigInteger(), nullable=False),
        sa.Column("crc_sum", sa.BigInteger(), nullable=False),
        sa.Column("owner_sum", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "ts", name=op.f("pk_seal")),
        sqlite_with_rowid=False,
        schema=schema,
    )
    if seals:
        _seal_anew([tuple(each) for each in seals])


def _seal(schema: str | None) -> str:
    return "seal" if schema is None else f"{schema}.seal"


def _relax(name: str, counts: list[str]) -> None:
    """SQLite knows whether a column may be NULL by the text of its table alone, which is written anew with the rows."""
    columns = sa.inspect(op.get_bind()).get_columns(name)
    keys = sa.inspect(op.get_bind()).get_pk_constraint(name)["constrained_columns"]
    op.create_table(
        f"{name}_new",
        *(
            sa.Column(
                each["name"],
                each["type"],
                autoincrement=False,
                nullable=each["nullable"] or each["name"] in counts,
            )
            for each in columns
        ),
        sa.PrimaryKeyConstraint(*keys, name=op.f(f"pk_{name}")),
        sqlite_with_rowid=False,
    )
    listed = ", ".join(f'"{each["name"]}"' for each in columns)
    op.execute(f"INSERT INTO {name}_new ({listed}) SELECT {listed} FROM {name} ORDER BY {', '.join(keys)}")
    op.drop_table(name)
    op.rename_table(f"{name}_new", name)


def _seal_anew(seals: list[tuple[str, int, int, int, int]]) -> None:
    sums: dict[tuple[str, int], list[int]] = {}
    for name, owner_id, ts, row_count, crc_sum in seals:
        found = sums.setdefault((name, ts), [0, 0, 0])
        found[0] += row_count
        found[1] += crc_sum
        found[2] += crc_sum * owner_id
    for name, columns, owner in (
        ("outbox", "source, owner_id, ts, seq", 1),
        ("spool", "spool_id, last_seq, raw", None),
    ):
        for row in op.get_bind().execute(sa.text(f"SELECT {columns} FROM {name}")):
            found, crc = sums.setdefault((name, 0), [0, 0, 0]), crc32(marshal.dumps(tuple(row), 2)[5:].rstrip(b"N"))
            found[0] += 1
            found[1] += crc
            found[2] += 0 if owner is None else crc * row[owner]
    op.get_bind().execute(
        sa.text("INSERT INTO seal (name, ts, row_count, crc_sum, owner_sum) VALUES (:name, :ts, :n, :crc, :owners)"),
        [
            {"name": name, "ts": ts, "n": n, "crc": crc, "owners": by_owner % _PRIME}
            for (name, ts), (n, crc, by_owner) in sums.items()
        ],
    )
