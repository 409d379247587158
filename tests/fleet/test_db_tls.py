"""`--db postgresql://…` of a server elsewhere: it proves itself before it gets a password, in every command."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from pertoken.store.connect.location import tls_defaults

SECRET = "planted-secret"
_ASK_FOR_PASSWORD = b"R\0\0\0\x08\0\0\0\x03"


class FakeServer:
    """Refuses TLS, asks whoever connects for the password in clear text, and keeps what it gets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = bytearray()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    first = connection.recv(4096)
                    if len(first) == 8:  # asks for TLS
                        connection.sendall(b"N")
                        first = connection.recv(4096)
                    if first:
                        connection.sendall(_ASK_FOR_PASSWORD)
                        self.received += connection.recv(4096)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.close()


@pytest.mark.parametrize("command", [["top"], ["costs"], ["prices", "set", "1", "--for", "gpu"], ["db", "maintain"]])
def test_a_fake_server_gets_no_password_from_any_command(fake: FakeServer, command: list[str]) -> None:
    url = f"postgresql://someone:{SECRET}@db.example.com:{fake.port}/fleet?hostaddr=127.0.0.1"
    done = subprocess.run(
        [sys.executable, "-m", "pertoken", *command, "--db", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert bytes(fake.received) == b""
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert SECRET not in line and "sslmode=disable" in line


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("postgresql://u@db.example.com/d", {}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("postgresql://u@10.0.0.1/d?sslrootcert=/ca.pem", {}, {"sslmode": "verify-full"}),
        ("postgresql://u@db.example.com/d?sslmode=disable", {}, {}),
        ("postgresql://u@db.example.com/d?sslmode=verify-full", {}, {"sslrootcert": "system"}),
        ("postgresql://u@db.example.com/d", {"PGSSLMODE": "require"}, {}),
        ("postgresql://u@db.example.com/d", {"PGSSLROOTCERT": "/ca.pem"}, {"sslmode": "verify-full"}),
        ("postgresql://u@localhost/d", {}, {"sslmode": "prefer"}),
        ("postgresql://u@localhost/d?hostaddr=10.0.0.1", {}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("postgresql://u@/d?host=/run/postgresql", {}, {"sslmode": "prefer"}),
        ("postgresql://u@/d?host=127.0.0.1:1&host=b:2", {}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("postgresql://u@/d", {}, {"sslmode": "prefer"}),
        ("postgresql://u@/d", {"PGHOST": "db.example.com"}, {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("postgresql://u@/d?service=fleet", {}, {"sslmode": "verify-full", "sslrootcert": "system"}),
    ],
)
def test_a_server_elsewhere_must_prove_itself_unless_the_person_chose_otherwise(
    url: str, environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert tls_defaults(make_url(url), environment) == expected
