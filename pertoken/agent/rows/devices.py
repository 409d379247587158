"""Devices and the host as rows: identity, work since the tick before, and gaps."""

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
from pertoken.agent.rows.tick_state import Condition, Moment, Span, TickState
from pertoken.metrics import DEVICE, DEVICE_COLUMNS, RollUp, rolled
from pertoken.store.schema.rows import CounterState, DeviceRow, DeviceSample, Event, HostRow, HostSample
from pertoken.store.schema.shared import stable_id

WAIT = "wait"
"""Remedy where waiting is enough, as at the begin of a mean: no event."""


def metric_events(previous: DeviceReading | None, reading: DeviceReading, device_id: int) -> Iterator[Event]:
    """Yield events for metrics lost or reported again between two readings of a device that answered both times."""
    if previous is None or previous.lost or reading.lost or previous.unavailable == reading.unavailable:
        return
    name = f"{reading.name} ({reading.uuid})"
    lost: dict[str, list[str]] = {}
    for missing in reading.unavailable:
        lost_now = _known(previous, missing.metric) and not _known(reading, missing.metric)
        if lost_now and missing.remedy != WAIT:
            lost.setdefault(missing.reason, []).append(missing.metric)
    for reason, metrics in lost.items():
        yield Event("metric_lost", f"{name}: {', '.join(metrics)} cannot be read any more: {reason}", device_id)
    again = [
        missing.metric
        for missing in previous.unavailable
        if missing.remedy != WAIT and not _known(previous, missing.metric) and _known(reading, missing.metric)
    ]
    if again:
        yield Event("metric_back", f"{name}: {', '.join(again)} can be read again", device_id)


def _known(reading: DeviceReading, metric: str) -> bool:
    if metric == "processes":  # not listed in each reading
        return not any(missing.metric == metric for missing in reading.unavailable)
    return getattr(reading, metric, None) is not None


ENERGY = "energy_mj"
"""Series of a device's energy counter."""
_IDENTITY = tuple(field.name for field in fields(HostIdentity))


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


def host_id_of(probe: ProbeReading) -> int:
    """Return the id of the host a reading is of: by machine-id, else by name."""
    return _host_id(probe.host.machine_id or probe.host.name)


@lru_cache(1)
def _host_id(reported: str) -> int:
    return stable_id("host", reported)


def device_id_of(uuid: str) -> int:
    """Return the id of a device by its UUID alone: a card moved to another slot stays the same device."""
    return stable_id("device", uuid)


def host_row(
    probe: ProbeReading,
    identity: HostIdentity,
    version: str,
    boot_ms: int,
    moment: Moment,
    plug: PlugReading | None = None,
) -> HostRow:
    """Return identity of the host."""
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
        **{name: getattr(identity, name) for name in _IDENTITY},
        plug_source=None if plug is None else plug.source,
    )


def host_sample(
    tick_state: TickState, probe: ProbeReading, moment: Moment, plug: PlugReading | None = None
) -> HostSample:
    """Return the work of the host since the tick before; network counters start at 0 with a boot.

    Energy at the plug is the present power over the time that was watched.
    """
    host, previous = probe.host, tick_state.probe.host if tick_state.probe else None
    if previous is not None and previous.boot_id != host.boot_id:
        previous = None
    span = tick_state.span(host_id_of(probe), moment)

    def moved(counter: str, max_per_s: int) -> int | None:
        bytes_before = getattr(previous, counter) if previous is not None else None
        return _plausible_increase(
            bytes_before, getattr(host, counter), max_per_s * max(span.duration_ms, 1000) // 1000
        )

    return HostSample(
        host_id=host_id_of(probe),
        ts=moment.ts,
        duration_ms=span.duration_ms,
        observed_ms=span.observed_ms,
        cpu_util_1e4=host.cpu_util_1e4,
        load_1e2=host.load_1e2,
        memory_used_bytes=host.memory_used_bytes,
        network_rx_bytes=moved("network_rx_bytes", MAX_NETWORK_BYTES_S),
        network_tx_bytes=moved("network_tx_bytes", MAX_NETWORK_BYTES_S),
        memory_traffic_bytes=moved("memory_traffic_bytes", MAX_TRAFFIC_BYTES_S),
        plug_mj=None if plug is None else plug.power_mw * span.observed_ms // 1000,
        plug_ms=None if plug is None else span.observed_ms,
    )


def device_step(
    tick_state: TickState,
    previous: DeviceReading | None,
    reading: DeviceReading,
    host_id: int,
    life: int | None,
    moment: Moment,
    baseline: bool,
) -> DeviceStep:
    """Return the changes of one device since its row before. Its energy counter has the life of the host's boot."""
    row = _device_row(host_id, identity_of(reading))
    device_id = row.device_id
    span = tick_state.span(device_id, moment)
    state = tick_state.counters.get(device_id, {}).get(ENERGY)
    used = _energy(previous, reading, state, span, life, moment)
    observed_ms = span.observed_ms if reading.lost is None else 0
    values = _sampled(reading, previous, used)
    sample = DeviceSample(device_id, moment.ts, span.duration_ms, observed_ms, *values)
    events = []
    if reading.lost and not (previous and previous.lost):
        events.append(Event("device_lost", f"{reading.name} ({reading.uuid}): {reading.lost}", device_id))
    if sample.ecc_uncorrected:
        text = f"{reading.name} ({reading.uuid}): the driver counted more uncorrected memory errors"
        events.append(Event("ecc", text, device_id))
    if previous and previous.lost and not reading.lost:
        events.append(Event("device_back", f"{reading.name} ({reading.uuid}) answers again", device_id))
    events += metric_events(previous, reading, device_id)
    # A known counter is left alone at the baseline, so that the first tick counts what the agent was away for.
    meter = reading.energy_mj
    stands = state is not None and (
        baseline or (state.value, state.life, state.process_start_ms) == (meter, life, None)
    )
    return DeviceStep(
        row,
        reading,
        sample,
        states=() if meter is None or stands else (CounterState(device_id, ENERGY, meter, life, moment.ts),),
        unavailable=(*reading.unavailable, Unavailable("device", "failing", reading.lost))
        if reading.lost
        else reading.unavailable,
        events=tuple(events),
        conditions=_energy_condition(tick_state, reading, device_id, used),
    )


def _sampled(reading: DeviceReading, previous: DeviceReading | None, used: EnergyStep) -> list[int | None]:
    """Return the values of `metrics.DEVICE_COLUMNS`: gauges as read, of counters the increase."""
    values = list(_read(reading))
    values[_ENERGY_AT : _ENERGY_AT + 2] = used.counter_mj, used.integral_mj
    for position, name in _COUNTERS:
        values[position] = _counter_increase(getattr(previous, name) if previous else None, values[position])
    return values


_ENERGY_AT = DEVICE_COLUMNS.index("energy_counter_mj")
_READ_AS = {metric.stored: metric.reading for metric in DEVICE} | {"energy_integral_mj": ENERGY}
_read = attrgetter(*(_READ_AS[name] for name in DEVICE_COLUMNS))
_COUNTERS = tuple(
    (DEVICE_COLUMNS.index(metric.stored), metric.reading)
    for metric in rolled(RollUp.COUNTER)
    if metric.reading != ENERGY
)


def vanished(previous_devices: Mapping[str, DeviceReading], probe: ProbeReading) -> tuple[DeviceReading, ...]:
    """Return readings for devices of the tick before that this one does not list at all: lost, every value None."""
    gone = previous_devices.keys() - {device.uuid for device in probe.devices}
    return tuple(
        unread(device, "the driver no longer lists it") for uuid, device in previous_devices.items() if uuid in gone
    )


def replaced(readings: Iterable[DeviceReading]) -> frozenset[str]:
    """Return the UUIDs of lost devices with another GPU at their PCI address: they are not in this host any more.

    A lost device that nothing replaced may still be there, and is paid for.
    """
    lost = [reading for reading in readings if reading.lost and reading.pci_bus_id]
    if not lost:
        return frozenset()
    answering = {
        reading.pci_bus_id: reading.uuid for reading in readings if not reading.lost and reading.parent_uuid is None
    }
    return frozenset(
        name.uuid for name in lost if answering.get(name.pci_bus_id) not in (None, name.parent_uuid or name.uuid)
    )


@lru_cache(512)
def _device_row(host_id: int, identity: tuple[object, ...]) -> DeviceRow:
    """Return the identity of a device: the same object until it changes, so that a change shows at once."""
    device = DeviceReading(*identity)
    values = {name: getattr(device, name) for name in IDENTITY if name != "parent_uuid"}
    parent_id = device_id_of(device.parent_uuid) if device.parent_uuid else None
    return DeviceRow(device_id_of(device.uuid), host_id, parent_id=parent_id, **values)


def _energy(
    previous: DeviceReading | None,
    reading: DeviceReading,
    state: CounterState | None,
    span: Span,
    life: int | None,
    moment: Moment,
) -> EnergyStep:
    """Return energy since the row before: by the counter from where it was last read, even before an outage of the
    device or of the agent; by power only between two readings in a row."""
    integral = (
        energy_step(previous, reading, span.duration_ms) if previous and span.duration_ms else EnergyStep(None, None)
    )
    if state is None or state.life != life:
        return EnergyStep(None, integral.integral_mj)
    elapsed_ms = max(span.duration_ms, (moment.ts - state.ts) * 1000)
    if elapsed_ms == 0:
        return EnergyStep(None, None)
    last = LastMeter(state.value, previous.power_mw if previous else None)
    counter = energy_step(last, reading, elapsed_ms)
    return EnergyStep(counter.counter_mj, integral.integral_mj, counter.fault)


def _energy_condition(
    tick_state: TickState, reading: DeviceReading, device_id: int, used: EnergyStep
) -> tuple[Condition, ...]:
    """Return why the energy counter is not believed; as before where this tick does not show it."""
    topic = "energy_counter"
    if used.fault is not None:
        begins, ends = f"{reading.name}: {used.fault}", f"{reading.name}: its energy counter counts again"
        return (Condition(device_id, topic, topic, used.fault, begins, ends),)
    previous = tick_state.conditions.get((device_id, topic))
    return (previous,) if previous is not None and used.counter_mj is None else ()


def _counter_increase(previous: int | None, present: int | None) -> int | None:
    """Return the increase of a counter; a driver that was loaded again counts from 0."""
    if previous is None or present is None:
        return None
    return present - previous if present >= previous else present


def _plausible_increase(previous: int | None, present: int | None, limit: int) -> int | None:
    """Return the increase of a counter; None where it fell, or rose by more than can be."""
    if previous is None or present is None or not 0 <= present - previous <= limit:
        return None
    return present - previous
