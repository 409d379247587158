"""Everything works through a pooler that hands each transaction to whatever session is free."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pertoken.costs.report.fleet_report import fleet_report
from pertoken.errors import StoreError
from pertoken.store.central.server import enroll
from pertoken.store.connect.location import DatabaseServer, StoreLocation, locate, server_url
from pertoken.store.connect.open import open_store
from tests.fleet.pgbouncer import PROGRAM, pgbouncer
from tests.fleet.servers import NOW, host, local_rows, scalar, server_rows, shipper

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="the Debian package pgbouncer is not installed")
HOSTS = 3


@pytest.fixture(scope="module")
def sockets(owner_url: str, server: StoreLocation) -> Path:
    assert server.url is not None
    enroll(server, "pooled", HOSTS)
    return Path(str(server.url.query["host"]))


@pytest.fixture
def pooled(sockets: Path, tmp_path: Path) -> Iterator[DatabaseServer]:
    """The server through one session for everybody."""
    with pgbouncer(tmp_path / "pooler", sockets, "pooled") as port:
        yield DatabaseServer(server_url(f"postgresql://pooled@127.0.0.1:{port}/postgres", "test"))


def test_hosts_that_share_one_session_ship_at_once(
    server: StoreLocation, pooled: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pertoken.agent.shipper.child.MARKS", 100)
    hosts = [host(tmp_path / f"h{i}", host=f"pooled-{i}", minutes=65) for i in range(HOSTS)]
    faults: list[BaseException] = []

    def ship(where: StoreLocation) -> None:
        try:
            for _ in range(2):
                shipper(where, pooled).round()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=ship, args=(where,)) for where in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    for where in hosts:
        assert server_rows(server, where) == local_rows(where)
    assert scalar(server, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'pooled'") <= 1


def test_screens_read_through_it_too(server: StoreLocation, sockets: Path, tmp_path: Path) -> None:
    with pgbouncer(tmp_path / "pooler", sockets, "postgres") as port:
        through = open_store(locate(f"postgresql://postgres@127.0.0.1:{port}/postgres"))
        for _ in range(3):
            report = fleet_report(through, 3600, NOW)
        assert report.devices == fleet_report(open_store(server), 3600, NOW).devices


def test_a_certificate_is_believed_only_by_its_authority_and_for_its_name(sockets: Path, tmp_path: Path) -> None:
    authority, key, certificate = (tmp_path / name for name in ("ca.pem", "key.pem", "cert.pem"))
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    for name, out in (("127.0.0.1", certificate), ("127.0.0.9", authority)):
        subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{name}"]
        into = ["-keyout", str(key.with_suffix(f".{name}")), "-out", str(out)]
        subprocess.run([*make, *subject, *into], check=True, capture_output=True)
    tls = f"client_tls_sslmode = require\nclient_tls_key_file = {key.with_suffix('.127.0.0.1')}\n"
    tls += f"client_tls_cert_file = {certificate}\n"
    with pgbouncer(tmp_path / "pooler", sockets, "pooled", more=tls) as port:
        url = server_url(f"postgresql://pooled@127.0.0.1:{port}/postgres", "test")
        with DatabaseServer(url, tls="verify-full", ca_file=str(certificate)).connect() as connection:
            assert connection.execute("SELECT session_user").fetchall() == [("pooled",)]
        for server in (
            DatabaseServer(url, tls="verify-full"),
            DatabaseServer(url, tls="verify-full", ca_file=str(authority)),
        ):
            with pytest.raises(StoreError, match="certificate"):
                server.connect()
        with pytest.raises(StoreError, match="SSL required"):
            DatabaseServer(url, tls="disable").connect()
