"""Values that no column can hold cost themselves, and the tick is stored."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import verify
from pertoken.store.schema import telemetry as t
from pertoken.store.schema.rows import (
    Capability,
    CounterState,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    Event,
    HistogramSample,
)
from pertoken.store.write.writer import Writer
from tests.values import HOST, host_sample, new_store, tick

GPU = DeviceRow(5, HOST, "gpu", "GPU-5", "NVIDIA", "NVIDIA H100 80GB HBM3", 0, power_limit_mw=700_000)
TOO_LARGE, LARGEST = 2**63, 2**63 - 1


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path)


def stored(where: StoreLocation, table: Any) -> list[Any]:
    with open_store(where).read() as connection:
        return list(connection.execute(select(table)).all())


@pytest.mark.parametrize("number", [TOO_LARGE, 2**64 - 1, -(2**63) - 1, 10**40])
def test_a_value_out_of_range_is_null_with_an_event_and_the_others_are_stored(
    where: StoreLocation, number: int
) -> None:
    odd = DeviceSample(GPU.device_id, 10, 10_000, 10_000, power_mw=number, util_1e4=5000, ecc_corrected=LARGEST)
    with Writer(where) as writer:
        writer.commit(tick(10, odd, devices=(replace(GPU, memory_bytes=number),)))
        writer.commit(tick(20, devices=(GPU,)))
    (row,) = stored(where, t.device_sample)
    assert (row.power_mw, row.util_1e4, row.ecc_corrected) == (None, 5000, LARGEST)
    assert [row.ts for row in stored(where, t.host_sample)] == [10, 20]
    assert {row.message.split()[3] for row in stored(where, t.event)} == {
        "device.memory_bytes",
        "device_sample.power_mw",
    }
    assert {row.kind for row in stored(where, t.event)} == {"value_lost"}
    assert [fault for fault in verify(where) if fault is not None] == []


def test_a_row_without_a_value_that_is_required_is_left_out_alone(where: StoreLocation) -> None:
    samples = (
        HistogramSample(7, "ttft_s", 10, 3, 0, TOO_LARGE),
        HistogramSample(7, "ttft_s", 10, 3, 1, 4),
        DeviceShare(5, 7, 10, 10_000, TOO_LARGE, 0, Provenance.REPORTED),
        DeploymentSample(7, 10, 10_000, 10_000, True, generated_tokens=TOO_LARGE, prompt_tokens=3),
    )
    states = (CounterState(7, "tokens", TOO_LARGE, None, 10), CounterState(7, "prompts", 4, None, 10))
    with Writer(where) as writer:
        writer.commit(tick(10, *samples, counters=states))
    assert [(row.bucket, row.count) for row in stored(where, t.histogram_sample)] == [(1, 4)]
    assert [(row.generated_tokens, row.prompt_tokens) for row in stored(where, t.deployment_sample)] == [(None, 3)]
    assert [row.series for row in stored(where, t.counter_state)] == ["prompts"]
    assert stored(where, t.device_share) == []


def test_text_that_is_none_is_stored_with_marks_in_place_of_what_it_is_not(where: StoreLocation) -> None:
    with Writer(where) as writer:
        writer.commit(
            tick(
                10,
                devices=(replace(GPU, name="H\udcff100"),),
                capabilities=(Capability(5, "power_mw", "failing", "not \udcff text"),),
                events=(Event("driver", "\udcff", 5),),
            )
        )
    assert [row.name for row in stored(where, t.device)] == ["H?100"]
    assert [row.reason for row in stored(where, t.capability)] == ["not ? text"]
    assert [row.message for row in stored(where, t.event)] == ["?"]


def test_a_host_of_which_nothing_fits_is_recorded_all_the_same(where: StoreLocation) -> None:
    odd = host_sample(10)
    for name in ("load_1e2", "memory_used_bytes", "network_rx_bytes"):
        odd = replace(odd, **{name: 2**70})
    with Writer(where) as writer:
        writer.commit(replace(tick(10), samples=(odd,)))
    (row,) = stored(where, t.host_sample)
    assert (row.load_1e2, row.memory_used_bytes, row.network_rx_bytes, row.cpu_util_1e4) == (None, None, None, 2500)
