"""An agent's login reaches its own hosts' rows and nothing else; readers read; advisors keep advice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from pertoken.cli import main
from pertoken.errors import BadInput, StoreError
from pertoken.migrations.fleet import maintain
from pertoken.store.central.functions import ENTRIES
from pertoken.store.central.server import disown, enroll
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import reading, writing
from pertoken.store.schema.shared import stable_id
from tests.fleet.servers import NOW, execute, host, login, scalar, shipper


@pytest.fixture(scope="module")
def two_hosts(
    owner_url: str, server: StoreLocation, tmp_path_factory: pytest.TempPathFactory
) -> tuple[StoreLocation, StoreLocation]:
    """Hosts of the logins `rights_a` and `rights_b`, shipped."""
    hosts = []
    for name in ("rights_a", "rights_b"):
        where = host(tmp_path_factory.mktemp(name), host=name, minutes=70)
        enroll(server, name, 1)
        shipper(where, login(owner_url, name)).round()
        hosts.append(where)
    return hosts[0], hosts[1]


@pytest.fixture
def as_a(owner_url: str, two_hosts: tuple[StoreLocation, StoreLocation]) -> Iterator["psycopg.Connection[Any]"]:
    with login(owner_url, "rights_a").connect() as connection:
        connection.autocommit = True
        yield connection


_SCHEMAS = ["telemetry", "advice", "fleet"]
_TABLES = (
    "SELECT n.nspname || '.' || c.relname, quote_ident(a.attname), c.relkind = 'v' FROM pg_class c "
    "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1 "
    "WHERE n.nspname = ANY (:schemas) AND c.relkind = ANY (ARRAY['r', 'p', 'v', 'm', 'S', 'f']::\"char\"[]) "
    "AND NOT (c.relispartition AND c.relname !~ '_rest$')"
)
"""Each relation with its first column and whether it is a view; of partitions the DEFAULT."""


def asked(server: StoreLocation, query: str, **values: Any) -> list[Any]:
    with reading(server, "telemetry").connect() as connection, connection.begin():
        return list(connection.execute(text(query), values).all())


def test_an_agent_has_no_right_on_any_relation_column_or_schema_of_the_catalog(
    server: StoreLocation, two_hosts: tuple[StoreLocation, StoreLocation]
) -> None:
    verbs = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"]
    may = (
        "SELECT c.oid::regclass::text, v FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, "
        "unnest(CAST(:v AS text[])) v "
        "WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND c.relkind NOT IN ('i', 'I', 'c') "
        "AND (has_table_privilege('rights_a', c.oid, v) OR (v IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES') "
        "AND has_any_column_privilege('rights_a', c.oid, v)))"
    )
    assert asked(server, may, v=verbs) == []
    schemas = (
        "SELECT nspname FROM pg_namespace WHERE has_schema_privilege('rights_a', oid, 'CREATE') AND nspname !~ '^pg_'"
    )
    assert asked(server, schemas) == []
    enterable = "SELECT n FROM unnest(CAST(:schemas AS text[])) n WHERE has_schema_privilege('rights_a', n, 'USAGE')"
    assert asked(server, enterable, schemas=_SCHEMAS) == [("fleet",)]
    assert asked(server, "SELECT * FROM pg_policies") == []
    memberships = "SELECT r.rolname FROM pg_roles r WHERE pg_has_role('rights_a', r.oid, 'MEMBER') ORDER BY 1"
    assert asked(server, memberships) == [("pertoken_agent",), ("rights_a",)]


def test_every_statement_on_every_table_is_refused_to_an_agent(
    server: StoreLocation, as_a: "psycopg.Connection[Any]"
) -> None:
    tables = asked(server, _TABLES, schemas=_SCHEMAS)
    assert len(tables) > 50
    modes = ("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE")
    for table, column, is_view in tables:
        writing_it = (
            f"COPY {table} TO STDOUT",
            f"INSERT INTO {table} DEFAULT VALUES",
            f"INSERT INTO {table} SELECT FROM {table} ON CONFLICT DO NOTHING",
            f"UPDATE {table} SET {column} = NULL",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
        )
        locking = (f"LOCK TABLE {table} IN {mode} MODE" for mode in modes)
        for statement in (f"TABLE {table}", *(() if is_view else writing_it), *locking):
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"), as_a.transaction():
                as_a.execute(statement)


def test_an_agent_may_call_only_functions_that_run_as_their_owner_over_a_fixed_path(server: StoreLocation) -> None:
    enroll(server, "rights_a", 1)
    query = (
        "SELECT n.nspname || '.' || p.proname, p.prosecdef, 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig) "
        "FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND p.prolang <> 13 "
        "AND has_function_privilege('rights_a', p.oid, 'EXECUTE') AND has_schema_privilege('rights_a', n.oid, 'USAGE')"
    )
    assert sorted(asked(server, query)) == [(f"fleet.{name}", True, True) for name in sorted(ENTRIES)]


def test_a_lock_open_to_any_login_does_not_block_maintenance_of_the_server(
    server: StoreLocation, as_a: "psycopg.Connection[Any]"
) -> None:
    as_a.execute("SELECT pg_advisory_lock(7052310988)")
    newest = "SELECT max(relname) FROM pg_class WHERE relname LIKE 'agent_sample_p%' AND relkind = 'r'"
    name = scalar(server, newest)
    execute(server, f"DROP TABLE telemetry.{name}")
    maintain(server, NOW)
    assert scalar(server, newest) == name


def test_a_second_maintenance_at_once_is_refused_with_the_reason(server: StoreLocation) -> None:
    with writing(server, "fleet").connect() as other, other.begin():
        other.execute(text("SELECT 1 FROM fleet.kept FOR UPDATE"))
        newest = "SELECT max(relname) FROM pg_class WHERE relname LIKE 'agent_sample_p%' AND relkind = 'r'"
        execute(server, f"DROP TABLE telemetry.{scalar(server, newest)}")
        with pytest.raises(StoreError, match="another process maintains this server"):
            maintain(server, NOW)
    maintain(server, NOW)


def test_two_hosts_of_one_name_are_distinguished_by_their_ids(
    owner_url: str, server: StoreLocation, tmp_path: Path
) -> None:
    for number in (1, 2):
        where = host(tmp_path / str(number), host=f"twin-{number}", minutes=2)
        enroll(server, f"rights_twin_{number}", 1)
        shipper(where, login(owner_url, f"rights_twin_{number}")).round()
    execute(server, "UPDATE telemetry.host SET name = 'twin-1' WHERE name = 'twin-2'")
    host_id = stable_id("host", "twin-1")
    with pytest.raises(BadInput, match=rf"2 hosts are called twin-1; .*id:{host_id} \(rights_twin_1\)"):
        disown(server, "twin-1")
    assert disown(server, f"id:{host_id}") == "rights_twin_1"


def test_a_reader_reads_everything_and_changes_nothing(
    owner_url: str, server: StoreLocation, two_hosts: tuple[StoreLocation, StoreLocation]
) -> None:
    execute(server, "CREATE ROLE rights_reader LOGIN; GRANT pertoken_reader TO rights_reader")
    with login(owner_url, "rights_reader").connect() as connection:
        connection.autocommit = True
        (n,) = connection.execute("SELECT count(*) FROM telemetry.device_1m").fetchall()[0]
        assert n == scalar(server, "SELECT count(*) FROM telemetry.device_1m") > 0
        kept = [f"advice.{name}" for name in ("recommendation", "transition", "refusal", "verdict", "receipt", "price")]
        for table in kept:
            connection.execute(f"SELECT count(*) FROM {table}")
        for table in ("telemetry.host", "telemetry.device_1m", "telemetry.event", "fleet.raw_request", *kept):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"DELETE FROM {table}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"INSERT INTO {table} DEFAULT VALUES")


def test_a_login_without_the_right_is_refused_with_the_role_that_has_it(owner_url: str, server: StoreLocation) -> None:
    execute(server, "CREATE ROLE rights_looker LOGIN; GRANT pertoken_reader TO rights_looker")
    url = login(owner_url, "rights_looker").url.set(drivername="postgresql").render_as_string(hide_password=False)
    done = CliRunner().invoke(main, ["advise", "--db", url])
    assert done.exit_code == 1
    assert "rights_looker may not do this" in done.output and "one of pertoken_advisor" in done.output
    assert len(done.output.splitlines()) == 1 and "psycopg" not in done.output


def test_an_advisor_keeps_advice_and_asks_for_ticks_but_writes_no_telemetry(
    owner_url: str, server: StoreLocation
) -> None:
    execute(server, "CREATE ROLE rights_advisor LOGIN; GRANT pertoken_advisor TO rights_advisor")
    with login(owner_url, "rights_advisor").connect() as connection:
        connection.autocommit = True
        connection.execute("INSERT INTO advice.price VALUES (7, 'gpu', 1, 0, 0, 'x', NULL, 1)")
        connection.execute("DELETE FROM advice.price WHERE price_id = 7")
        connection.execute("INSERT INTO fleet.raw_request VALUES (7, 7, 0, 1, 'x', 0)")
        connection.execute("DELETE FROM fleet.raw_request WHERE request_id = 7")
        connection.execute("SELECT count(*) FROM telemetry.device_1h")
        connection.execute("INSERT INTO advice.transition VALUES (7, 1, 0, NULL, 'OPEN', 'proposed', 'x', 'y')")
        connection.execute("INSERT INTO advice.receipt VALUES (7, 7, NULL, NULL, 'saving', '{}', 'ab', 0)")
        for statement in (
            "UPDATE telemetry.host SET name = 'x'",
            "UPDATE advice.transition SET who = 'z'",
            "DELETE FROM advice.receipt",
            "UPDATE advice.alembic_version SET version_num = '9'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_no_agent_takes_a_host_that_another_login_ships(
    owner_url: str, server: StoreLocation, two_hosts: tuple[StoreLocation, StoreLocation]
) -> None:
    enroll(server, "rights_c", 1)
    with pytest.raises(StoreError, match="shipped by the login rights_b already"):
        shipper(two_hosts[1], login(owner_url, "rights_c")).round()
    assert disown(server, "rights_b") == "rights_b"
    shipper(two_hosts[1], login(owner_url, "rights_c")).round()
    with pytest.raises(StoreError, match="shipped by the login rights_c already"):
        shipper(two_hosts[1], login(owner_url, "rights_b")).round()
