"""Group roles of a fleet's server and their rights.

Agents log in with roles of their own. They have no right on any table: they ship through the functions of
`store.central.functions`, which let a login write the rows of its own hosts alone. A host belongs to the first login
that ships it. No agent can read or delete anything.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from pertoken.store.central.functions import functions
from pertoken.store.connect.postgres import catalog
from pertoken.store.schema.fleet import ADVISOR, AGENT, READER

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
