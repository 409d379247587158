"""Expire open advice: its bankable dollars hide a bill that rises

Revision: 0012, after 0011
"""

import time

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

WHY = "its dollars were not net of a bill that rises: the next advice run prices it again"


def upgrade() -> None:
    connection = op.get_bind()
    schema = None if connection.dialect.name == "sqlite" else "advice"
    columns = ("recommendation_id", "state", "version", "updated_ts", "reason")
    advice = sa.table("recommendation", *map(sa.column, columns), schema=schema)
    moves = ("recommendation_id", "version", "ts", "from_state", "to_state", "code", "who", "why")
    transition = sa.table("transition", *map(sa.column, moves), schema=schema)
    ts = sa.literal(int(time.time()), sa.BigInteger())
    is_open = advice.c.state == "OPEN"
    texts = map(sa.literal, ("OPEN", "EXPIRED", "not-found", "upgrade", WHY))
    moved = sa.select(advice.c.recommendation_id, advice.c.version + 1, ts, *texts).where(is_open)
    connection.execute(sa.insert(transition).from_select(moves, moved))
    expired = {"state": "EXPIRED", "version": advice.c.version + 1, "updated_ts": ts, "reason": WHY}
    connection.execute(sa.update(advice).where(is_open).values(expired))
