"""Logins of hosts: enrolled, bounded, without a password at rest."""

from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from pertoken.cli import main
from pertoken.errors import BadInput, StoreError
from pertoken.store.central.server import enroll, remove
from pertoken.store.connect.location import StoreLocation
from tests.fleet.servers import execute, host, login, scalar, server_rows, shipper


def test_a_login_ships_no_more_hosts_than_it_may(owner_url: str, server: StoreLocation, tmp_path: Path) -> None:
    enroll(server, "rights_relay", 1)
    first, second = (host(tmp_path / name, host=name, minutes=2) for name in ("relay-1", "relay-2"))
    shipper(first, login(owner_url, "rights_relay")).round()
    with pytest.raises(StoreError, match="--hosts N raises that"):
        shipper(second, login(owner_url, "rights_relay")).round()
    enroll(server, "rights_relay", 2)
    shipper(second, login(owner_url, "rights_relay")).round()
    assert server_rows(server, second)["host_1m"] and server_rows(server, first)["host_1m"]


def test_a_login_that_is_not_enrolled_gets_the_command_to_enroll_it(
    owner_url: str, server: StoreLocation, tmp_path: Path
) -> None:
    execute(server, "CREATE ROLE rights_stranger LOGIN; GRANT pertoken_agent TO rights_stranger")
    with pytest.raises(StoreError, match="not enrolled here: run pertoken db enroll rights_stranger"):
        shipper(host(tmp_path, host="stranger", minutes=2), login(owner_url, "rights_stranger")).round()


def test_a_password_is_sent_as_its_verifier_only(server: StoreLocation) -> None:
    password = enroll(server, "rights_password", 1)
    assert password and len(password) >= 32
    stored = scalar(server, "SELECT rolpassword FROM pg_authid WHERE rolname = 'rights_password'")
    assert stored.startswith("SCRAM-SHA-256$") and password not in stored
    assert enroll(server, "rights_password", 2) is None


def test_readers_and_advisors_are_made_by_one_command_and_ship_nothing(owner_url: str, server: StoreLocation) -> None:
    for name, group in (("rights_made_reader", "reader"), ("rights_made_advisor", "advisor")):
        done = CliRunner().invoke(
            main, ["db", "enroll", name, f"--{group}", "--via", "pooler.example.com:6432", "--db", owner_url]
        )
        assert done.exit_code == 0, done.output
        assert f"postgresql://{name}:" in done.stdout and "@pooler.example.com:6432/" in done.stdout
        with login(owner_url, name).connect() as connection:
            connection.autocommit = True
            connection.execute("SELECT count(*) FROM telemetry.device_1m")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT fleet.enter(1, ARRAY[1::bigint])")


def test_a_password_is_replaced_only_where_that_is_asked_for(server: StoreLocation) -> None:
    stored = "SELECT rolpassword FROM pg_authid WHERE rolname = 'rights_rotated'"
    first, before = enroll(server, "rights_rotated", 1), scalar(server, stored)
    assert enroll(server, "rights_rotated", 1) is None and scalar(server, stored) == before
    second = enroll(server, "rights_rotated", 1, new_password=True)
    assert second and second != first and scalar(server, stored) != before


def test_a_removed_login_is_gone_with_its_sessions_and_its_hosts_are_free(
    owner_url: str, server: StoreLocation, tmp_path: Path
) -> None:
    enroll(server, "rights_leaving", 1)
    enroll(server, "rights_coming", 1)
    where = host(tmp_path, host="left", minutes=2)
    shipper(where, login(owner_url, "rights_leaving")).round()
    with login(owner_url, "rights_leaving").connect() as connection:
        assert remove(server, "rights_leaving") == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(StoreError, match="rights_leaving"):
        login(owner_url, "rights_leaving").connect()
    shipper(where, login(owner_url, "rights_coming")).round()
    assert server_rows(server, where)["host_1m"]
    for name in ("postgres", "nobody", "pertoken_agent"):
        with pytest.raises(BadInput, match="is no login of a host, reader or advisor"):
            remove(server, name)
