"""Who may do what on a fleet's server: group roles, row-level security, and how a login takes its hosts.

Agents log in with roles of their own. A host belongs to the first login that ships it; from then on nobody else can
write, change or see its rows through an agent's login. No agent can delete anything.
"""

from collections.abc import Iterator

from sqlalchemy import Connection

from pertoken.store.connect.postgres import catalog
from pertoken.store.schema.fleet import ADVISOR, AGENT, READER
from pertoken.store.write.rollup import ROLLUPS

_HOST = "host_id IN (SELECT host_id FROM fleet.own_host)"
_DEVICE = "device_id IN (SELECT device_id FROM fleet.own_device)"
_EPOCH = "epoch_id IN (SELECT epoch_id FROM fleet.own_epoch)"
_OWNER_POLICY = {"host_id": _HOST, "device_id": _DEVICE, "epoch_id": _EPOCH}
OWN = {
    "host": _HOST,
    "device": _HOST,
    "engine": _HOST,
    "deployment": _HOST,
    "event": _HOST,
    "epoch": "deployment_id IN (SELECT deployment_id FROM fleet.own_deployment)",
    "epoch_device": _EPOCH,
    "capability": "owner_id IN (SELECT owner_id FROM fleet.own_owner)",
    "agent_sample": _HOST,
    **{each.samples.name: _OWNER_POLICY[each.owner] for each in ROLLUPS},
    **{table.name: _OWNER_POLICY[each.owner] for each in ROLLUPS for table in each.tables.values()},
}
"""Which rows of each telemetry table are an agent's own."""
_SHARED = ("histogram_set",)
"""Tables whose rows belong to nobody: their key is a hash of their content."""

_VIEWS = {
    "own_host": "SELECT host_id FROM fleet.enrolment WHERE role_name = session_user",
    "own_device": "SELECT device_id FROM telemetry.device JOIN fleet.enrolment USING (host_id) "
    "WHERE role_name = session_user",
    "own_deployment": "SELECT deployment_id FROM telemetry.deployment JOIN fleet.enrolment USING (host_id) "
    "WHERE role_name = session_user",
    "own_epoch": "SELECT epoch_id FROM telemetry.epoch JOIN telemetry.deployment USING (deployment_id) "
    "JOIN fleet.enrolment USING (host_id) WHERE role_name = session_user",
    "own_owner": "SELECT host_id AS owner_id FROM fleet.enrolment WHERE role_name = session_user "
    "UNION ALL SELECT device_id FROM telemetry.device JOIN fleet.enrolment USING (host_id) "
    "WHERE role_name = session_user "
    "UNION ALL SELECT engine_id FROM telemetry.engine JOIN fleet.enrolment USING (host_id) "
    "WHERE role_name = session_user",
}
"""Read with the rights of their owner, so that a policy never asks another policy."""

_CLAIM = """\
CREATE OR REPLACE FUNCTION fleet.claim(hosts bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE allowed bigint; other text;
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(hosts) AS h WHERE NOT EXISTS
      (SELECT FROM fleet.enrolment e WHERE e.host_id = h AND e.role_name = session_user)) THEN
    RETURN;
  END IF;
  SELECT most_hosts INTO allowed FROM fleet.agent WHERE role_name = session_user FOR UPDATE;
  IF allowed IS NULL THEN
    RAISE insufficient_privilege USING MESSAGE =
      'login ' || session_user || ' is not enrolled here: run pertoken db enroll ' || session_user;
  END IF;
  INSERT INTO fleet.enrolment (host_id, role_name, since_ts)
    SELECT h, session_user, extract(epoch FROM now())::bigint FROM unnest(hosts) AS h ON CONFLICT DO NOTHING;
  SELECT role_name INTO other FROM fleet.enrolment
    WHERE host_id = ANY (hosts) AND role_name <> session_user LIMIT 1;
  IF FOUND THEN
    RAISE insufficient_privilege USING MESSAGE =
      'this host is shipped by the login ' || other || ' already: use that one, or pertoken db disown the host';
  END IF;
  IF (SELECT count(*) FROM fleet.enrolment WHERE role_name = session_user) > allowed THEN
    RAISE insufficient_privilege USING MESSAGE =
      'login ' || session_user || ' ships ' || allowed || ' host(s), which is all it may: pertoken db enroll '
      || session_user || ' --hosts N raises that';
  END IF;
END $$"""

_LOOKUPS = (
    ("device", "host_id"),
    ("engine", "host_id"),
    ("deployment", "host_id"),
    ("epoch", "deployment_id"),
    ("event", "host_id"),
)


def roles(connection: Connection) -> Iterator[str]:
    """Statements that make the group roles there are not."""
    there = {name for (name,) in catalog(connection, "SELECT rolname FROM pg_roles")}
    for role in (AGENT, READER, ADVISOR):
        if role not in there:
            yield f"CREATE ROLE {role} NOLOGIN"
    yield f"GRANT {READER} TO {ADVISOR}"


def rights(connection: Connection) -> Iterator[str]:
    """Statements that give each group its rights and bind agents to the rows of their own hosts."""
    for schema in ("telemetry", "advice", "fleet"):
        yield f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC"
        yield f"GRANT USAGE ON SCHEMA {schema} TO {READER}, {ADVISOR}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {READER}"
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA advice TO {ADVISOR}"
    yield f"REVOKE INSERT, UPDATE, DELETE ON advice.alembic_version FROM {ADVISOR}"
    yield f"GRANT INSERT, DELETE ON fleet.raw_request TO {ADVISOR}"
    yield f"GRANT USAGE ON SCHEMA telemetry, fleet TO {AGENT}"
    yield f"GRANT SELECT ON telemetry.alembic_version, fleet.kept TO {AGENT}"
    for table, column in _LOOKUPS:
        yield f"CREATE INDEX IF NOT EXISTS fleet_{table}_{column} ON telemetry.{table} ({column})"
    yield "CREATE INDEX IF NOT EXISTS fleet_enrolment_role ON fleet.enrolment (role_name)"
    for name, query in _VIEWS.items():
        yield f"CREATE OR REPLACE VIEW fleet.{name} AS {query}"
        yield f"GRANT SELECT ON fleet.{name} TO {AGENT}"
    yield _CLAIM
    yield "REVOKE ALL ON FUNCTION fleet.claim FROM PUBLIC"
    yield f"GRANT EXECUTE ON FUNCTION fleet.claim TO {AGENT}"
    yield from _policies(connection)


def _policies(connection: Connection) -> Iterator[str]:
    there = {
        (f"{row.schemaname}.{row.tablename}", row.policyname)
        for row in catalog(connection, "SELECT schemaname, tablename, policyname FROM pg_policies")
    }
    secured = {
        name
        for (name,) in catalog(
            connection,
            "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relrowsecurity",
        )
    }

    def policy(table: str, name: str, what: str) -> Iterator[str]:
        if (table, name) not in there:
            yield f"CREATE POLICY {name} ON {table} {what}"

    own = {f"telemetry.{name}": rule for name, rule in OWN.items()}
    own |= {"fleet.shipped": _HOST, "fleet.raw_request": _HOST}
    for table in (*own, *(f"telemetry.{name}" for name in _SHARED)):
        if table not in secured:
            yield f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
        yield from policy(table, "reader_sees_all", f"FOR SELECT TO {READER} USING (true)")
        if rule := own.get(table):
            yield from policy(table, "agent_has_its_own", f"TO {AGENT} USING ({rule}) WITH CHECK ({rule})")
            if table != "fleet.raw_request":
                yield f"GRANT SELECT, INSERT, UPDATE ON {table} TO {AGENT}"
        else:
            yield from policy(table, "agent_sees_all", f"FOR SELECT TO {AGENT} USING (true)")
            yield from policy(table, "agent_adds", f"FOR INSERT TO {AGENT} WITH CHECK (true)")
            yield f"GRANT SELECT, INSERT ON {table} TO {AGENT}"
    yield from policy("fleet.raw_request", "advisor_asks", f"TO {ADVISOR} USING (true) WITH CHECK (true)")
    yield f"GRANT SELECT, UPDATE (done_ts, rows_n, note) ON fleet.raw_request TO {AGENT}"
