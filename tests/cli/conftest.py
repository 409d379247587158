"""A recorded database for the commands."""

from pathlib import Path

import pytest

from tests.cli.builders import NOW
from tests.scenario import LOW_BATCH_70B, seed


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    folder = tmp_path / "db"
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=3, end_ts=NOW)
    return str(folder)
