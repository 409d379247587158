import hashlib
import hmac
import socket
import threading

import pytest

from pertoken.reports.delivery import NotDelivered, post, signature
from tests.reports.receivers import receiver
from tests.trickle import trickling

BODY = b'{"alert": "dear"}'


def test_a_post_is_signed_over_its_time_and_body() -> None:
    with receiver() as hook:
        assert post(f"{hook.url}/a?b=c", BODY, 1_795_392_000, secret=b"s3cret", delivery_id="d1") == 204
        ((path, headers, body),) = hook.posts
    wanted = hmac.new(b"s3cret", b"1795392000." + BODY, hashlib.sha256).hexdigest()
    assert (path, body) == ("/a?b=c", BODY) and headers["Pertoken-Signature"] == f"v1={wanted}"
    assert headers["Pertoken-Time"] == "1795392000" and headers["Pertoken-Delivery"] == "d1"
    assert signature(b"s3cret", 1, BODY) != signature(b"s3cret", 2, BODY)


def test_a_redirect_is_not_followed_and_an_error_is_reported_without_the_path() -> None:
    with receiver() as hook:
        hook.statuses += [302, 500]
        with pytest.raises(NotDelivered, match=r"/\*\*\*: answered with a redirect \(302\)"):
            post(f"{hook.url}/token-abc", BODY, 0)
        with pytest.raises(NotDelivered, match="status 500") as error:
            post(f"{hook.url}/token-abc", BODY, 0)
        assert len(hook.posts) == 2 and "token-abc" not in str(error.value)


@pytest.mark.parametrize("address", ["10.0.0.7", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "fe80::1%eth0"])
def test_a_public_name_that_resolves_to_a_private_address_is_refused(address: str) -> None:
    with pytest.raises(NotDelivered, match=r"private address; name the host in delivery.own_hosts"):
        post("https://hooks.example.com/x", BODY, 0, resolve=lambda host, port: ["93.184.215.14", address])


def test_a_host_of_one_s_own_may_resolve_to_a_private_address() -> None:
    with receiver() as hook:
        port = hook.url.rpartition(":")[2]
        url = f"http://hooks.internal:{port}/x"
        with pytest.raises(NotDelivered):
            post(url, BODY, 0, resolve=lambda host, port: ["127.0.0.1"])
        post(url, BODY, 0, own_hosts=("hooks.internal",), resolve=lambda host, port: ["127.0.0.1"])
        ((_, headers, _),) = hook.posts
        assert headers["Host"] == f"hooks.internal:{port}"


def test_a_server_that_is_not_there_is_reported() -> None:
    with receiver() as hook:
        url = hook.url
    with pytest.raises(NotDelivered, match="Connection refused"):
        post(url, BODY, 0)


def test_a_server_that_answers_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pertoken.reports.delivery.TIMEOUT_S", 0.5)
    ended = threading.Event()

    def answer() -> None:
        client, _ = listening.accept()
        with client, trickling(client, b"HTTP/1.1 200 OK\r\nX: "):
            ended.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(NotDelivered, match=r"did not answer within 0.5 s"):
                post(f"http://127.0.0.1:{listening.getsockname()[1]}/x", BODY, 0)
        finally:
            ended.set()
            thread.join()
