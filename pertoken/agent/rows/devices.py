"""Devices and the host as rows of a tick: identity, work since the previous tick, events and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter

from pertoken.agent.host.identity import HostIdentity
from pertoken.agent.readings import (
    IDENTITY,
    MAX_NETWORK_BYTES_S,
    MAX_TRAFFIC_BYTES_S,
    DeviceReading,
    EnergyStep,
    LastMeter,
    PlugReading,
    ProbeReading,
    Unavailable,
    energy_step,
    identity_of,
    unread,
)
from pertoken.agent.rows.tick_state import Condition, Moment, RowInterval, TickState
from pertoken.metrics import DEVICE, DEVICE_COLUMNS, RollUp, rolled
from pertoken.store.schema.rows import CounterState, DeviceRow, DeviceSample, Event, HostRow, HostSample
from pertoken.store.schema.shared import stable_id

WAIT = "wait"
"""Remedy of a metric that needs more readings, such as a mean: its absence is no event."""
ENERGY = "energy_mj"
"""Series of a device's energy counter, millijoules."""
_HOST_IDENTITY = tuple(field.name for field in fields(HostIdentity))


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """Rows, events and conditions of one device in one tick."""

    row: DeviceRow
    reading: DeviceReading
    sample: DeviceSample
    states: tuple[CounterState, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    events: tuple[Event, ...] = ()
    conditions: tuple[Condition, ...] = ()


def device_step(
    tick_state: TickState,
    previous: DeviceReading | None,
    reading: DeviceReading,
    host_id: int,
    life: int | None,
    moment: Moment,
    baseline: bool,
) -> DeviceStep:
    """Return the changes of one device since its previous row.

    `life`: see `counters.boot_life`. `baseline`: whether this tick only restores the state at agent start.
    """
    row = _device_row(host_id, identity_of(reading))
    device_id = row.device_id
    row_interval = tick_state.row_interval(device_id, moment)
    state = tick_state.counters.get(device_id, {}).get(ENERGY)
    energy = _energy(previous, reading, state, row_interval, life, moment)
    observed_ms = row_interval.observed_ms if reading.lost is None else 0
    values = _sampled(reading, previous, energy)
    sample = DeviceSample(device_id, moment.ts, row_interval.duration_ms, observed_ms, *values)
    events = []
    was_lost = previous is not None and previous.lost
    if reading.lost and not was_lost:
        events.append(Event("device_lost", f"{_named(reading)}: {reading.lost}", device_id))
    if sample.ecc_uncorrected:
        text = f"{_named(reading)}: the driver counted more uncorrected memory errors"
        events.append(Event("ecc", text, device_id))
    if was_lost and not reading.lost:
        events.append(Event("device_back", f"{_named(reading)} answers again", device_id))
    events += metric_events(previous, reading, device_id)
    # At the baseline a stored counter stays, so that the first tick counts the work during the agent's absence.
    counter_mj = reading.energy_mj
    state_stays = state is not None and (
        baseline or (state.value, state.life, state.process_start_ms) == (counter_mj, life, None)
    )
    states = (
        () if counter_mj is None or state_stays else (CounterState(device_id, ENERGY, counter_mj, life, moment.ts),)
    )
    unavailable = reading.unavailable
    if reading.lost:
        unavailable = (*unavailable, Unavailable("device", "failing", reading.lost))
    conditions = _energy_condition(tick_state, reading, device_id, energy)
    return DeviceStep(row, reading, sample, states, unavailable, tuple(events), conditions)


@lru_cache(512)
def _device_row(host_id: int, identity: tuple[object, ...]) -> DeviceRow:
    """Return the identity of a device: the same object until it changes, so that comparison is cheap."""
    device = DeviceReading(*identity)
    values = {name: getattr(device, name) for name in IDENTITY if name != "parent_uuid"}
    parent_id = device_id_of(device.parent_uuid) if device.parent_uuid else None
    return DeviceRow(device_id_of(device.uuid), host_id, parent_id=parent_id, **values)


def _sampled(reading: DeviceReading, previous: DeviceReading | None, energy: EnergyStep) -> list[int | None]:
    """Return the values of `metrics.DEVICE_COLUMNS`: gauges as read, counters as their increase."""
    values = list(_column_values(reading))
    values[_ENERGY_COLUMN : _ENERGY_COLUMN + 2] = energy.counter_mj, energy.integral_mj
    for position, name in _COUNTER_COLUMNS:
        values[position] = _counter_increase(getattr(previous, name) if previous else None, values[position])
    return values


_ENERGY_COLUMN = DEVICE_COLUMNS.index("energy_counter_mj")
"""Position of the counted energy; the energy integrated from power follows it."""
_READING_BY_COLUMN = {metric.stored: metric.reading for metric in DEVICE} | {"energy_integral_mj": ENERGY}
_column_values = attrgetter(*(_READING_BY_COLUMN[name] for name in DEVICE_COLUMNS))
_COUNTER_COLUMNS = tuple(
    (DEVICE_COLUMNS.index(metric.stored), metric.reading)
    for metric in rolled(RollUp.COUNTER)
    if metric.reading != ENERGY
)


def metric_events(previous: DeviceReading | None, reading: DeviceReading, device_id: int) -> Iterator[Event]:
    """Yield events for metrics lost or reported again between two readings; none if the device was lost in either."""
    if previous is None or previous.lost or reading.lost or previous.unavailable == reading.unavailable:
        return
    name = _named(reading)
    lost_by_reason: dict[str, list[str]] = {}
    for missing in reading.unavailable:
        lost_now = _is_reported(previous, missing.metric) and not _is_reported(reading, missing.metric)
        if lost_now and missing.remedy != WAIT:
            lost_by_reason.setdefault(missing.reason, []).append(missing.metric)
    for reason, metrics in lost_by_reason.items():
        yield Event("metric_lost", f"{name}: {', '.join(metrics)} cannot be read any more: {reason}", device_id)
    previously_missing = [missing.metric for missing in previous.unavailable if missing.remedy != WAIT]
    reported_again = [
        metric for metric in previously_missing if not _is_reported(previous, metric) and _is_reported(reading, metric)
    ]
    if reported_again:
        yield Event("metric_back", f"{name}: {', '.join(reported_again)} can be read again", device_id)


def _named(reading: DeviceReading) -> str:
    return f"{reading.name} ({reading.uuid})"


def _is_reported(reading: DeviceReading, metric: str) -> bool:
    if metric == "processes":  # a reading may omit the list of processes although it is available
        return not any(missing.metric == metric for missing in reading.unavailable)
    return getattr(reading, metric, None) is not None


def _energy(
    previous: DeviceReading | None,
    reading: DeviceReading,
    state: CounterState | None,
    row_interval: RowInterval,
    life: int | None,
    moment: Moment,
) -> EnergyStep:
    """Return the energy since the previous row: by the counter also over an outage, by power only without one."""
    integral = (
        energy_step(previous, reading, row_interval.duration_ms)
        if previous and row_interval.duration_ms
        else EnergyStep(None, None)
    )
    if state is None or state.life != life:
        return EnergyStep(None, integral.integral_mj)
    elapsed_ms = max(row_interval.duration_ms, (moment.ts - state.ts) * 1000)
    if elapsed_ms == 0:
        return EnergyStep(None, None)
    last = LastMeter(state.value, previous.power_mw if previous else None)
    counter = energy_step(last, reading, elapsed_ms)
    return EnergyStep(counter.counter_mj, integral.integral_mj, counter.fault)


def _energy_condition(
    tick_state: TickState, reading: DeviceReading, device_id: int, energy: EnergyStep
) -> tuple[Condition, ...]:
    """Return the fault of the energy counter as a condition. Without a counted value, the previous one stays."""
    topic = "energy_counter"
    if energy.fault is not None:
        begins, ends = f"{reading.name}: {energy.fault}", f"{reading.name}: its energy counter counts again"
        return (Condition(device_id, topic, topic, energy.fault, begins, ends),)
    previous = tick_state.conditions.get((device_id, topic))
    return (previous,) if previous is not None and energy.counter_mj is None else ()


def _counter_increase(previous: int | None, present: int | None) -> int | None:
    """Return the increase of a counter; one that fell was reset by its driver and counts from 0."""
    if previous is None or present is None:
        return None
    return present - previous if present >= previous else present


def vanished(previous_devices: Mapping[str, DeviceReading], probe: ProbeReading) -> tuple[DeviceReading, ...]:
    """Return readings for devices that the previous tick listed and this one does not: lost, every value None."""
    gone = previous_devices.keys() - {device.uuid for device in probe.devices}
    return tuple(
        unread(device, "the driver no longer lists it") for uuid, device in previous_devices.items() if uuid in gone
    )


def replaced(readings: Iterable[DeviceReading]) -> frozenset[str]:
    """Return the UUIDs of lost devices with another GPU at their PCI address: they left this host.

    A lost device without a replacement may still be in the host, and is paid for.
    """
    lost = [reading for reading in readings if reading.lost and reading.pci_bus_id]
    if not lost:
        return frozenset()
    gpu_at = {
        reading.pci_bus_id: reading.uuid for reading in readings if not reading.lost and reading.parent_uuid is None
    }
    return frozenset(
        device.uuid for device in lost if gpu_at.get(device.pci_bus_id) not in (None, device.parent_uuid or device.uuid)
    )


def host_row(
    probe: ProbeReading,
    identity: HostIdentity,
    version: str,
    boot_ms: int,
    moment: Moment,
    plug: PlugReading | None = None,
) -> HostRow:
    """Return the identity of the host."""
    host = probe.host
    return HostRow(
        host_id=host_id_of(probe),
        name=host.name,
        machine_id=host.machine_id,
        boot_id=host.boot_id,
        boot_ms=boot_ms,
        os=host.os,
        cpu_name=host.cpu_name,
        cpu_count=host.cpu_count,
        memory_bytes=host.memory_bytes,
        agent_version=version,
        interval_s=moment.interval_s,
        **{name: getattr(identity, name) for name in _HOST_IDENTITY},
        plug_source=None if plug is None else plug.source,
    )


def host_sample(
    tick_state: TickState, probe: ProbeReading, moment: Moment, plug: PlugReading | None = None
) -> HostSample:
    """Return the work of the host since the previous tick. Counters of an earlier boot are not compared.

    Energy at the plug is the present power times the observed time.
    """
    host, previous = probe.host, tick_state.probe.host if tick_state.probe else None
    if previous is not None and previous.boot_id != host.boot_id:
        previous = None
    row_interval = tick_state.row_interval(host_id_of(probe), moment)

    def increase(counter: str, max_per_s: int) -> int | None:
        previous_bytes = None if previous is None else getattr(previous, counter)
        max_bytes = max_per_s * max(row_interval.duration_ms, 1000) // 1000
        return _plausible_increase(previous_bytes, getattr(host, counter), max_bytes)

    return HostSample(
        host_id=host_id_of(probe),
        ts=moment.ts,
        duration_ms=row_interval.duration_ms,
        observed_ms=row_interval.observed_ms,
        cpu_util_1e4=host.cpu_util_1e4,
        load_1e2=host.load_1e2,
        memory_used_bytes=host.memory_used_bytes,
        network_rx_bytes=increase("network_rx_bytes", MAX_NETWORK_BYTES_S),
        network_tx_bytes=increase("network_tx_bytes", MAX_NETWORK_BYTES_S),
        memory_traffic_bytes=increase("memory_traffic_bytes", MAX_TRAFFIC_BYTES_S),
        plug_mj=None if plug is None else plug.power_mw * row_interval.observed_ms // 1000,
        plug_ms=None if plug is None else row_interval.observed_ms,
    )


def _plausible_increase(previous: int | None, present: int | None, limit: int) -> int | None:
    """Return the increase of a counter; None where it fell, or rose by more than `limit`."""
    if previous is None or present is None or not 0 <= present - previous <= limit:
        return None
    return present - previous


def host_id_of(probe: ProbeReading) -> int:
    """Return the id of the host of a reading: by machine-id, else by name."""
    return _host_id(probe.host.machine_id or probe.host.name)


@lru_cache(1)
def _host_id(reported: str) -> int:
    return stable_id("host", reported)


def device_id_of(uuid: str) -> int:
    """Return the id of a device by its UUID alone: a card in another slot stays the same device."""
    return stable_id("device", uuid)
