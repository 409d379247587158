"""Time on a fleet's server: partitions made ahead, a DEFAULT for rows outside them, retention by DROP.

Ticks and 1-min roll-ups are kept by the day, 1-h roll-ups by 30 days. All statements are made from what is there, so
that doing it twice changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, exists, func, select

from pertoken.errors import StoreError
from pertoken.store.connect.postgres import catalog, commands, set_local
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import kept
from pertoken.store.schema.rollup_tables import HOUR, MINUTE
from pertoken.store.schema.rows import MAX_EVENTS
from pertoken.store.write.rollup import ROLLUPS

DAY = 86_400
AHEAD_S = 7 * DAY
"""How long rows find their partition if nobody maintains it; after that the DEFAULT takes them."""


MAX_DROPPED = 7
"""Partitions of one table dropped at a time, the oldest first: a week of days."""
LOCK_S = 10
"""How long to wait for a table that is in use before giving up, rather than holding up who waits behind."""
_LOCK = "SELECT 1 FROM fleet.kept ORDER BY resolution LIMIT 1 FOR UPDATE SKIP LOCKED"
"""Who has this row maintains the server. No advisory lock: any login could hold that one."""


MAX_TRANSACTION_S = 600
"""A transaction of a host that is older holds up partitions and is ended: a batch may take two minutes."""
_END_OLD = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    "AND xact_start < now() - make_interval(secs => :age_s) AND usename IN (SELECT role_name FROM fleet.agent)"
)


class Maintained(StoreError):
    """Another process maintains the server now."""


Progress = Callable[[int, int], None]
"""(steps done, of how many)"""


def no_progress(done: int, of: int) -> None:
    """For nobody."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One table that is kept by time."""

    name: str
    resolution: str
    """raw | 1m | 1h"""
    span_s: int

    @property
    def rest(self) -> str:
        """Its DEFAULT partition."""
        return f"{self.name}_rest"

    def partition(self, start: int) -> str:
        """Return name of the partition that begins at `start`."""
        return f"{self.name}_p{datetime.fromtimestamp(start, UTC):%Y%m%d}"


TIMED = (
    *(Timed(rollup.samples.name, "raw", DAY) for rollup in ROLLUPS),
    Timed(t.agent_sample.name, "raw", DAY),
    *(Timed(rollup.tables[MINUTE].name, "1m", DAY) for rollup in ROLLUPS),
    *(Timed(rollup.tables[HOUR].name, "1h", 30 * DAY) for rollup in ROLLUPS),
)
AGES = {"raw": 2 * DAY, "1m": 30 * DAY, "1h": 730 * DAY}
"""Seconds for which each resolution is kept, unless `init-fleet` is given others."""


def partitions(connection: Connection) -> dict[str, dict[str, int]]:
    """Return partitions of each partitioned table and where each begins, without the DEFAULT."""
    starts: dict[str, dict[str, int]] = {}
    rows = catalog(
        connection,
        "SELECT parent.relname, child.relname, pg_get_expr(child.relpartbound, child.oid) "
        "FROM pg_partitioned_table p JOIN pg_class parent ON parent.oid = p.partrelid "
        "JOIN pg_namespace n ON n.oid = parent.relnamespace AND n.nspname = 'telemetry' "
        "LEFT JOIN pg_inherits i ON i.inhparent = parent.oid LEFT JOIN pg_class child ON child.oid = i.inhrelid",
    )
    for parent, child, bound in rows:
        starts.setdefault(parent, {})
        if bound and bound.startswith("FOR VALUES FROM ('"):
            starts[parent][child] = int(bound.split("'")[1])
    return starts


def partitioning(connection: Connection) -> Iterator[str]:
    """Yield statements that partition the tables that are not yet: what they hold becomes their DEFAULT."""
    already = partitions(connection)
    for table in TIMED:
        if table.name in already:
            continue
        yield f"ALTER TABLE telemetry.{table.name} RENAME TO {table.rest}"
        yield f"ALTER TABLE telemetry.{table.rest} RENAME CONSTRAINT pk_{table.name} TO pk_{table.rest}"
        yield f"CREATE TABLE telemetry.{table.name} (LIKE telemetry.{table.rest}) PARTITION BY RANGE (ts)"
        keys = ", ".join(column.name for column in t.metadata.tables[f"telemetry.{table.name}"].primary_key)
        yield f"ALTER TABLE telemetry.{table.name} ADD CONSTRAINT pk_{table.name} PRIMARY KEY ({keys})"
        yield f"ALTER TABLE telemetry.{table.name} ATTACH PARTITION telemetry.{table.rest} DEFAULT"
        index = f"fleet_ts_{table.name} ON telemetry.{table.name}"
        yield f"CREATE INDEX {index} USING brin (ts) WITH (pages_per_range = 16)"


def ages(connection: Connection) -> dict[str, int]:
    """Return seconds for which each resolution is kept here."""
    return {name: age_s for name, age_s in connection.execute(select(kept.c.resolution, kept.c.age_s))}


def keeping(connection: Connection, now_ts: int, kept_s: Mapping[str, int] | None = None) -> Iterator[tuple[str, ...]]:
    """Yield groups of statements, each a transaction of its own: partitions that are due, then what is past its age.

    Rows that the DEFAULT holds of a partition's time are moved into it. Age is counted from `now_ts` or, if that is
    earlier, from the newest host's last row: a clock that is ahead drops nothing more. A table loses up to
    `MAX_DROPPED` partitions at a time.
    """
    kept_s = ages(connection) if kept_s is None else kept_s
    newest = connection.execute(select(func.max(t.host.c.last_ts))).scalar()
    now_ts = now_ts if newest is None else min(now_ts, newest)
    existing = partitions(connection)
    for table in TIMED:
        first = (now_ts - kept_s[table.resolution]) // table.span_s * table.span_s
        strays = _strays(connection, table) if table.name in existing else {}
        due = {*range(first, now_ts + AHEAD_S, table.span_s)} - {*existing.get(table.name, {}).values()}
        for start in sorted(due):
            yield tuple(_new(table, start, moving=start in strays))
        if any(start < first for start in strays):
            yield (f"DELETE FROM telemetry.{table.rest} WHERE ts < {first}",)
        old = sorted((start, name) for name, start in existing.get(table.name, {}).items() if start < first)
        for _, name in old[:MAX_DROPPED]:
            yield (f"DROP TABLE telemetry.{name}",)
    yield from _old_events(connection, now_ts - kept_s["1h"])


def _old_events(connection: Connection, before: int) -> Iterator[tuple[str, ...]]:
    """Delete events that were last seen before `before`, and of each host those beyond the newest `MAX_EVENTS`."""
    event = t.event.c
    if connection.execute(select(exists().where(event.last_ts < before))).scalar():
        yield (f"DELETE FROM telemetry.event WHERE last_ts < {before}",)
    flooded = select(event.host_id).group_by(event.host_id).having(func.count() > MAX_EVENTS)
    for host_id in connection.execute(flooded).scalars():
        beyond = f"WHERE host_id = {host_id} ORDER BY last_ts DESC OFFSET {MAX_EVENTS}"
        yield (f"DELETE FROM telemetry.event WHERE event_id IN (SELECT event_id FROM telemetry.event {beyond})",)


def keep_partitions(connection: Connection, now_ts: int, progress: Progress = no_progress) -> list[str]:
    """Do what `keeping` yields, as the tables' owner; return the statements. Raises Maintained if another does it."""
    done: list[str] = []
    with connection.begin():
        catalog(connection, _END_OLD, age_s=MAX_TRANSACTION_S)
    with connection.begin():
        due = list(keeping(connection, now_ts))
    for n, statements in enumerate(due, 1):
        with connection.begin():
            set_local(connection, lock_timeout=f"{LOCK_S}s")
            if not catalog(connection, _LOCK):
                raise Maintained("another process maintains this server now: nothing more was done")
            commands(connection, *statements)
        done += statements
        progress(n, len(due))
    return done


def _new(table: Timed, start: int, *, moving: bool) -> Iterator[str]:
    name, end = table.partition(start), start + table.span_s
    values = f"FOR VALUES FROM ({start}) TO ({end})"
    if not moving:
        yield f"CREATE TABLE telemetry.{name} PARTITION OF telemetry.{table.name} {values}"
        return
    within = f"FROM telemetry.{table.rest} WHERE ts >= {start} AND ts < {end}"
    yield f"LOCK TABLE telemetry.{table.rest} IN EXCLUSIVE MODE"
    yield f"CREATE TABLE telemetry.{name} (LIKE telemetry.{table.name} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    yield f"INSERT INTO telemetry.{name} SELECT * {within}"
    yield f"DELETE {within}"
    yield f"ALTER TABLE telemetry.{table.name} ATTACH PARTITION telemetry.{name} {values}"


def _strays(connection: Connection, table: Timed) -> dict[int, int]:
    """Return starts of the spans that the DEFAULT holds rows of, with how many."""
    span = f"ts / {table.span_s} * {table.span_s}"
    rows = catalog(connection, f"SELECT {span}, count(*) FROM telemetry.{table.rest} GROUP BY 1")
    return {start: n for start, n in rows}
