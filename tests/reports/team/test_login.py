from base64 import b64encode
from email.message import Message
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.errors import BadInput
from pertoken.reports.team.server import EVERYTHING, Login
from pertoken.settings.fleet import PageReader

TOKEN = "0123456789abcdef"


def headers(*fields: tuple[str, str]) -> Message:
    message = Message()
    for name, value in fields:
        message[name] = value
    return message


def bearer(token: str) -> Message:
    return headers(("Authorization", f"Bearer {token}"))


def with_tokens(folder: Path, *tokens: str) -> tuple[PageReader, ...]:
    files = [folder / f"token-{n}" for n in range(len(tokens))]
    for file, token in zip(files, tokens, strict=True):
        file.write_text(f"{token}\nsecond line\n")
    return tuple(PageReader(token_file=str(file), owners=(file.name,)) for file in files)


def test_a_token_opens_the_pages_of_its_reader_alone(tmp_path: Path) -> None:
    first, second = with_tokens(tmp_path, TOKEN, TOKEN[::-1])
    login = Login(Settings(advisor_pages_readers=(first, second)))
    assert login.reader("10.0.0.1", bearer(TOKEN)) == first
    assert login.reader("10.0.0.1", bearer(TOKEN[::-1])) == second
    basic = b64encode(f"anybody:{TOKEN}".encode()).decode()
    assert login.reader("10.0.0.1", headers(("Authorization", f"Basic {basic}"))) == first


@pytest.mark.parametrize(
    "value",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        TOKEN,
        f"Digest {TOKEN}",
        "Basic ö",
        "Basic ==",
    ],
)
def test_anything_else_opens_nothing(value: str, tmp_path: Path) -> None:
    login = Login(Settings(advisor_pages_readers=with_tokens(tmp_path, TOKEN)))
    assert login.reader("127.0.0.1", headers(("Authorization", value))) is None
    twice = headers(("Authorization", f"Bearer {TOKEN}"), ("Authorization", value))
    assert login.reader("127.0.0.1", twice) is None


def test_a_user_is_believed_from_a_listed_proxy_alone_and_only_once() -> None:
    ann, others = PageReader(user="ann", owners=("search",)), PageReader(user="*", owners=())
    settings = Settings(advisor_pages_readers=(ann, others), advisor_pages_proxies=("10.0.0.7", "fd00::/120"))
    login = Login(settings)
    named = headers(("X-Forwarded-User", "ann"))
    assert login.reader("10.0.0.7", named) == login.reader("::ffff:10.0.0.7", named) == ann
    assert login.reader("fd00::9", headers(("X-Forwarded-User", "bob"))) == others
    assert login.reader("10.0.0.8", named) is None and login.reader("127.0.0.1", named) is None
    assert login.reader("10.0.0.7", headers(("X-Forwarded-User", " "))) is None
    assert login.reader("10.0.0.7", headers(("X-Forwarded-User", "ann"), ("X-Forwarded-User", "bob"))) is None
    assert login.reader("10.0.0.7", headers(("X-Auth-User", "ann"))) is None


def test_without_tls_only_this_host_and_proxies_may_connect() -> None:
    settings = Settings(advisor_pages_readers=(PageReader(user="ann"),), advisor_pages_proxies=("10.0.0.7",))
    login = Login(settings)
    assert login.may_connect("127.0.0.1") and login.may_connect("::1") and login.may_connect("10.0.0.7")
    assert not login.may_connect("10.0.0.8") and not login.may_connect("fe80::1%eth0")
    assert Login(Settings(advisor_pages_cert_file="cert.pem")).may_connect("10.0.0.8")


def test_without_readers_a_request_must_come_from_this_host_and_name_it() -> None:
    login = Login(Settings())
    for host in ("127.0.0.1:9404", "localhost:9404", "[::1]:9404", "localhost"):
        assert login.reader("127.0.0.1", headers(("Host", host))) is EVERYTHING
    for host in ("rebound.example:9404", "10.0.0.1", "", "localhost.example", "127.0.0.1.example:80"):
        assert login.reader("127.0.0.1", headers(("Host", host))) is None
    assert login.reader("10.0.0.8", headers(("Host", "localhost"))) is None
    assert login.reader("127.0.0.1", headers()) is None


def test_a_token_that_is_short_missing_or_shared_is_refused_without_being_shown(tmp_path: Path) -> None:
    for tokens, fault in (((TOKEN[:-1],), "at least 16"), ((TOKEN, TOKEN), "hold one token"), (("",), "is empty")):
        with pytest.raises(BadInput, match=fault) as error:
            Login(Settings(advisor_pages_readers=with_tokens(tmp_path, *tokens)))
        assert TOKEN[:-1] not in str(error.value)
    with pytest.raises(BadInput, match="cannot be read"):
        Login(Settings(advisor_pages_readers=(PageReader(token_file=str(tmp_path / "none")),)))
