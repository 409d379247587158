"""Shipping over TLS: to a server that proves itself, and to no other."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from pertoken.errors import StoreError
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import DatabaseServer, StoreLocation
from tests.fleet.servers import host, local_rows, login, server_rows, shipper
from tests.fleet.tls import behind_tls

CERTIFICATES = Path(__file__).parents[1] / "agent" / "scrape" / "certificates"
CA, CLIENT = str(CERTIFICATES / "ca.pem"), str(CERTIFICATES / "client.pem")


@pytest.fixture
def context() -> ssl.SSLContext:
    """What a server shows: its certificate, made out to 127.0.0.1 by a private authority."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "server.pem")
    return tls


def by_tcp(server: DatabaseServer, port: int, name: str = "127.0.0.1", **more: str) -> DatabaseServer:
    url = server.url.set(host=name, port=port).difference_update_query(["host"])
    return replace(server, url=url, tls="verify-full", **more)


def test_rows_go_to_a_server_that_proves_itself_by_the_named_authority(
    owner_url: str, server: StoreLocation, tmp_path: Path, context: ssl.SSLContext
) -> None:
    enroll(server, "tls_host", 1)
    where = host(tmp_path, host="tls-host", minutes=3)
    with behind_tls(make_url(owner_url), context) as port:
        known = by_tcp(login(owner_url, "tls_host"), port, ca_file=CA)
        with known.connect() as connection:
            assert connection.pgconn.ssl_in_use
        shipper(where, known).round()
        assert server_rows(server, where) == local_rows(where) != {}
        for unknown in (
            by_tcp(login(owner_url, "tls_host"), port),  # the system's authorities do not vouch for it
            by_tcp(login(owner_url, "tls_host"), port, "localhost", ca_file=CA),  # made out to another name
        ):
            with pytest.raises(StoreError, match="certificate"):
                shipper(where, unknown).round()


def test_nothing_is_shipped_in_the_clear_where_the_server_must_prove_itself(owner_url: str, tmp_path: Path) -> None:
    with behind_tls(make_url(owner_url), None) as port:
        plain = by_tcp(login(owner_url, "tls_host"), port, ca_file=CA)
        with pytest.raises(StoreError, match="does not support SSL"):
            shipper(host(tmp_path, minutes=2), plain).round()


def test_a_client_certificate_is_shown_to_a_server_that_asks(
    owner_url: str, tmp_path: Path, context: ssl.SSLContext
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(Path(CLIENT).read_bytes())
    key.chmod(0o600)  # others may not read it, or libpq refuses it
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(CA)
    with behind_tls(make_url(owner_url), context) as port:
        owner = DatabaseServer(make_url(owner_url).set(drivername="postgresql+psycopg"))
        with by_tcp(owner, port, ca_file=CA, cert_file=CLIENT, key_file=str(key)).connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        with pytest.raises(StoreError):
            by_tcp(owner, port, ca_file=CA).connect()
