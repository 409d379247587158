"""Source of the screens, with the user's settings."""

from pathlib import Path

from pertoken.cli.screens.up import screen_source
from pertoken.config import load
from pertoken.window.course import Subject
from pertoken.window.inventory import read_inventory
from tests.scenario import LOW_BATCH_70B, seed

END = 1_800_000_000


def test_the_objectives_of_the_settings_stand_beside_the_latency_of_a_service(tmp_path: Path) -> None:
    from pertoken.store.connect.open import open_store

    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=5, end_ts=END)
    source = screen_source(where, load(None, slo_ttft_ms=321.0))
    with open_store(where).read() as connection:
        (deployment_id,) = read_inventory(connection, END - 300, END).newest
    course = source.course(Subject("deployment", deployment_id), 300, END)
    assert course.slo is not None and course.slo.ttft_p95_ms == 321.0
