"""Deleting old telemetry, resolution by resolution, in small steps that a full disk survives."""

from dataclasses import dataclass

from sqlalchemy import Table

from pertoken.store import telemetry as t
from pertoken.store.rollup import HOUR, MINUTE, ROLLUPS
from pertoken.store.write import Writer


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds after which ticks, 1-min and 1-h roll-ups are deleted."""

    raw_s: int
    minutes_s: int
    hours_s: int


STEP_S = 3600
"""Rows of this much time are deleted in one transaction: a large one would grow the WAL by what it deletes."""


def purge(writer: Writer, ages: Ages, now_ts: int) -> int:
    """Delete what is older than `ages`; roll-ups are brought up to date first. Returns the rows deleted."""
    writer.roll_up()
    raw: list[Table] = [*(each.samples for each in ROLLUPS), t.agent_sample]
    deleted = 0
    for tables, age in (
        (raw, ages.raw_s),
        ([each.tables[MINUTE] for each in ROLLUPS], ages.minutes_s),
        ([each.tables[HOUR] for each in ROLLUPS], ages.hours_s),
    ):
        # A bucket is recomputed from all rows below it, so they go only by whole hours.
        before = (now_ts - age) // HOUR * HOUR
        for table in tables:
            deleted += writer.delete_before(table, before, STEP_S)
    return deleted
