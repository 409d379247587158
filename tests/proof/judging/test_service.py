"""Service levels of deployments over a window, whatever epochs they had."""

from pathlib import Path

import pytest
from sqlalchemy import update

from pertoken.config import Settings
from pertoken.proof.judging.verifier import limits, service_level
from pertoken.proof.receipt import NOT_MEASURED, ServiceLevel
from pertoken.settings.fleet import ServiceSettings
from pertoken.store.connect.open import open_store, writing
from pertoken.store.schema import telemetry as t
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B, seed

END = 1_789_948_800


def test_latencies_and_energy_per_token_are_those_of_the_window(tmp_path: Path) -> None:
    where = seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END)
    engine = writing(where, "telemetry")
    with engine.begin() as connection:
        for table in t.device_rollup.values():
            connection.execute(update(table).values(energy_counter_mj=330 * table.c.duration_ms))  # W × ms
    engine.dispose()
    with open_store(where).read() as connection:
        window = Window(connection, END - 3600, END)
        (deployment,) = window.inventory.newest
        level = service_level(window, [deployment])
        assert service_level(window, []) == NOT_MEASURED
    assert level.ttft_p95_s is not None and 0.1 <= level.ttft_p95_s <= 0.25  # TTFT is 0.15 s throughout
    assert level.tpot_p95_s == pytest.approx(0.03, abs=0.005)
    assert level.j_per_token == pytest.approx(2 * 330 / 200, rel=0.1)  # two devices of 330 W, 200 tokens a second


def test_the_objectives_are_those_of_the_service_of_a_model_in_seconds() -> None:
    chat = ServiceSettings("chat", models=("llama",), ttft_p95_ms=500)
    settings = Settings(services=(chat,), slo_ttft_ms=900, slo_tpot_ms=40)
    assert limits("llama", settings) == ServiceLevel(0.5, 0.04)
    assert limits("other", settings) == ServiceLevel(0.9, 0.04)
    assert limits("other", Settings()) == NOT_MEASURED
