from pathlib import Path

import pytest

from pertoken.config import load
from pertoken.errors import BadInput
from pertoken.settings.fleet import is_loopback, read_listen


def test_a_port_alone_is_of_loopback() -> None:
    assert read_listen("9877") == read_listen(":9877") == read_listen(9877) == ("127.0.0.1", 9877)
    assert read_listen("[::1]:1") == ("::1", 1) and is_loopback("::1") and not is_loopback("0.0.0.0")


@pytest.mark.parametrize("value", ["", "host:1", "127.0.0.1", "127.0.0.1:70000", True, None])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must"):
        read_listen(value)


def test_an_address_others_reach_needs_a_token(tmp_path: Path) -> None:
    given = {"PERTOKEN_AGENT_METRICS_LISTEN": "0.0.0.0:9877"}
    with pytest.raises(BadInput, match=r"0\.0\.0\.0 is no loopback address: set agent.metrics_token_file"):
        load(None, given)
    load(None, {**given, "PERTOKEN_AGENT_METRICS_TOKEN_FILE": str(tmp_path / "token")})
