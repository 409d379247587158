"""Tokens and certificates for an engine's metrics page, from the settings."""

import json
import traceback
from pathlib import Path

import pytest

from pertoken import config
from pertoken.access import Access, access_of
from pertoken.errors import BadInput

SECRET = "s3cret-of-the-tests"


def test_settings_name_files_and_never_hold_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "pertoken.toml"
    file.write_text('[[agent.access]]\nurl = "https://gpu-1:8000/"\ntoken_file = "/run/token"\n')
    (access,) = config.load(file, {}).agent_access
    assert access == Access("https://gpu-1:8000", token_file="/run/token")
    written = '[{url = "https://gpu-1:8000", cert_file = "c.pem"}]'
    (access,) = config.load(None, {"PERTOKEN_AGENT_ACCESS": written}).agent_access
    assert access.cert_file == "c.pem"


@pytest.mark.parametrize(
    "written",
    [
        f'[{{url = "https://a", token = "{SECRET}"}}]',
        f'[{{url = "https://u:{SECRET}@a", token_env = "T"}}]',
        f'[{{token_env = "{SECRET}"}}]',
        f'[{{url = "https://a", token_env = "{SECRET}", token_file = "t"}}]',
        f'[{{url = "https://a", key_file = "{SECRET}"}}]',
        f'[{{url = "https://a", user = "{SECRET}"}}]',
        f'["{SECRET}"]',
        f'[{{url = "{SECRET}',
    ],
)
def test_a_mistake_in_credentials_is_reported_without_their_values(written: str) -> None:
    with pytest.raises(BadInput, match="PERTOKEN_AGENT_ACCESS: ") as caught:
        config.load(None, {"PERTOKEN_AGENT_ACCESS": written})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_password_in_a_base_url_is_refused_without_repeating_it() -> None:
    with pytest.raises(BadInput, match=r"use agent\.access") as caught:
        config.load(None, {"PERTOKEN_AGENT_ENGINES": f"http://me:{SECRET}@gpu-1:8000"})
    assert SECRET not in str(caught.value)


def test_settings_can_be_shown(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from pertoken.cli import main

    file = tmp_path / "pertoken.toml"
    file.write_text('[[agent.access]]\nurl = "https://gpu-1:8000"\ntoken_env = "T"\n')
    shown = CliRunner().invoke(main, ["config", "show", "--config", str(file), "--json"])
    assert json.loads(shown.stdout)["agent.access"] == [{"url": "https://gpu-1:8000", "token_env": "T"}]


def test_the_most_specific_access_counts_and_of_equal_ones_the_first() -> None:
    host, first = Access("https://gpu-1:8000", token_env="HOST"), Access("https://gpu-1:8000/chat", token_env="FIRST")
    second = Access("https://gpu-1:8000/chat", token_env="SECOND")
    for rows in ([host, first, second], [first, host, second], [first, second, host]):
        assert access_of("https://gpu-1:8000/chat/metrics", rows) == first
        assert access_of("https://gpu-1:8000/chat", rows) == first
        assert access_of("https://gpu-1:8000/chats/metrics", rows) == host
        assert access_of("https://gpu-1:80000/metrics", rows) == Access("https://gpu-1:80000/metrics")
