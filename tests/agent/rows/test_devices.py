"""Rows of devices: energy, loss and return."""

from pertoken.agent.rows.assemble import Readings
from pertoken.agent.rows.devices import device_id_of
from pertoken.store.schema.rows import (
    DeviceSample,
)
from tests.agent.rows.ticks import run
from tests.agent.values import gpu, probe


def test_energy_is_counted_and_a_reset_is_null_with_an_event() -> None:
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


def test_a_device_replaced_in_its_slot_is_lost_and_not_paid_for_twice() -> None:
    old, other = gpu(1, pci_bus_id="0000:11:00.0"), gpu(2, pci_bus_id="0000:11:00.0")
    moved, back = probe(gpu(0), other, old._replace(lost="pulled out")), probe(gpu(0), old, other._replace(lost="out"))
    ticks = run(*map(Readings, (probe(gpu(0), old), moved, moved, back, back)))
    paid = [
        {s.device_id: s.duration_ms for s in tick.samples if isinstance(s, DeviceSample)}
        for tick in ticks
        if tick.samples
    ]
    first, old_id, other_id = (device_id_of(device.uuid) for device in (gpu(0), old, other))
    assert [device_id.keys() & {first, old_id, other_id} for device_id in paid] == [{first, other_id}] * 2 + [
        {first, old_id}
    ] * 2
    assert all(sum(device_id.values()) == 3 * 10_000 for device_id in paid), "two GPUs and the CPU"
    kinds = [event.kind for tick in ticks for event in tick.events if event.kind.startswith("device")]
    assert sorted(kinds) == ["device_back", "device_lost", "device_lost"]


def test_a_partition_that_is_lost_while_its_gpu_answers_goes_on() -> None:
    whole = gpu(1, pci_bus_id="0000:11:00.0")
    part = gpu(2, pci_bus_id="0000:11:00.0", parent_uuid=whole.uuid)._replace(kind="mig")
    ticks = run(*map(Readings, (probe(whole, part), probe(whole, part._replace(lost="error")))))
    assert device_id_of(part.uuid) in {s.device_id for s in ticks[-1].samples if isinstance(s, DeviceSample)}
