import json
import shlex
import sys
from importlib.metadata import Distribution
from os import PathLike
from pathlib import Path

import pytest

from pertoken.installed import install_command, install_source


class Installed(Distribution):
    """A distribution with or without pip's record of where it came from."""

    def __init__(self, url: str | None, **more: object) -> None:
        self._record = None if url is None else json.dumps({"url": url, **more})

    def read_text(self, filename: str) -> str | None:
        return self._record if filename == "direct_url.json" else None

    def locate_file(self, path: str | PathLike[str]) -> Path:
        return Path(path)


@pytest.mark.parametrize(
    ("installed", "requirement"),
    [
        (Installed(None), "pertoken[web]"),
        (Installed("file:///src/my%20checkout", dir_info={"editable": True}), "/src/my checkout[web]"),
        (Installed("file:///tmp/pertoken-1.whl", archive_info={}), "/tmp/pertoken-1.whl[web]"),
        (Installed("https://example.com/p.whl", archive_info={}), "pertoken[web] @ https://example.com/p.whl"),
    ],
)  # fmt: skip
def test_an_extra_is_installed_from_what_pertoken_was_installed_from(installed: Installed, requirement: str) -> None:
    assert shlex.split(install_command("web", installed)) == [sys.executable, "-m", "pip", "install", requirement]


def test_a_checkout_in_use_is_named_by_its_path() -> None:
    assert Path(install_source(), "pyproject.toml").is_file()
