from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pertoken.agent.exporter import TickTotals
from pertoken.store.schema.rows import (
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    EngineRow,
    EpochRow,
    HostSample,
    Tick,
)
from pertoken.store.schema.shared import GATEWAY
from tests.promtool import PROMTOOL, complaints
from tests.values import host_row

HOST = host_row(10)
DEVICE = DeviceRow(1, HOST.host_id, "gpu", 'GPU-"1"', "nvidia", "NVIDIA H100")


EPOCHS = (EpochRow(4, 3, 0, None, None, "{}", (1,)), EpochRow(7, 6, 0, None, None, "{}", ()))


def tick(ts: int) -> Tick:
    return Tick(
        ts,
        HOST,
        devices=(DEVICE,),
        engines=(
            EngineRow(2, HOST.host_id, "vllm", "http://a:1", 1, None, None, None, "process"),
            EngineRow(5, HOST.host_id, "litellm", "http://g:1", 1, None, None, None, GATEWAY),
        ),
        deployments=(DeploymentRow(3, 2, HOST.host_id, "llama"), DeploymentRow(6, 5, HOST.host_id, "litellm")),
        samples=(
            DeploymentSample(4, ts, 10_000, 10_000, True, 6_000, 100, 20, 80, 50, 2, running_1e2=250),
            DeviceSample(1, ts, 10_000, 10_000, power_mw=330_000, energy_counter_mj=3_300_000, util_1e4=9700),
            HostSample(HOST.host_id, ts, 10_000, 10_000, memory_used_bytes=2**30, plug_mj=9_000_000, plug_ms=10_000),
        ),
    )


def values(page: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


def test_counters_add_up_over_ticks_and_gauges_are_of_the_newest() -> None:
    totals = TickTotals()
    assert totals.page() == "\n"
    totals.add(tick(60), EPOCHS)
    totals.add(tick(70), EPOCHS)
    metrics = values(totals.page())
    assert metrics["pertoken_generated_tokens_total"] == 100 and metrics["pertoken_prompt_tokens_total"] == 200
    assert metrics["pertoken_device_energy_joules_total"] == 6600 and metrics["pertoken_device_power_watts"] == 330
    assert metrics["pertoken_host_energy_joules_total"] == 18_000 and metrics["pertoken_host_power_watts"] == 900
    assert metrics["pertoken_engine_busy_seconds_total"] == 12 and metrics["pertoken_requests_running"] == 2.5
    assert metrics["pertoken_tick_timestamp_seconds"] == 70 and metrics["pertoken_device_utilization_ratio"] == 0.97
    assert "litellm" not in totals.page(), "a gateway serves no model"


def test_the_last_sample_of_an_epoch_counts_where_the_next_one_has_begun() -> None:
    totals = TickTotals()
    totals.add(tick(60), EPOCHS)
    totals.add(tick(70), [replace(EPOCHS[0], epoch_id=8)])
    assert values(totals.page())["pertoken_generated_tokens_total"] == 100
    totals.add(tick(80), [replace(EPOCHS[0], epoch_id=8)])
    assert values(totals.page())["pertoken_generated_tokens_total"] == 100, "an epoch that ended long ago has no sample"


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool (Debian: prometheus)")
def test_promtool_finds_nothing_to_complain_of() -> None:
    totals = TickTotals()
    totals.add(tick(60), EPOCHS)
    assert complaints(totals.page()) == ""
