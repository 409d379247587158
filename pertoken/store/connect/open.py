"""Opening a database: readers never write, telemetry has one writer, and a newer schema is refused."""

from __future__ import annotations

import logging
import os
import sqlite3
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DatabaseError, DisconnectionError, OperationalError, ProgrammingError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool
from sqlalchemy.util import LRUCache

from pertoken.errors import (
    CorruptStore,
    FullStore,
    ImpossibleValues,
    NewerStore,
    StoreError,
    StoreInaccessible,
    limit_reached,
)
from pertoken.installed import install_command
from pertoken.store.connect import sqlite
from pertoken.store.connect.location import (
    GROUPS,
    StoreLocation,
    not_allowed,
    tls_defaults,
    tls_hint,
    trouble,
    without_secret,
)
from pertoken.store.connect.sqlite import UNREADABLE_VALUE, driver, set_local
from pertoken.store.schema import telemetry

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

MAX_VALUE = 2**53
"""Largest value of a row: sums of a thousand rows fit into 64 bits. Memory summed over an hour comes nearest."""
LARGEST = {"bucket": 10_000, "duration_ms": 40 * 86_400_000, "observed_ms": 40 * 86_400_000, "interval_ms": 2**31}
"""Largest values of some columns: a page has hundreds of buckets, and an agent was away for 40 days."""
MAX_TS = 2**40
"""Largest time: beyond it a calendar has no date for it."""

_opened: set[Path] = set()
_copies: dict[Path, Path] = {}
_left_out: dict[Path, Mapping[int, frozenset[str]]] = {}
_HOST_OF = """CREATE TEMP TABLE host_of AS SELECT host_id AS id, host_id FROM host
UNION ALL SELECT device_id, host_id FROM device JOIN host USING (host_id)
UNION ALL SELECT epoch_id, deployment.host_id FROM epoch JOIN deployment USING (deployment_id)
JOIN engine USING (engine_id) JOIN host ON host.host_id = deployment.host_id"""


def readable(file: Path) -> Path:
    """Return the file that a reader of a host's file opens: its copy where there is one."""
    _opened.add(file)
    return _copies.get(file, file)


@contextmanager
def without_impossible_rows() -> Iterator[bool]:
    """Have files that this process has read be read without impossible rows; yield whether any has some.

    A file that cannot be copied is read as it is. Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="pertoken-") as folder:
        for number, file in enumerate(path for path in _opened if path.exists()):
            copy = Path(folder) / f"{number}.db"
            with suppress(sqlite3.Error):
                faults, is_changed = _copied(file, copy)
                if is_changed:
                    _copies[file], _left_out[copy] = copy, faults
        try:
            yield bool(_copies)
        finally:
            _opened.clear()
            _copies.clear()
            _left_out.clear()


def left_out(file: Path) -> Mapping[int, frozenset[str]]:
    """Return the tables of which rows were left out in a copy, by host; nothing for any other file."""
    return _left_out.get(file, {})


def _copied(file: Path, copy: Path) -> tuple[Mapping[int, frozenset[str]], bool]:
    """Write a copy of a file without its impossible rows; return the tables by host, and whether it had any."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as source:
        source.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as target, target:
        target.execute(_HOST_OF)
        changes_before = target.total_changes
        faults = _deleted(target)
        return faults, target.total_changes > changes_before


def _deleted(copy: sqlite3.Connection) -> Mapping[int, frozenset[str]]:
    tables: dict[int, set[str]] = defaultdict(set)
    for table, owner, impossible in _conditions(copy):
        hosts = f"SELECT DISTINCT h.host_id FROM {table} r JOIN host_of h ON id = r.{owner} WHERE {impossible}"
        for (host_id,) in copy.execute(hosts).fetchall():
            tables[host_id].add(table)
        copy.execute(f"DELETE FROM {table} AS r WHERE {impossible}")
    copy.create_function("is_bounds", 1, _is_bounds)
    copy.execute("DELETE FROM histogram_set WHERE NOT is_bounds(upper_bounds)")
    return {host_id: frozenset(names) for host_id, names in tables.items()}


def _is_bounds(upper_bounds: object) -> bool:
    try:
        bounds = [float(bound) for bound in str(upper_bounds).split(",") if bound]
    except ValueError:
        return False
    return all(map(isfinite, bounds)) and all(low < high for low, high in pairwise(bounds))


def _conditions(copy: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    """Yield (table, column of the owner, condition of an impossible row) of each table of rows by time."""
    names = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in names:
        columns = copy.execute(f"PRAGMA table_info({table})").fetchall()
        keys = [name for _, name, *_, key in sorted(columns, key=lambda column: column[-1]) if key]
        numbers = [name for _, name, kind, *_ in columns if "INT" in kind and name != "ts" and name[-3:] != "_id"]
        if "ts" in keys and keys[0] in ("host_id", "device_id", "epoch_id"):
            bounds = [f"r.ts NOT BETWEEN 0 AND {MAX_TS}"]
            owners = (name for _, name, *_ in columns if name in ("host_id", "device_id", "epoch_id"))
            bounds += [f"r.{name} NOT IN (SELECT id FROM host_of)" for name in owners]
            bounds += [f"r.{name} NOT BETWEEN 0 AND {LARGEST.get(name, MAX_VALUE)}" for name in numbers]
            yield table, keys[0], " OR ".join(bounds)


# A connection that fails as it is given back follows the error that is reported: its traceback would hide that line.
logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
_VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"
REVISIONS = {
    group: tuple(sorted(file.name.partition("_")[0] for file in (_VERSIONS / group).glob("[0-9]*_*.py")))
    for group in ("telemetry", "advice", "fleet")
}
"""Schema revisions this pertoken knows, oldest first, by their files; the last is the one it reads and writes."""
_INSUFFICIENT_PRIVILEGE = "42501"
_BEGIN = "BEGIN IMMEDIATE"


def reading(location: StoreLocation, group: str, *, keep: bool = False) -> Engine:
    """Return an engine that can only read one group. Nothing is opened yet.

    `keep` a connection to a SQLite file between transactions, as screens do that refresh; one to a server is kept.
    """
    return _postgres(location, read_only=True) if location.url else _sqlite(location, group, "ro", keep=keep)


def writing(location: StoreLocation, group: str) -> Engine:
    """Return an engine that may write one group: WAL and FULL for telemetry, a rollback journal for advice."""
    return _postgres(location, read_only=False) if location.url else _sqlite(location, group, "rwc")


def altering(location: StoreLocation, group: str) -> Engine:
    """Return an engine for Alembic, which alters the tables of one group."""
    return _postgres(location, read_only=False) if location.url else _sqlite(location, group, "rwc", attached=False)


def _sqlite(location: StoreLocation, group: str, mode: str, *, attached: bool = True, keep: bool = False) -> Engine:
    file = Path(os.path.realpath(location.file(group)))  # raises nothing for a loop of links
    dialect, compiled = _compiling()

    is_reader = mode == "ro" and group == "telemetry"

    def connect() -> Any:
        return sqlite.connect(readable(file) if is_reader else file, group, mode, attached=attached)

    kept = QueuePool(connect, pool_size=1, max_overflow=-1, dialect=dialect) if keep else None
    pool = kept or NullPool(connect, dialect=dialect)
    engine = Engine(pool, dialect, make_url("sqlite://"), execution_options={"compiled_cache": compiled})
    if keep:
        _keep(engine, file)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if not driver(connection).in_transaction:  # else it joins one of `begun`
            driver(connection).execute("BEGIN" if mode == "ro" else _BEGIN)

    return engine


@cache
def _compiling() -> tuple[Dialect, LRUCache[object, object]]:
    """Return the dialect and the compiled statements of all files: to compile one takes longer than to run it, and an
    engine with a dialect of its own compiles all that it is asked."""
    engine = create_engine("sqlite://")
    engine.connect().close()  # on its first connection a dialect asks SQLite what it can do
    engine.dispose()
    return engine.dialect, LRUCache(500)


def _keep(engine: Engine, file: Path) -> None:
    """Keep a reader's connection between refreshes, as long as its file is the one at that path.

    Opening one and reading its schema takes as long as all that the hours screen asks.
    """
    weakref.finalize(engine, engine.pool.dispose)

    def identity() -> tuple[int, int] | None:
        try:
            status = file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @event.listens_for(engine, "connect")
    def connected(_: object, record: ConnectionPoolEntry) -> None:
        record.info["file"] = identity()

    @event.listens_for(engine, "checkout")
    def checked_out(_: object, record: ConnectionPoolEntry, __: object) -> None:
        if record.info.get("file") != identity():
            raise DisconnectionError(f"{file} is another file now")


def _postgres(location: StoreLocation, *, read_only: bool) -> Engine:
    if location.url is None:
        raise ValueError(f"{location} is not a server")
    pool: dict[str, Any] = {"pool_size": 1, "pool_pre_ping": True} if read_only else {"poolclass": NullPool}
    try:
        # PgBouncer in transaction mode hands the next transaction to another session: nothing is prepared there.
        arguments = {"prepare_threshold": None, **tls_defaults(location.url)}
        engine = create_engine(location.url, hide_parameters=True, connect_args=arguments, **pool)
    except ModuleNotFoundError:
        raise StoreError(f"PostgreSQL needs psycopg: {install_command('postgres')}") from None
    return _snapshots(engine) if read_only else engine


_PLANS = {
    # Answers are sums of some ten thousand rows: quicker than compiling a plan, or starting workers for it, ...
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    # ... which lie in the newest pages, of which a screen reads the same again and again.
    "random_page_cost": "1",
    "work_mem": "16MB",
}


def _snapshots(engine: Engine) -> Engine:
    """Return read-only transactions that each see one moment, over a connection that is kept."""
    weakref.finalize(engine, engine.pool.dispose)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # In the transaction, as PgBouncer hands the next one to another session.
        set_local(connection, **_PLANS)

    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


@contextmanager
def explained(location: StoreLocation) -> Iterator[None]:
    """Turn a driver's error into one line that names the database and what to do; never shows a password."""
    try:
        yield
    except (OperationalError, ProgrammingError, DatabaseError) as error:
        lines = str(error.orig).strip().splitlines() if error.orig else []
        reason = lines[0] if lines else type(error.orig or error).__name__
        if getattr(error.orig, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
            reason += f"; {not_allowed(location.url)}"
        reason += tls_hint(location.url, reason)
        why = _unopened(location, error.orig)
        kind = StoreInaccessible if why else _kind_of(error.orig)
        reason += why or _next_step(location, kind, error.orig)
        raise kind(f"{location}: {without_secret(reason, location.url)}") from error
    except sqlite3.Error as error:
        why = _unopened(location, error)
        kind = StoreInaccessible if why else _kind_of(error)
        raise kind(f"{location}: {error}{why or _next_step(location, kind, error)}") from error
    except UnicodeDecodeError as error:  # SQLite's own text of an error may repeat a damaged name
        raise CorruptStore(f"{location}: holds text that is none: {error}{_QUARANTINE}") from error


def _unopened(location: StoreLocation, error: BaseException | None) -> str:
    """Return why a file cannot be opened or written, to be added to SQLite's message that it cannot.

    Raises LimitReached where this process may open no more files.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if location.url is not None or code not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return ""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as limit:
        raise limit_reached(limit) or limit from None
    reasons = (trouble(location.file(group), writing=code == sqlite3.SQLITE_READONLY) for group in GROUPS)
    why = next(filter(None, reasons), None)
    return f": {why}" if why else ""


_QUARANTINE = (
    "; put an earlier copy in its place, or start `pertoken agent`, "
    "which quarantines damaged telemetry and starts a new database"
)
_FREE = "; free space on its disk or in your quota, or lower store.max_mb"
_WRITABLE = "; make the file and its folder writable, or run as their owner"
_BUSY = "; another process writes it: try again when that is done"


def _next_step(location: StoreLocation, kind: type[StoreError], error: BaseException | None) -> str:
    """Return what to do about SQLite's error, where the error does not contain it."""
    if location.url is not None:
        return ""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    by_code = {sqlite3.SQLITE_READONLY: _WRITABLE, sqlite3.SQLITE_BUSY: _BUSY, sqlite3.SQLITE_LOCKED: _BUSY}
    return {CorruptStore: _QUARANTINE, FullStore: _FREE}.get(kind) or by_code.get(code, "")


_DAMAGE = ("unsupported file format", "Could not decode to UTF-8", UNREADABLE_VALUE)
"""Messages about a damaged file that have no result code of their own."""


def _kind_of(error: BaseException | None) -> type[StoreError]:
    """Return what SQLite's result code means for who stores."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptStore
    if any(text in str(error) for text in _DAMAGE):
        return CorruptStore
    if str(error) == "integer overflow":
        return ImpossibleValues
    # An I/O error by its own code is a file that cannot grow, or be written to its end: the disk is full.
    grows_file = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC)
    return FullStore if code & 0xFF == sqlite3.SQLITE_FULL or code in grows_file else StoreError


def revision(engine: Engine, group: str) -> str | None:
    """Return the schema revision a group is at; None if it was never set up."""
    with engine.connect() as connection:
        # Not by an Inspector: it is freed by the garbage collector alone, and keeps a server's connection until then.
        if not connection.dialect.has_table(connection, "alembic_version", schema=group):
            return None
        stored_revision: str | None = connection.execute(select(version_table(group).c.version_num)).scalar()
        return stored_revision


@cache
def version_table(group: str) -> Table:
    """Return Alembic's own table of one group, as Alembic makes it; its one row is the revision."""
    return Table(
        "alembic_version",
        MetaData(schema=group),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
    )


def check_revision(stored_revision: str | None, group: str, location: StoreLocation) -> None:
    """Refuse a schema this pertoken does not read.

    Raises StoreError: set up by nobody, older (upgrade it), or written by a newer pertoken.
    """
    revisions = REVISIONS[group]
    if stored_revision == revisions[-1]:
        return
    if stored_revision is None and location.url is not None:
        raise StoreError(f"{location}: holds no {group} yet; `pertoken db init-fleet` makes a server ready")
    if stored_revision is None:
        raise StoreError(f"{location}: holds no {group} yet; `pertoken agent --db {location}` starts recording")
    if stored_revision in revisions and location.url is not None:
        raise StoreError(
            f"{location}: its {group} is of an older pertoken; its owner runs `pertoken db init-fleet` there"
        )
    if stored_revision in revisions:
        raise StoreError(f"{location}: its {group} is of an older pertoken; run `pertoken db upgrade --db {location}`")
    raise NewerStore(
        f"{location}: its {group} was written by a newer pertoken "
        f"(schema {stored_revision}; this one knows {revisions[-1]}); "
        "upgrade pertoken here"
    )


@dataclass(frozen=True, slots=True)
class Store:
    """An opened database for reading. `advice` is None where none was ever written."""

    location: StoreLocation
    telemetry: Engine
    advice: Engine | None
    held: Mapping[str, Connection] = field(default_factory=dict)
    """Transactions that are open, by group."""

    @contextmanager
    def read(self, group: str = "telemetry") -> Iterator[Connection]:
        """One snapshot of one group; of a group that is held, the transaction that holds it.

        Raises StoreError if it cannot be read.
        """
        if group in self.held:
            yield self.held[group]
        else:
            with self.transaction(group) as connection:
                yield connection

    @contextmanager
    def hold(self, *groups: str) -> Iterator[Store]:
        """Yield this store with a transaction of each group, in which all is read; of a server both groups share one.

        Advice that was never written is not held. While advice in a file is held, nobody can write it.
        """
        with ExitStack() as stack:
            held = dict(self.held)
            for group in groups:
                if group == "advice" and self.advice is self.telemetry and "telemetry" in held:
                    held[group] = held["telemetry"]
                elif group not in held and (group == "telemetry" or self.advice is not None):
                    held[group] = stack.enter_context(self.transaction(group))
            yield replace(self, held=held)

    @contextmanager
    def transaction(self, group: str) -> Iterator[Connection]:
        """Open a transaction of one group. Raises StoreError if it cannot be read."""
        engine = self.telemetry if group == "telemetry" else self.advice
        if engine is None:
            raise StoreError(f"{self.location}: holds no advice yet")
        with explained(self.location), engine.begin() as connection:
            yield connection


def open_store(location: StoreLocation, *, keep: bool = False) -> Store:
    """Open a database for reading; `keep` as in `reading`.

    Raises StoreError if there is no telemetry, or it is of another version, or it cannot be read.
    """
    if not location.exists("telemetry"):
        raise StoreError(f"{location}: holds no telemetry.db; start one with `pertoken agent --db {location}`")
    telemetry = reading(location, "telemetry", keep=keep)
    with explained(location):
        check_revision(revision(telemetry, "telemetry"), "telemetry", location)
    advice = open_advice(location, telemetry if location.url else None, keep=keep)
    return Store(location, telemetry, advice)


def open_advice(location: StoreLocation, engine: Engine | None = None, *, keep: bool = False) -> Engine | None:
    """Return an engine (that one, where it reads a server) reading the advice of a place; None where none was ever
    written."""
    if not location.exists("advice"):
        return None
    engine = reading(location, "advice", keep=keep) if engine is None else engine
    with explained(location):
        stored_revision = revision(engine, "advice")
        if stored_revision is None:
            return None
        check_revision(stored_revision, "advice", location)
    return engine


@contextmanager
def begun(connection: Connection) -> Iterator[None]:
    """A transaction of SQLite's by the driver's own hand, which statements of SQLAlchemy join: few ticks have any.

    Raises the driver's own errors, which `explained` knows.
    """
    raw = driver(connection)
    raw.execute(_BEGIN)
    try:
        yield
        raw.commit()
    except BaseException:
        raw.rollback()
        raise
    finally:
        if connection.in_transaction():
            connection.rollback()  # what it knows of the transaction; the database has none any more


@contextmanager
def savepoint(connection: Connection) -> Iterator[None]:
    """Undo what the block did in the transaction if it raises; the transaction itself goes on."""
    nested = connection.begin_nested()
    try:
        yield
    except BaseException:
        # A full disk or an I/O error may have ended all of SQLite's transaction.
        if connection.dialect.name != "sqlite" or driver(connection).in_transaction:
            nested.rollback()
        raise
    nested.commit()


def upsert(dialect: str, table: Table) -> SqliteInsert | PostgresInsert:
    """Return an INSERT of the dialect of that name, which has `on_conflict_do_update`."""
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgres_insert

    return postgres_insert(table)


def create(location: StoreLocation) -> None:
    """Make the tables of a place that has no telemetry yet, in one transaction.

    Raises StoreError if that cannot be written.
    """
    version = version_table("telemetry")
    with explained(location), writing(location, "telemetry").begin() as connection:
        telemetry.metadata.create_all(connection, checkfirst=False)
        version.create(connection)
        connection.execute(insert(version).values(version_num=REVISIONS["telemetry"][-1]))


@dataclass(frozen=True, slots=True)
class Changes:
    """Two values of a database that are compared with those of another time."""

    commits: tuple[object, ...]
    """Equal as long as nobody else commits."""
    tables: tuple[object, ...]
    """Equal as long as nobody alters a table, as a migration does."""


def changes(store: Store) -> Changes | None:
    """Return what changes with every commit; None for a server, which does not count them. Raises StoreError."""
    engines = {"telemetry": store.telemetry, "advice": store.advice}
    opened = {group: engine for group, engine in engines.items() if engine is not None}
    if any(engine.dialect.name != "sqlite" for engine in opened.values()):
        return None
    with explained(store.location):
        counters = [number for group, engine in opened.items() for number in _counters(group, engine)]
    return Changes(tuple(commits for commits, _ in counters), tuple(tables for _, tables in counters))


def _counters(group: str, engine: Engine) -> Iterator[tuple[object, object]]:
    with engine.connect() as connection:
        raw = driver(connection)
        # Counters of two connections cannot be compared: they may be of different files.
        identity = connection.connection.info.setdefault("identity", object())
        yield identity, identity
        (commits,) = raw.execute(f"PRAGMA {group}.data_version").fetchone()
        (tables,) = raw.execute(f"PRAGMA {group}.schema_version").fetchone()
        yield commits, tables
