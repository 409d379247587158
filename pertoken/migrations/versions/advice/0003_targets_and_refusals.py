"""Targets of recommendations, and refusals beside them

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"

    op.add_column("recommendation", sa.Column("target_kind", sa.Text(), nullable=True), schema=schema)
    op.add_column("recommendation", sa.Column("target_key", sa.Text(), nullable=True), schema=schema)
    op.add_column(
        "recommendation", sa.Column("life", sa.BigInteger(), autoincrement=False, nullable=True), schema=schema
    )
    # What an older pertoken found had an identity of its own: it expires with the next run.
    prefix = "" if schema is None else f"{schema}."
    op.execute(
        f"UPDATE {prefix}recommendation SET life = 1, "
        "target_kind = CASE WHEN deployment_id IS NULL THEN 'fleet' ELSE 'deployment' END, "
        "target_key = COALESCE(CAST(deployment_id AS TEXT), '')"
    )
    op.create_table(
        "refusal",
        sa.Column("recommendation_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since_ts", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("recommendation_id", "code", name=op.f("pk_refusal")),
        schema=schema,
    )
