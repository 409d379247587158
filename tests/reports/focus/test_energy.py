from pathlib import Path

from pertoken.reports.focus import energy_by_day
from tests.reports.builders import END, period, store_of


def test_energy_is_read_by_day_of_each_epoch_that_held_a_device(tmp_path: Path) -> None:
    daily = energy_by_day(store_of(tmp_path / "db"), period())
    assert {start for start, _ in daily} <= {END - 3600 - 86_400, END - 3600}
    assert all(energy.held_ms > 0 for energy in daily.values())
