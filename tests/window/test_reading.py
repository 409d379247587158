from pathlib import Path

import pytest

from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window, weekly_power_w
from tests.scenario import LOW_BATCH_70B, seed

MONDAY = 1_789_948_800
"""2026-09-21 00:00 UTC."""


def test_power_is_the_measured_energy_over_its_time_by_week(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=1, usd_per_hour=None, minutes=240, end_ts=MONDAY + 7200)
    with open_store(where).read() as connection:
        devices = Window(connection, 0, MONDAY + 7200).inventory.devices
        (gpu,) = (each for each, row in devices.items() if row.kind == "gpu")
        found = weekly_power_w(connection, [gpu])[gpu]
        assert weekly_power_w(connection, []) == {}
    assert [start for start, _ in found] == [MONDAY - 7 * 86_400, MONDAY]
    assert found[0][1] == pytest.approx(found[1][1], rel=0.05) and found[0][1] > 50
