"""One recorded database for tests that only read it."""

from pathlib import Path

import pytest

from pertoken.store.connect.location import StoreLocation
from tests.scenario import LOW_BATCH_70B, seed

END = 1_800_000_000
MINUTES = 30


@pytest.fixture(scope="session")
def recorded_db(tmp_path_factory: pytest.TempPathFactory) -> StoreLocation:
    """Half an hour of an engine on two GPUs of three, up to END."""
    folder: Path = tmp_path_factory.mktemp("window")
    return seed(folder / "db", LOW_BATCH_70B, gpus=3, usd_per_hour=None, minutes=MINUTES, end_ts=END)
