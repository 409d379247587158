"""Stored fleets that several tests of this package ask for advice."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pertoken.advisor import run
from pertoken.window.figures import Progress
from tests.advisor.builders import NOW, advise
from tests.scenario import LOW_BATCH_70B, seed


@pytest.fixture(scope="module")
def low_batch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two H100s serve a 70B in BF16 to two requests at a time; another host of two is idle."""
    folder = tmp_path_factory.mktemp("low-batch")
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=8 * 60, end_ts=NOW)
    seed(folder, None, gpus=2, usd_per_hour=None, minutes=21 * 60, end_ts=NOW, host="gpu-2")
    return folder


@pytest.fixture(scope="module")
def advice(low_batch: Path) -> list[dict[str, Any]]:
    return advise(low_batch)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run shards in the process of the test, which sees what they call."""

    def one_by_one(works: Sequence[run.Work[object]], progress: Progress) -> list[object]:
        return [work(progress) for work in works]

    monkeypatch.setattr(run, "in_forks", one_by_one)
