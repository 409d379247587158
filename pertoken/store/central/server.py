"""Logins of agents on a fleet's server, and what people ask of hosts through it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from sqlalchemy import Connection, delete, exists, func, insert, select

from pertoken.errors import BadInput, StoreError
from pertoken.store.central.functions import functions
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained, upsert, writing
from pertoken.store.connect.sqlite import catalog, commands, set_local
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import ADVISOR, AGENT, READER, agent, enrolment, kept, raw_request
from pertoken.store.schema.rows import MAX_EVENTS
from pertoken.store.schema.shared import stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.rollup import ROLLUPS

if TYPE_CHECKING:
    import psycopg

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_ID = re.compile(r"id:(-?\d{1,19})")


def enroll(location: StoreLocation, name: str, max_hosts: int, *, new_password: bool = False) -> str | None:
    """Let a login ship up to `max_hosts` hosts; return the password of a new login, or a new one where asked for.

    Raises BadInput for a name that would need quoting, StoreError where the server refuses.
    """
    with _owner(location) as connection:
        password = _login(connection, name, AGENT, new_password)
        statement = upsert("postgresql", agent).values({"role_name": name, "most_hosts": max_hosts})
        connection.execute(
            statement.on_conflict_do_update(index_elements=["role_name"], set_={"most_hosts": max_hosts})
        )
    return password


def let_read(location: StoreLocation, name: str, *, advisor: bool = False, new_password: bool = False) -> str | None:
    """Let a login read everything, or as an `advisor` keep advice too; return a password as `enroll` does."""
    with _owner(location) as connection:
        return _login(connection, name, ADVISOR if advisor else READER, new_password)


def _login(connection: Connection, name: str, group: str, new_password: bool) -> str | None:
    """Make a login a member of a group, and the login where there is none; return its password if it is new.

    The password is sent as its SCRAM verifier, so that it stands in no log of the server.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r}: a login's name is a-z, 0-9 and _, begins with a letter and has at most 63 characters"
        )
    existing = catalog(connection, "SELECT 1 FROM pg_roles WHERE rolname = :name", name=name)
    password = secrets.token_urlsafe(24) if new_password or not existing else None
    if password is not None:
        driver = cast("psycopg.Connection", connection.connection.driver_connection)
        verifier = driver.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        commands(connection, f"{'ALTER' if existing else 'CREATE'} ROLE {name} LOGIN PASSWORD '{verifier}'")
    commands(connection, f"GRANT {group} TO {name}")
    return password


def remove(location: StoreLocation, name: str) -> int:
    """Delete a login, end its sessions and release its hosts, whose rows stay; return how many hosts those were.

    Raises BadInput where it is no login of this fleet, or owns something.
    """
    with _owner(location) as connection:
        groups = catalog(
            connection,
            "SELECT g.rolname, r.rolsuper FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid "
            "JOIN pg_roles r ON r.oid = m.member WHERE r.rolname = :name AND g.rolname = ANY (:groups)",
            name=name,
            groups=[AGENT, READER, ADVISOR],
        )
        if not groups or any(is_super for _, is_super in groups) or not _NAME.fullmatch(name):
            raise BadInput(f"{location}: {name} is no login of a host, reader or advisor")
        hosts = connection.execute(delete(enrolment).where(enrolment.c.role_name == name)).rowcount
        connection.execute(delete(agent).where(agent.c.role_name == name))
        catalog(connection, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :name", name=name)
        commands(connection, f"DROP ROLE {name}")
    return hosts


def disown(location: StoreLocation, host: str) -> str:
    """Take a host from the login that ships it, so that another may; returns that login. Raises BadInput for none."""
    with _owner(location) as connection:
        host_id = _host_id(connection, location, host)
        login: str | None = connection.execute(
            delete(enrolment).where(enrolment.c.host_id == host_id).returning(enrolment.c.role_name)
        ).scalar()
    if login is None:
        raise BadInput(f"{location}: no login ships {host}")
    return login


def request_raw(location: StoreLocation, host: str, start_ts: int, end_ts: int, now_ts: int) -> int:
    """Ask a host for its ticks with start <= ts < end; it sends them with its next batch. Returns the request's id."""
    with _owner(location) as connection:
        host_id = _host_id(connection, location, host)
        request_id = stable_id("raw", host_id, start_ts, end_ts, now_ts) & 0x7FFF_FFFF_FFFF_FFFF
        connection.execute(
            insert(raw_request).values(
                request_id=request_id,
                host_id=host_id,
                start_ts=start_ts,
                end_ts=end_ts,
                asked_by=func.session_user(),
                asked_ts=now_ts,
            )
        )
    return request_id


def _host_id(connection: Connection, location: StoreLocation, host: str) -> int:
    """Return the id of a host by its name, or by `id:ID`: any agent may give its host another's name."""
    named = _ID.fullmatch(host)
    condition = t.host.c.host_id == int(named[1]) if named else t.host.c.name == host
    query = select(t.host.c.host_id, enrolment.c.role_name).outerjoin(
        enrolment, enrolment.c.host_id == t.host.c.host_id
    )
    matches = connection.execute(query.where(condition).order_by(t.host.c.host_id)).all()
    if not matches:
        raise BadInput(f"{location}: no host is called {host}")
    if len(matches) > 1:
        which = ", ".join(f"id:{host_id} ({role or 'no login'})" for host_id, role in matches)
        raise BadInput(f"{location}: {len(matches)} hosts are called {host}; name one by its id: {which}")
    return int(matches[0].host_id)


@contextmanager
def _owner(location: StoreLocation) -> Iterator[Connection]:
    """One transaction on a server, as its owner."""
    if location.url is None:
        raise BadInput(f"{location}: is a folder; this works on a fleet's server")
    with explained(location), writing(location, "fleet").connect() as connection, connection.begin():
        yield connection


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


def no_progress(done: int, total: int) -> None:
    """For nobody."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One table that is kept by time."""

    name: str
    resolution: str
    """raw | 1m | 1h"""
    interval_s: int

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


def keeping(connection: Connection, now_ts: int) -> Iterator[tuple[str, ...]]:
    """Yield groups of statements, each a transaction of its own: partitions that are due, then what is past its age.

    Rows that the DEFAULT holds of a partition's time are moved into it. Age is counted from `now_ts` or, if that is
    earlier, from the newest host's last row: a clock that is ahead drops nothing more. A table loses up to
    `MAX_DROPPED` partitions at a time.
    """
    kept_s = ages(connection)
    newest = connection.execute(select(func.max(t.host.c.last_ts))).scalar()
    now_ts = now_ts if newest is None else min(now_ts, newest)
    existing = partitions(connection)
    for table in TIMED:
        first = (now_ts - kept_s[table.resolution]) // table.interval_s * table.interval_s
        strays = _strays(connection, table) if table.name in existing else {}
        due = {*range(first, now_ts + AHEAD_S, table.interval_s)} - {*existing.get(table.name, {}).values()}
        for start in sorted(due):
            yield tuple(_new(table, start, moving=start in strays))
        if any(start < first for start in strays):
            yield (f"DELETE FROM telemetry.{table.rest} WHERE ts < {first}",)
        old = sorted((start, name) for name, start in existing.get(table.name, {}).items() if start < first)
        for _, name in old[:MAX_DROPPED]:
            yield (f"DROP TABLE telemetry.{name}",)
    yield from _old_events(connection, now_ts - kept_s["1h"])


def _old_events(connection: Connection, before_ts: int) -> Iterator[tuple[str, ...]]:
    """Delete events that were last seen before `before_ts`, and of each host those beyond the newest `MAX_EVENTS`."""
    event = t.event.c
    if connection.execute(select(exists().where(event.last_ts < before_ts))).scalar():
        yield (f"DELETE FROM telemetry.event WHERE last_ts < {before_ts}",)
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
    name, end = table.partition(start), start + table.interval_s
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
    """Return starts of the intervals that the DEFAULT holds rows of, with how many."""
    interval = f"ts / {table.interval_s} * {table.interval_s}"
    rows = catalog(connection, f"SELECT {interval}, count(*) FROM telemetry.{table.rest} GROUP BY 1")
    return {start: n for start, n in rows}


_SCHEMAS = ("telemetry", "advice", "fleet")


def roles(connection: Connection) -> Iterator[str]:
    """Yield statements that make the group roles there are not."""
    existing = {name for (name,) in catalog(connection, "SELECT rolname FROM pg_roles")}
    for role in (AGENT, READER, ADVISOR):
        if role not in existing:
            yield f"CREATE ROLE {role} NOLOGIN"
    yield f"GRANT {READER} TO {ADVISOR}"


def rights(connection: Connection) -> Iterator[str]:
    """Yield statements that give each group its rights, and take from agents what an older pertoken gave them."""
    for schema in _SCHEMAS:
        yield f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC, {AGENT}"
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC, {AGENT}"
    yield f"REVOKE ALL (done_ts, rows_n, note) ON fleet.raw_request FROM {AGENT}"
    yield from _without_policies(connection)
    if catalog(connection, "SELECT FROM pg_proc WHERE proname = 'claim' AND pronamespace = 'fleet'::regnamespace"):
        yield "DROP FUNCTION fleet.claim"
    yield from functions()
    for schema in _SCHEMAS:
        yield f"GRANT USAGE ON SCHEMA {schema} TO {READER}, {ADVISOR}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {READER}"
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA advice TO {ADVISOR}"
    yield f"REVOKE UPDATE, DELETE ON advice.transition, advice.receipt FROM {ADVISOR}"  # rows are only added
    yield f"REVOKE INSERT, UPDATE, DELETE ON advice.alembic_version FROM {ADVISOR}"
    yield f"GRANT INSERT, DELETE ON fleet.raw_request TO {ADVISOR}"
    yield f"GRANT USAGE ON SCHEMA fleet TO {AGENT}"


def _without_policies(connection: Connection) -> Iterator[str]:
    """Yield statements that end row-level security, by which agents once wrote into the tables themselves."""
    policies = "SELECT schemaname, tablename, policyname FROM pg_policies WHERE schemaname IN ('telemetry', 'fleet')"
    for schema, table, policy in catalog(connection, policies):
        yield f"DROP POLICY {policy} ON {schema}.{table}"
    secured = (
        "SELECT relnamespace::regnamespace::text, relname FROM pg_class "
        "WHERE relrowsecurity AND relnamespace::regnamespace::text IN ('telemetry', 'fleet')"
    )
    for schema, table in catalog(connection, secured):
        yield f"ALTER TABLE {schema}.{table} DISABLE ROW LEVEL SECURITY"
