"""Lifecycle of recommendations, verdicts on epoch changes, and receipts

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _text(name: str, *, required: bool = True) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=not required)


def _integer(name: str, *, required: bool = True) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=not required)


def upgrade() -> None:
    schema = None if op.get_bind().dialect.name == "sqlite" else "advice"
    prefix = "" if schema is None else f"{schema}."

    for column in (
        _integer("until_ts", required=False),
        _text("variant", required=False),
        _text("estimate", required=False),
    ):
        op.add_column("recommendation", column, schema=schema)
    op.create_table(
        "transition",
        _integer("recommendation_id"),
        _integer("version"),
        _integer("ts"),
        _text("from_state", required=False),
        _text("to_state"),
        _text("code"),
        _text("who"),
        _text("why"),
        sa.PrimaryKeyConstraint("recommendation_id", "version", name=op.f("pk_transition")),
        schema=schema,
    )
    # Older moves were all made by advice runs.
    op.execute(
        f"INSERT INTO {prefix}transition (recommendation_id, version, ts, from_state, to_state, code, who, why) "
        f"SELECT recommendation_id, version, ts, from_state, to_state, 'advice-run', who, why "
        f"FROM {prefix}recommendation_event"
    )
    op.drop_table("recommendation_event", schema=schema)
    op.create_table(
        "verdict",
        _integer("deployment_id"),
        _integer("epoch_id"),
        _integer("previous_epoch_id"),
        _integer("changed_ts"),
        _integer("recommendation_id", required=False),
        _text("result"),
        _integer("effect_low_1e6", required=False),
        _integer("effect_likely_1e6", required=False),
        _integer("effect_high_1e6", required=False),
        _text("method", required=False),
        _text("version_before", required=False),
        _text("version_after", required=False),
        _text("body"),
        _integer("created_ts"),
        _integer("judged_ts", required=False),
        _integer("version"),
        sa.PrimaryKeyConstraint("deployment_id", "epoch_id", name=op.f("pk_verdict")),
        schema=schema,
    )
    op.create_table(
        "receipt",
        _integer("receipt_id"),
        _integer("recommendation_id", required=False),
        _integer("deployment_id", required=False),
        _integer("epoch_id", required=False),
        _text("kind"),
        _text("body"),
        _text("hash"),
        _integer("created_ts"),
        sa.PrimaryKeyConstraint("receipt_id", name=op.f("pk_receipt")),
        schema=schema,
    )
