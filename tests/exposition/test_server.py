import contextlib
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pertoken.errors import BadInput
from pertoken.exposition import MetricsServer


def get(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_page_is_served_at_its_path_alone_also_after_a_client_that_broke_off() -> None:
    server = MetricsServer(("127.0.0.1", 0), lambda: "up 1\n")
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /met")
        assert get(f"http://127.0.0.1:{server.port}/metrics") == (200, "up 1\n")
        assert get(f"http://127.0.0.1:{server.port}/")[0] == 404
    finally:
        server.stop()


def test_a_token_is_asked_for_where_one_is_set(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    server = MetricsServer(("127.0.0.1", 0), lambda: "up 1\n", token_file=str(file))
    server.start()
    url = f"http://127.0.0.1:{server.port}/metrics"
    try:
        assert get(url)[0] == 401 and get(url, "wrong")[0] == 401 and get(url, "s3cret") == (200, "up 1\n")
    finally:
        server.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return files of a certificate for 127.0.0.1 and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


def test_a_certificate_makes_it_tls(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    server = MetricsServer(("127.0.0.1", 0), lambda: "up 1\n", cert_file=cert, key_file=key)
    server.start()
    try:
        context = ssl.create_default_context(cafile=cert)
        assert get(f"https://127.0.0.1:{server.port}/metrics", context=context) == (200, "up 1\n")
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            get(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.stop()


def test_pages_of_clients_at_a_time_are_made_one_after_another() -> None:
    together = threading.Barrier(2)

    def page() -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(0.5)
            return "two at a time\n"
        return "up 1\n"

    server = MetricsServer(("127.0.0.1", 0), page)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        with ThreadPoolExecutor(2) as clients:
            assert set(clients.map(get, [url] * 2)) == {(200, "up 1\n")}
    finally:
        server.stop()


def test_a_token_or_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"metrics_token_file: .*none: cannot be read"):
        MetricsServer(("127.0.0.1", 0), str, token_file=str(tmp_path / "none"))
    with pytest.raises(BadInput, match=r"metrics_cert_file: .*none: cannot be used"):
        MetricsServer(("127.0.0.1", 0), str, cert_file=str(tmp_path / "none"))
