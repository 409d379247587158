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
from pertoken.store.schema.fleet import AGENT, agent, enrolment, raw_request
from pertoken.store.schema.ids import stable_id

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_ID = re.compile(r"id:(-?\d{1,19})")


def enroll(place: StoreLocation, name: str, most_hosts: int) -> str | None:
    """Let a login ship up to `most_hosts` hosts; makes the login where there is none and returns its new password.

    The password is sent as its SCRAM verifier, so that it stands in no log of the server. Raises BadInput for a name
    that would need quoting, StoreError where the server
    refuses.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r}: a login's name is a-z, 0-9 and _, begins with a letter and has at most 63 characters"
        )
    password = None
    with _owner(place) as connection:
        if not catalog(connection, "SELECT 1 FROM pg_roles WHERE rolname = :name", name=name):
            password = secrets.token_urlsafe(24)
            driver: Any = connection.connection.driver_connection
            verifier = driver.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
            commands(connection, f"CREATE ROLE {name} LOGIN PASSWORD '{verifier}'")
        commands(connection, f"GRANT {AGENT} TO {name}")
        statement = upsert("postgresql", agent).values(role_name=name, most_hosts=most_hosts)
        connection.execute(
            statement.on_conflict_do_update(index_elements=["role_name"], set_={"most_hosts": most_hosts})
        )
    return password


def disown(place: StoreLocation, host: str) -> str:
    """Take a host from the login that ships it, so that another may; returns that login. Raises BadInput for none."""
    with _owner(place) as connection:
        host_id = _host_id(connection, place, host)
        login: str | None = connection.execute(
            delete(enrolment).where(enrolment.c.host_id == host_id).returning(enrolment.c.role_name)
        ).scalar()
    if login is None:
        raise BadInput(f"{place}: no login ships {host}")
    return login


def request_raw(place: StoreLocation, host: str, start_ts: int, end_ts: int, now_ts: int) -> int:
    """Ask a host for its ticks with start <= ts < end; it sends them with its next batch. Returns the request's id."""
    with _owner(place) as connection:
        host_id = _host_id(connection, place, host)
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


def _host_id(connection: Connection, place: StoreLocation, host: str) -> int:
    """Return the id of a host by its name, or by `id:ID`: any agent may give its host another's name."""
    named = _ID.fullmatch(host)
    known = t.host.c.host_id == int(named[1]) if named else t.host.c.name == host
    query = select(t.host.c.host_id, enrolment.c.role_name).outerjoin(
        enrolment, enrolment.c.host_id == t.host.c.host_id
    )
    found = connection.execute(query.where(known).order_by(t.host.c.host_id)).all()
    if not found:
        raise BadInput(f"{place}: no host is called {host}")
    if len(found) > 1:
        which = ", ".join(f"id:{host_id} ({role or 'no login'})" for host_id, role in found)
        raise BadInput(f"{place}: {len(found)} hosts are called {host}; name one by its id: {which}")
    return int(found[0].host_id)


@contextmanager
def _owner(place: StoreLocation) -> Iterator[Connection]:
    """One transaction on a server, as its owner."""
    if place.url is None:
        raise BadInput(f"{place}: is a folder; this works on a fleet's server")
    with explained(place), writing(place, "fleet").connect() as connection, connection.begin():
        yield connection
