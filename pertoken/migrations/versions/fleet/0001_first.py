"""First tables of a fleet's server

Revision: 0001, after
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent",
        sa.Column("role_name", sa.Text(), nullable=False),
        sa.Column("most_hosts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("role_name", name=op.f("pk_agent")),
        schema="fleet",
    )
    op.create_table(
        "enrolment",
        sa.Column("host_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("role_name", sa.Text(), nullable=False),
        sa.Column("since_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_enrolment")),
        schema="fleet",
    )
    op.create_table(
        "shipped",
        sa.Column("spool_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("rows_n", sa.BigInteger(), nullable=False),
        sa.Column("crc32", sa.BigInteger(), nullable=False),
        sa.Column("checked_ts", sa.BigInteger(), nullable=False),
        sa.Column("shipped_ts", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("spool_id", name=op.f("pk_shipped")),
        schema="fleet",
    )
    op.create_table(
        "raw_request",
        sa.Column("request_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("host_id", sa.BigInteger(), nullable=False),
        sa.Column("start_ts", sa.BigInteger(), nullable=False),
        sa.Column("end_ts", sa.BigInteger(), nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_ts", sa.BigInteger(), nullable=False),
        sa.Column("done_ts", sa.BigInteger(), nullable=True),
        sa.Column("rows_n", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_raw_request")),
        schema="fleet",
    )
    op.create_table(
        "kept",
        sa.Column("resolution", sa.Text(), nullable=False),
        sa.Column("age_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("resolution", name=op.f("pk_kept")),
        schema="fleet",
    )
