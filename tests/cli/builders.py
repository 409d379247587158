"""Builders for the tests of this package."""

import time

from click.testing import CliRunner, Result

from pertoken.cli import main

NOW = int(time.time()) // 60 * 60


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, catch_exceptions=False)
