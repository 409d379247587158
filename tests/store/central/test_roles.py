"""An agent's login reaches its own hosts' rows and nothing else; readers read; advisors keep advice."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.errors import StoreError
from pertoken.store.central.logins import disown, enroll
from pertoken.store.connect.location import StoreLocation
from pertoken.store.sync.read import Local
from pertoken.store.write.outbox import ROLLED
from tests.fleet.servers import NOW, ask, change, host, login, shipper


@pytest.fixture(scope="module")
def two_hosts(
    owner_url: str, server: StoreLocation, tmp_path_factory: pytest.TempPathFactory
) -> tuple[StoreLocation, StoreLocation]:
    """Hosts of the logins `rights_a` and `rights_b`, shipped."""
    found = []
    for name in ("rights_a", "rights_b"):
        where = host(tmp_path_factory.mktemp(name), host=name, minutes=70)
        enroll(server, name, 1)
        shipper(where, login(owner_url, name)).round()
        found.append(where)
    return found[0], found[1]


@pytest.fixture
def as_a(owner_url: str, two_hosts: tuple[StoreLocation, StoreLocation]) -> Iterator["psycopg.Connection[Any]"]:
    with login(owner_url, "rights_a").connect() as connection:
        connection.autocommit = True
        yield connection


def ids(where: StoreLocation, owner: str) -> list[int]:
    found = Local(where).here()
    assert found is not None
    return list(found.owners[owner])


@pytest.mark.parametrize("source", ROLLED, ids=lambda each: each.name)
def test_an_agent_neither_sees_nor_changes_nor_adds_rows_of_another_host(
    as_a: "psycopg.Connection[Any]", two_hosts: tuple[StoreLocation, StoreLocation], source: Any
) -> None:
    table, owner = source.tables[0]
    theirs = ids(two_hosts[1], owner)
    query = f"SELECT count(*) FROM {table.fullname} WHERE {owner} = ANY (%s)"
    assert as_a.execute(query, (theirs,)).fetchall() == [(0,)]
    changed = as_a.execute(f"UPDATE {table.fullname} SET revision = 99 WHERE {owner} = ANY (%s)", (theirs,))
    assert changed.rowcount == 0
    columns = ", ".join(column.name for column in table.columns)
    values = ", ".join(
        str(theirs[0]) if column.name == owner else "'x'" if column.name == "metric" else str(NOW)
        for column in table.columns
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        as_a.execute(f"INSERT INTO {table.fullname} ({columns}) VALUES ({values})")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM telemetry.device_1m",
        "TRUNCATE telemetry.device_1m",
        "DROP TABLE telemetry.device_1m",
        "DELETE FROM fleet.shipped",
        "UPDATE fleet.enrolment SET role_name = 'rights_a'",
        "INSERT INTO fleet.agent VALUES ('rights_a', 1000) ON CONFLICT (role_name) DO UPDATE SET most_hosts = 1000",
        "SELECT * FROM fleet.enrolment",
        "SELECT * FROM advice.price",
        "INSERT INTO telemetry.outbox VALUES ('x', 1, 1, 1)",
        "SELECT * FROM telemetry.device_1m_rest",
        "INSERT INTO telemetry.host_1m_rest (host_id, ts) VALUES (1, 1)",
        "UPDATE fleet.raw_request SET host_id = 1",
    ],
)
def test_an_agent_can_do_nothing_else(as_a: "psycopg.Connection[Any]", statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_a.execute(statement)


def test_a_reader_reads_everything_and_changes_nothing(
    owner_url: str, server: StoreLocation, two_hosts: tuple[StoreLocation, StoreLocation]
) -> None:
    change(server, "CREATE ROLE rights_reader LOGIN; GRANT pertoken_reader TO rights_reader")
    with login(owner_url, "rights_reader").connect() as connection:
        connection.autocommit = True
        (n,) = connection.execute("SELECT count(*) FROM telemetry.device_1m").fetchall()[0]
        assert n == ask(server, "SELECT count(*) FROM telemetry.device_1m") > 0
        connection.execute("SELECT count(*) FROM advice.recommendation")
        for table in ("telemetry.host", "telemetry.device_1m", "telemetry.event", "advice.price", "fleet.raw_request"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"DELETE FROM {table}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"INSERT INTO {table} DEFAULT VALUES")


def test_a_login_that_may_not_is_told_which_one_may(owner_url: str, server: StoreLocation) -> None:
    change(server, "CREATE ROLE rights_looker LOGIN; GRANT pertoken_reader TO rights_looker")
    url = login(owner_url, "rights_looker").url.set(drivername="postgresql").render_as_string(hide_password=False)
    done = CliRunner().invoke(main, ["advise", "--db", url])
    assert done.exit_code == 1
    assert "rights_looker may not do this" in done.output and "one of pertoken_advisor" in done.output
    assert len(done.output.splitlines()) == 1 and "psycopg" not in done.output


def test_an_advisor_keeps_advice_and_asks_for_ticks_but_writes_no_telemetry(
    owner_url: str, server: StoreLocation
) -> None:
    change(server, "CREATE ROLE rights_advisor LOGIN; GRANT pertoken_advisor TO rights_advisor")
    with login(owner_url, "rights_advisor").connect() as connection:
        connection.autocommit = True
        connection.execute("INSERT INTO advice.price VALUES (7, 'gpu', 1, 0, 0, 'x', NULL, 1)")
        connection.execute("DELETE FROM advice.price WHERE price_id = 7")
        connection.execute("INSERT INTO fleet.raw_request VALUES (7, 7, 0, 1, 'x', 0)")
        connection.execute("DELETE FROM fleet.raw_request WHERE request_id = 7")
        connection.execute("SELECT count(*) FROM telemetry.device_1h")
        for statement in (
            "UPDATE telemetry.host SET name = 'x'",
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
