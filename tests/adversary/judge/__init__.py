"""Compares what is stored with the truth, in code of its own: plain SQL over the file, and arithmetic in Python."""

import sqlite3
from collections.abc import Iterator

from tests.adversary.judge import commands, devices, engines, recording, rollups
from tests.adversary.judge.finding import Finding
from tests.adversary.played import Played

__all__ = ["Finding", "judged"]


def judged(played: Played) -> tuple[tuple[Finding, ...], dict[str, int]]:
    """Return what is wrong with a run, and the generated tokens that are stored by model."""
    connection = sqlite3.connect(f"file:{played.db}/telemetry.db?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return tuple(_all(played, connection)), engines.stored_tokens(played, connection)
    finally:
        connection.close()


def _all(played: Played, connection: sqlite3.Connection) -> Iterator[Finding]:
    yield from (Finding("script", problem) for problem in played.problems)
    yield from recording.findings(played, connection)
    yield from engines.findings(played, connection)
    yield from devices.findings(played, connection)
    yield from rollups.findings(connection)
    yield from commands.findings(played)
