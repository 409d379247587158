"""Quarantine: buckets whose roll-up cannot be computed, each with the reason, so that all others go on.

A row may hold a number that no sum can hold, text in place of a number, or nothing where a value is required. Its
bucket keeps the roll-up it had, if any. It is computed again when its rows change, and once by each other version.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from pertoken import __version__
from pertoken.store.query.fast_rows import fetch
from pertoken.store.schema import telemetry as t
from pertoken.store.write.dirty import Mark, of_rollups
from pertoken.units import format_utc

_TABLE = t.quarantine
MAX_SHOWN = 20
"""Findings about single buckets; of more only the number is reported."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket that could not be computed, and why."""

    rollup: str
    owner_id: int
    ts: int
    reason: str

    def __str__(self) -> str:
        """`device_1m of 5, 2026-11-21 10:00Z: cannot be rolled up: integer overflow`."""
        return f"{self.rollup} of {self.owner_id}, {format_utc(self.ts)}: cannot be rolled up: {self.reason}"


def known(connection: Connection, rollups: tuple[str, ...]) -> set[Mark]:
    """Return the buckets of these roll-ups that are in quarantine."""
    return {(rollup, owner_id, ts) for rollup, owner_id, ts in fetch(connection, _known(rollups))}


@cache
def _known(rollups: tuple[str, ...]) -> Select[Any]:
    return select(_TABLE.c.rollup, _TABLE.c.owner_id, _TABLE.c.ts).where(of_rollups(_TABLE.c.rollup, rollups))


def of_other_versions(connection: Connection) -> list[Mark]:
    """Return buckets that another version of pertoken failed to compute."""
    query = select(_TABLE.c.rollup, _TABLE.c.owner_id, _TABLE.c.ts).where(_TABLE.c.agent_version != __version__)
    return [(rollup, owner_id, ts) for rollup, owner_id, ts in connection.execute(query)]


def update(connection: Connection, computed: Collection[Mark], failed: Mapping[Mark, str]) -> None:
    """Release the buckets that were computed, and store those that failed, with the reason of each."""
    for rollup, owner_id, ts in (*computed, *failed):
        connection.execute(
            delete(_TABLE).where(_TABLE.c.rollup == rollup, _TABLE.c.owner_id == owner_id, _TABLE.c.ts == ts)
        )
    for (rollup, owner_id, ts), reason in failed.items():
        row = {"rollup": rollup, "owner_id": owner_id, "ts": ts, "reason": reason, "agent_version": __version__}
        connection.execute(insert(_TABLE).values(row))


def discard(connection: Connection, rollups: Sequence[str], before: int) -> None:
    """Release the buckets of these roll-ups that begin before `before`: the rows below them were deleted."""
    old = select(_TABLE.c.rollup, _TABLE.c.owner_id, _TABLE.c.ts).where(
        _TABLE.c.rollup.in_(rollups), _TABLE.c.ts < before
    )
    if buckets := [(rollup, owner_id, ts) for rollup, owner_id, ts in connection.execute(old)]:
        update(connection, buckets, {})


def findings(connection: Connection) -> Iterator[str]:
    """Yield one line for each bucket in quarantine, oldest first; beyond `MAX_SHOWN` only how many more there are."""
    columns = _TABLE.c.rollup, _TABLE.c.owner_id, _TABLE.c.ts, _TABLE.c.reason
    for row in connection.execute(select(*columns).order_by(_TABLE.c.ts, _TABLE.c.rollup).limit(MAX_SHOWN)):
        yield f"{Bucket(*row)}"
    n = connection.execute(select(func.count()).select_from(_TABLE)).scalar_one()
    if n > MAX_SHOWN:
        yield f"{n - MAX_SHOWN} more buckets cannot be rolled up"
