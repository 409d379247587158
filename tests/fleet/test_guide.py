"""docs/fleet.md: its statements run as they are written."""

import re
import ssl
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from sqlalchemy import make_url

from pertoken.cli import main
from pertoken.store.central.server import enroll, let_read
from pertoken.store.connect.location import DatabaseServer, StoreLocation, server_url
from tests.fleet.pgbouncer import PROGRAM, pgbouncer_of
from tests.fleet.servers import execute, host, login, scalar, shipper
from tests.fleet.tls import behind_tls
from tests.postgres import server_url as started

GUIDE = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text(encoding="utf-8")


def test_a_pooler_reads_verifiers_of_hosts_and_readers_but_not_of_more_privileged_logins(
    owner_url: str, server: StoreLocation
) -> None:
    (statements,) = re.findall(r"```sql\n(CREATE ROLE pgbouncer.*?)```", GUIDE, re.DOTALL)
    execute(server, statements)
    enroll(server, "guide_host", 1)
    let_read(server, "guide_reader")
    execute(server, "CREATE ROLE guide_owner LOGIN CREATEROLE PASSWORD 'x'")
    (query,) = re.findall(r"^auth_query = (.*)$", GUIDE, re.MULTILINE)
    query = query.replace("$1", "%s")
    with login(owner_url, "pgbouncer").connect() as connection:
        for name, known in (("guide_host", 1), ("guide_reader", 1), ("guide_owner", 0), ("postgres", 0), ("nobody", 0)):
            verifiers = connection.execute(query, (name,)).fetchall()
            assert len(verifiers) == known and all(
                verifier[1].startswith("SCRAM-SHA-256$") for verifier in verifiers
            ), name
    with login(owner_url, "guide_host").connect() as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(query, ("guide_reader",))
    assert scalar(server, "SELECT count(*) FROM pg_proc WHERE proname = 'get_auth'") == 1


def test_the_guide_names_every_command_for_logins() -> None:
    for command in (
        "--reader",
        "--advisor",
        "--new-password",
        "--via",
        "remove-login",
        "disown",
        ".pgpass",
        "ship.ca_file",
    ):
        assert command in GUIDE, command


CERTIFICATES = Path(__file__).parents[1] / "agent" / "scrape" / "certificates"
CA, PAIR = CERTIFICATES / "ca.pem", CERTIFICATES / "server.pem"
HOSTS = ("gpu-1", "gpu-2", "gpu-3")


@pytest.mark.skipif(PROGRAM is None, reason="the Debian package pgbouncer is not installed")
def test_an_empty_server_behind_a_pooler_with_tls_shows_three_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PAIR)
    passwords = tmp_path / "pgpass"
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setenv("PGSSLROOTCERT", str(CA))
    with started(tmp_path / "server") as superuser, behind_tls(make_url(superuser), context) as direct:
        made, pooled = re.findall(r"```sql\n(.*?)```", GUIDE, re.DOTALL)
        for statement in re.sub("--.*", "", made.replace("'…'", "'owner-secret'")).split(";"):
            run_as(superuser, statement)
        hba = tmp_path / "server" / "pg_hba.conf"
        hba.write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        run_as(superuser, "SELECT pg_reload_conf()")
        remember(passwords, "owner", "owner-secret")
        owner = f"postgresql://owner@127.0.0.1:{direct}/pertoken"
        cli("db", "init-fleet", owner, "--dry-run")
        cli("db", "init-fleet", owner)
        run_as(make_url(superuser).set(database="pertoken"), pooled.replace("'…'", "'pooler-secret'"))
        userlist = tmp_path / "userlist.txt"
        userlist.write_text('"pgbouncer" "pooler-secret"\n')
        (ini,) = re.findall(r"```ini\n(.*?)```", GUIDE, re.DOTALL)
        for quoted, local in (
            ("host=db.example.com port=5432", f"host=127.0.0.1 port={direct}"),
            ("listen_addr = *", "listen_addr = 127.0.0.1\nunix_socket_dir ="),
            ("6432", "{port}"),
            ("/etc/pgbouncer/userlist.txt", str(userlist)),
            ("/etc/pgbouncer/pooler.crt", str(PAIR)),
            ("/etc/pgbouncer/pooler.key", str(PAIR)),
            ("/etc/ssl/certs/ca-certificates.crt", str(CA)),
        ):
            assert quoted in ini
            ini = ini.replace(quoted, local)
        system_user = Path(str(make_url(superuser).query["host"])).owner()
        with pgbouncer_of(tmp_path / "pooler", ini, system_user) as port:
            now = int(time.time()) // 60 * 60
            for name in HOSTS:
                line = cli("db", "enroll", name.replace("-", "_"), "--db", owner, "--via", f"127.0.0.1:{port}")
                ships = DatabaseServer(server_url(line.strip(), "test"), ca_file=str(CA))
                shipper(host(tmp_path / name, host=name, minutes=3, end_ts=now), ships).round()
            line = cli("db", "enroll", "someone", "--reader", "--db", owner, "--via", f"127.0.0.1:{port}")
            remember(passwords, "someone", str(make_url(line.strip()).password))
            for where in (port, direct):
                screen = cli("top", "--once", "--db", f"postgresql://someone@127.0.0.1:{where}/pertoken")
                assert all(name in screen for name in HOSTS), screen


def cli(*command: str) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return done.stdout


def remember(passwords: Path, user: str, password: str) -> None:
    """Add a line to a .pgpass file."""
    with passwords.open("a") as file:
        file.write(f"*:*:*:{user}:{password}\n")
    passwords.chmod(0o600)


def run_as(url: Any, statements: str) -> None:
    """Run statements one by one as the server's superuser."""
    where = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    if statements.strip():
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(statements)
