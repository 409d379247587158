"""Sources of a server's password, and the conditions under which it is sent."""

from pathlib import Path

import pytest

from pertoken.config import load
from pertoken.errors import PertokenError
from pertoken.store.connect.location import (
    CREDENTIAL,
    DatabaseServer,
    server_url,
    shipping_server,
    shown,
    without_secret,
)

CANARY = "canary-4711"


def test_it_comes_from_a_file_which_is_read_at_every_connection(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    server = DatabaseServer(server_url("postgresql://x@db.example.com/y", "test"), password_file=str(secret))
    with pytest.raises(PertokenError, match="the password cannot be read from"):
        server.connect()
    secret.write_text(f"{CANARY}\nsecond line\n")
    parameters = server._parameters()
    assert parameters["password"] == CANARY
    assert server.message_of(RuntimeError(f"no: {CANARY}")) == "no: ***"
    assert CANARY not in repr(server) + str(server)
    secret.write_text("another")
    assert server._parameters()["password"] == "another"


def test_it_comes_from_the_service_managers_credential(tmp_path: Path) -> None:
    (tmp_path / CREDENTIAL).write_text(f"postgresql://gpu_1:{CANARY}@db.example.com/pertoken\n")
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    server = shipping_server(load(None, {}), environment)
    assert server is not None and server.url.password == CANARY
    assert str(server) == "postgresql://gpu_1:***@db.example.com/pertoken"
    set_here = shipping_server(load(None, {"PERTOKEN_SHIP_URL": "postgresql://a@b/c"}), environment)
    assert set_here is not None and set_here.url.host == "b"
    (tmp_path / CREDENTIAL).write_text(f"{CANARY} is no URL")
    with pytest.raises(PertokenError) as caught:
        shipping_server(load(None, {}), environment)
    assert CANARY not in str(caught.value)
    assert shipping_server(load(None, {}), {}) is None


@pytest.mark.parametrize(
    ("url", "tls", "mode", "authority"),
    [
        ("postgresql://x@db.example.com/y", None, "verify-full", "system"),
        ("postgresql://x@10.0.0.1/y", None, "verify-full", "system"),
        ("postgresql://x@127.0.0.1/y", None, "prefer", None),
        ("postgresql://x@/y?host=/run/postgresql", None, "prefer", None),
        ("postgresql://x@db.example.com/y?sslmode=require", None, "require", None),
        ("postgresql://x@db.example.com/y?sslmode=require", "verify-full", "verify-full", "system"),
        ("postgresql://x@db.example.com/y", "disable", "disable", None),
    ],
)
def test_a_remote_server_must_present_a_valid_certificate_unless_configured_otherwise(
    url: str, tls: str | None, mode: str, authority: str | None
) -> None:
    parameters = DatabaseServer(server_url(url, "test"), tls=tls)._parameters()
    assert (parameters["sslmode"], parameters.get("sslrootcert")) == (mode, authority)


@pytest.mark.parametrize("name", ["sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"])
def test_no_secret_of_a_url_is_shown(name: str) -> None:
    url = server_url(f"postgresql://u:planted-1@127.0.0.1:1/d?{name}=planted-2&sslcert=/c.pem", "test")
    text = shown(url) + without_secret("error about planted-1 and planted-2", url)
    assert "planted" not in text and f"{name}=***" in text and "c.pem" in text
