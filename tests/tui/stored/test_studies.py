"""Computations over a stored fleet."""

from pathlib import Path

from pertoken.config import Settings
from pertoken.tui.store_source import StoreSource
from pertoken.units import NANO_USD
from pertoken.window.figures import no_progress
from tests.proof.rows import row
from tests.scenario import LOW_BATCH_70B, seed

END = 1_800_000_000


def test_plan_records_and_details_are_read_from_the_database_as_of_an_instant(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=30, end_ts=END)
    source = StoreSource(where, as_of=END, settings=Settings(source=tmp_path / "pertoken.toml"))
    shown = source.plan((), None, no_progress)
    assert (shown.plan.spend, shown.plan.steps) == (round(2 * 6.88 * 730 * NANO_USD), ())
    assert source.plan((), None, no_progress, fresh=True).plan == shown.plan
    assert source.records() == {}
    detail = source.detail((), row(), {}, no_progress)
    assert detail.tested is None and detail.untested is not None
