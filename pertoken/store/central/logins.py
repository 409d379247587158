"""Logins of agents on a fleet's server, and what people ask of hosts through it."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from pertoken.errors import BadInput
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import explained, upsert, writing
from pertoken.store.connect.postgres import catalog, commands
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.fleet import ADVISOR, AGENT, READER, agent, enrolment, raw_request
from pertoken.store.schema.ids import stable_id

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
    known = catalog(connection, "SELECT 1 FROM pg_roles WHERE rolname = :name", name=name)
    password = secrets.token_urlsafe(24) if new_password or not known else None
    if password is not None:
        driver: Any = connection.connection.driver_connection
        verifier = driver.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
        commands(connection, f"{'ALTER' if known else 'CREATE'} ROLE {name} LOGIN PASSWORD '{verifier}'")
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
    known = t.host.c.host_id == int(named[1]) if named else t.host.c.name == host
    query = select(t.host.c.host_id, enrolment.c.role_name).outerjoin(
        enrolment, enrolment.c.host_id == t.host.c.host_id
    )
    matches = connection.execute(query.where(known).order_by(t.host.c.host_id)).all()
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
