"""Logins of hosts: enrolled, bounded, without a password at rest."""

from pathlib import Path

import pytest

from pertoken.errors import StoreError
from pertoken.store.central.logins import enroll
from pertoken.store.connect.location import StoreLocation
from tests.fleet.servers import ask, change, host, login, shipper, there


def test_a_login_ships_no_more_hosts_than_it_may(owner_url: str, server: StoreLocation, tmp_path: Path) -> None:
    enroll(server, "rights_relay", 1)
    first, second = (host(tmp_path / name, host=name, minutes=2) for name in ("relay-1", "relay-2"))
    shipper(first, login(owner_url, "rights_relay")).round()
    with pytest.raises(StoreError, match="--hosts N raises that"):
        shipper(second, login(owner_url, "rights_relay")).round()
    enroll(server, "rights_relay", 2)
    shipper(second, login(owner_url, "rights_relay")).round()
    assert there(server, second)["host_1m"] and there(server, first)["host_1m"]


def test_a_login_that_is_not_enrolled_is_told_how_to_be(owner_url: str, server: StoreLocation, tmp_path: Path) -> None:
    change(server, "CREATE ROLE rights_stranger LOGIN; GRANT pertoken_agent TO rights_stranger")
    with pytest.raises(StoreError, match="not enrolled here: run pertoken db enroll rights_stranger"):
        shipper(host(tmp_path, host="stranger", minutes=2), login(owner_url, "rights_stranger")).round()


def test_a_password_is_sent_as_its_verifier_only(server: StoreLocation) -> None:
    password = enroll(server, "rights_password", 1)
    assert password and len(password) >= 32
    stored = ask(server, "SELECT rolpassword FROM pg_authid WHERE rolname = 'rights_password'")
    assert stored.startswith("SCRAM-SHA-256$") and password not in stored
    assert enroll(server, "rights_password", 2) is None
