"""Rows of devices: energy, loss and return."""

from pertoken.agent.rows.assemble import Readings
from pertoken.store.schema.rows import (
    DeviceSample,
)
from tests.agent.rows.ticks import run
from tests.agent.values import gpu, probe


def test_energy_is_counted_and_a_reset_is_null_and_told() -> None:
    ticks = run(
        Readings(probe(gpu(0, energy_mj=10**9))),
        Readings(probe(gpu(0, energy_mj=10**9 + 3_000_000))),
        Readings(probe(gpu(0, energy_mj=5))),
    )
    rows = [s for tick in ticks for s in tick.samples if isinstance(s, DeviceSample) and s.power_mw]
    assert [(row.energy_counter_mj, row.energy_integral_mj) for row in rows] == [
        (3_000_000, 3_000_000),
        (None, 3_000_000),
    ]
    assert [event.kind for event in ticks[2].events] == ["energy_counter"]


def test_a_lost_device_costs_only_itself_and_its_hours_go_on() -> None:
    lost = gpu(1)._replace(power_mw=None, energy_mj=None, processes=None, lost="fell off the bus")
    steps = [probe(gpu(0, energy_mj=n * 10**6), gpu(1, energy_mj=n * 10**6)) for n in range(3)]
    steps[1] = probe(steps[1].devices[0], lost)
    ticks = run(*map(Readings, steps))
    rows = [s for s in ticks[1].samples if isinstance(s, DeviceSample)]
    assert [(row.power_mw, row.duration_ms, row.observed_ms) for row in rows[:2]] == [
        (300_000, 10_000, 10_000),
        (None, 10_000, 0),
    ]
    assert [event.kind for event in ticks[1].events] == ["device_lost"]
    assert [event.kind for event in ticks[2].events] == ["device_back"]
