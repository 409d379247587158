from pathlib import Path

import pytest

from pertoken.config import load
from pertoken.errors import BadInput
from pertoken.settings.fleet import PageReader, read_header_name, read_networks, read_readers, unsafe_pages

TOKEN = PageReader(token_file="/etc/pages")
USER = PageReader(user="ann")


def test_readers_have_one_login_and_the_owners_they_read() -> None:
    rows = [{"token_file": " /etc/pages "}, {"user": "ann", "owners": ["search "]}, {"user": "*", "owners": []}]
    assert read_readers(rows) == (TOKEN, PageReader(user="ann", owners=("search",)), PageReader(user="*", owners=()))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("token", "must be a list of tables"),
        ([{}], "reader 1: must have token_file or user"),
        ([{"user": "ann", "token_file": "f"}], "reader 1: must have token_file or user"),
        ([{"user": "ann"}, {"user": " "}], "reader 2.user: must be text"),
        ([{"user": "ann", "owner": "search"}], "reader 1.owner: no such key"),
        ([{"user": "ann", "owners": "search"}], "reader 1.owners: must be a list"),
        ([{"user": "ann", "owners": [""]}], "reader 1.owners: must be a list"),
    ],
)
def test_other_readers_are_refused(value: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_readers(value)


def test_proxies_are_addresses_and_never_everybody() -> None:
    assert read_networks([" 10.0.0.7", "10.0.1.0/28", "::1"]) == ("10.0.0.7", "10.0.1.0/28", "::1")
    for value in ("0.0.0.0/0", "::/0", "proxy.internal", "10.0.0.7/24", ""):
        with pytest.raises(ValueError, match=r"every address|is not an address"):
            read_networks([value])
    with pytest.raises(ValueError, match="must be a list"):
        read_networks(None)


def test_a_header_is_a_name() -> None:
    assert read_header_name("X-Auth-User") == "X-Auth-User"
    for value in ("X-User: ann", "X User", "", "X\r\nY", "X_User", 1):
        with pytest.raises(ValueError, match="name of a header"):
            read_header_name(value)


@pytest.mark.parametrize(
    ("host", "readers", "proxies", "cert_file", "fault"),
    [
        ("127.0.0.1", (), (), None, None),
        ("0.0.0.0", (), (), None, "set advisor.pages_readers"),
        ("0.0.0.0", (), (), "cert.pem", "set advisor.pages_readers"),
        ("::", (TOKEN,), (), None, "set advisor.pages_cert_file"),
        ("0.0.0.0", (TOKEN,), (), "cert.pem", None),
        ("0.0.0.0", (TOKEN, USER), ("10.0.0.7",), None, None),
        ("127.0.0.1", (), ("127.0.0.1",), None, "set advisor.pages_readers"),
        ("127.0.0.1", (USER,), (), None, "set advisor.pages_proxies"),
        ("0.0.0.0", (USER,), (), "cert.pem", "set advisor.pages_proxies"),
    ],
)
def test_pages_for_others_need_a_login_and_tls(
    host: str, readers: tuple[PageReader, ...], proxies: tuple[str, ...], cert_file: str | None, fault: str | None
) -> None:
    reason = unsafe_pages(host, readers, proxies, cert_file)
    assert reason is None if fault is None else fault in str(reason)


def test_an_unsafe_address_is_refused_with_the_place_where_it_was_set(tmp_path: Path) -> None:
    given = {"PERTOKEN_ADVISOR_PAGES_LISTEN": "0.0.0.0:9404"}
    with pytest.raises(BadInput, match=r"PERTOKEN_ADVISOR_PAGES_LISTEN: 0\.0\.0\.0 is no loopback address"):
        load(None, given)
    given |= {"PERTOKEN_ADVISOR_PAGES_READERS": '[{token_file = "t"}]', "PERTOKEN_ADVISOR_PAGES_PROXIES": "10.0.0.7"}
    assert load(None, given).advisor_pages_proxies == ("10.0.0.7",)
