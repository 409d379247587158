"""HTTPS, bearer tokens and client certificates: each secret goes to its own server and to nobody else."""

import ssl
import traceback
from pathlib import Path

import pytest

from pertoken.access import Access
from pertoken.agent.engines.reader import EngineReader
from pertoken.agent.host.processes import HostProcesses
from pertoken.agent.readings import Endpoint
from pertoken.agent.scrape import RequestLimits, ScrapeError, get
from tests.agent.engine_pages import read_one
from tests.agent.servers import answering, http, pages

FOLDER = Path(__file__).parent / "certificates"
CA, CLIENT = str(FOLDER / "ca.pem"), str(FOLDER / "client.pem")
PAGE = pages({"/metrics": b"a 1\n"})
SECRET = "s3cret-of-the-tests"


def server_tls(*, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FOLDER / "server.pem")
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA)
    return context


def limits(url: str, **access: str) -> RequestLimits:
    return RequestLimits(5.0, access=(Access(url, **access),))


def refused(url: str, asked: RequestLimits) -> str:
    with pytest.raises(ScrapeError) as caught:
        get(f"{url}/metrics", asked)
    assert caught.value.kind == "access"
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return caught.value.message


def test_a_private_authority_is_believed_where_it_is_named() -> None:
    with answering(PAGE, server_tls()) as url:
        assert get(f"{url}/metrics", limits(url, ca_file=CA)).body == b"a 1\n"
        assert "no trusted connection" in refused(url, RequestLimits(5.0))
        assert "no trusted connection" in refused(url, limits("https://other:8000", ca_file=CA))


def test_a_certificate_made_out_to_another_name_is_believed_only_under_that_name() -> None:
    with answering(PAGE, server_tls()) as url:
        assert get(f"{url}/metrics", limits(url, ca_file=CA, server_name="gpu-1")).body == b"a 1\n"
        assert "no trusted connection" in refused(url, limits(url, ca_file=CA, server_name="gpu-2"))


def test_a_client_certificate_is_shown_to_a_server_that_asks() -> None:
    with answering(PAGE, server_tls(asks=True)) as url:
        assert get(f"{url}/metrics", limits(url, ca_file=CA, cert_file=CLIENT)).body == b"a 1\n"
        with pytest.raises(ScrapeError):
            get(f"{url}/metrics", limits(url, ca_file=CA))


def test_a_token_is_read_when_it_is_sent_and_sent_only_where_it_belongs(tmp_path: Path) -> None:
    file = tmp_path / "token"
    asked: list[str] = []
    with answering(PAGE, asked=asked) as url:
        for token in (SECRET, "another"):
            file.write_text(f"{token}\n")
            get(f"{url}/metrics", limits(url, token_file=str(file)))
        get(f"{url}/metrics", limits(f"{url}0", token_file=str(file)))
        get(f"{url}/metrics", RequestLimits(5.0))
    assert [f"Authorization: Bearer {token}" in asked[n] for n, token in enumerate((SECRET, "another"))] == [True, True]
    assert not any("Authorization" in request for request in asked[2:])


def test_a_token_from_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_TOKEN", SECRET)
    asked: list[str] = []
    with answering(PAGE, asked=asked) as url:
        get(f"{url}/metrics", limits(url, token_env="ENGINE_TOKEN"))
    assert f"Authorization: Bearer {SECRET}" in asked[0]


def test_a_page_below_two_base_urls_gets_the_token_of_the_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_TOKEN", "of-the-host")
    monkeypatch.setenv("CHAT_TOKEN", SECRET)
    asked: list[str] = []
    with answering(pages({"/chat/metrics": b"a 1\n"}), asked=asked) as url:
        rows = (Access(url, token_env="HOST_TOKEN"), Access(f"{url}/chat", token_env="CHAT_TOKEN"))
        get(f"{url}/chat/metrics", RequestLimits(5.0, access=rows))
    assert f"Authorization: Bearer {SECRET}" in asked[0]


@pytest.mark.parametrize("text", ["", f"{SECRET} and more", f"{SECRET}\nX-Header: 1", f"{SECRET}\x00", "tökén"])
def test_an_invalid_token_is_refused_without_repeating_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    assert "holds no token" in refused("http://127.0.0.1:9", limits("http://127.0.0.1:9", token_file=str(file)))


def test_files_that_cannot_be_read_are_named() -> None:
    url = "https://127.0.0.1:9"
    assert "/nowhere/token: No such file" in refused(url, limits(url, token_file="/nowhere/token"))
    assert "/nowhere/ca.pem: No such file" in refused(url, limits(url, ca_file="/nowhere/ca.pem"))
    assert "/etc/hostname" in refused(url, limits(url, cert_file="/etc/hostname"))


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_refuses_access_is_a_fault_that_names_the_setting_of_its_key(tmp_path: Path, status: int) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    echo = http(f"you sent {SECRET}".encode(), status=status)
    with answering(lambda connection, path: connection.sendall(echo)) as url:
        endpoint = Endpoint("vllm", url, "setting")
        reader = EngineReader(endpoint, limits(url, token_file=str(file)), processes=lambda: HostProcesses({}))
        reading = read_one(reader)
    assert reading.fault_kind == "access"
    assert "agent.access" in (reading.remedy or "")
    assert SECRET not in repr(reading)
