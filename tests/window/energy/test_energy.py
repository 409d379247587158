"""Energy by epoch, by hand: a device that is held half of the time gives half of its energy."""

from collections.abc import Sequence

import numpy as np
import pytest

from pertoken.provenance import Provenance
from pertoken.units import SHARE
from pertoken.window.columns import NULL, Columns, columns
from pertoken.window.energy import energy_by_epoch
from pertoken.window.measured import DEPLOYMENT_TIME, DEVICE, SHARES, MeasuredColumns

EPOCH, GPU, OTHER_GPU = 1, 10, 11


def of(names: Sequence[str], rows: Sequence[Sequence[int | None]]) -> Columns:
    return Columns({name: n for n, name in enumerate(names)}, np.array(rows, np.int64))


def device(device_id: int, counter_mj: int | None, integral_mj: int | None) -> dict[str, int | None]:
    row: dict[str, int | None] = dict.fromkeys(DEVICE, 0)
    times = {"device_id": device_id, "ts": 60, "duration_ms": 60_000, "observed_ms": 60_000}
    return row | times | {"energy_counter_mj": counter_mj, "energy_integral_mj": integral_mj}


def measured(*devices: dict[str, int | None], held_ms: int = 60_000) -> MeasuredColumns:
    rows = of(DEVICE, [[NULL if row[name] is None else row[name] for name in DEVICE] for row in devices])
    shares = [[row["device_id"], 60, EPOCH, held_ms * SHARE] for row in devices]
    parts = {"device": rows, "deployment_time": columns(DEPLOYMENT_TIME, ()), "share": of(SHARES, shares)}
    return MeasuredColumns(parts, {EPOCH: [int(row["device_id"] or 0) for row in devices]})


def test_energy_is_shared_by_the_time_a_device_was_held() -> None:
    energy = energy_by_epoch(measured(device(GPU, 60_000, 1), held_ms=30_000))[EPOCH]
    assert [energy.joules, energy.held_ms, energy.measured_share] == pytest.approx([30, 30_000, 1])
    assert energy.provenance is Provenance.COUNTER


def test_power_over_time_stands_in_for_a_counter_and_a_device_without_either_lowers_the_measured_share() -> None:
    energy = energy_by_epoch(measured(device(GPU, None, 12_000), device(OTHER_GPU, None, None)))[EPOCH]
    assert [energy.joules, energy.measured_share] == pytest.approx([12, 0.5])
    assert energy.provenance is Provenance.INTEGRAL


def test_an_epoch_that_held_nothing_has_no_energy() -> None:
    assert energy_by_epoch(measured(device(GPU, 60_000, 1), held_ms=0)) == {}
