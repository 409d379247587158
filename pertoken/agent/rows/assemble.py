"""From readings to rows: what changed since the tick before, as one `Tick`, and what to remember for the next.

Pure: clocks, readings and the memory of the tick before come in, values go out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from pertoken import __version__
from pertoken.agent.host.identity import HostIdentity
from pertoken.agent.readings import EngineReading, Gap, GatewayReading, Happened, ProbeReading
from pertoken.agent.rows.allocation import Holding
from pertoken.agent.rows.conditions import Condition, Conditions, followed
from pertoken.agent.rows.counting.counters import is_bucket
from pertoken.agent.rows.counting.gateways import GatewayRows, gateway_rows
from pertoken.agent.rows.counting.life_ids import boot_life
from pertoken.agent.rows.devices import (
    DeviceStep,
    device_step,
    host_id_of,
    host_row,
    host_sample,
    replaced,
    vanished,
)
from pertoken.agent.rows.engine_ids import bucket_set_id
from pertoken.agent.rows.engines import EngineStep, engine_steps
from pertoken.agent.rows.epochs import follow
from pertoken.agent.rows.host_states import host_states
from pertoken.agent.rows.owners import find_holders
from pertoken.agent.rows.spread import spread
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.catalog.knobs import layout
from pertoken.store.schema.ids import OTHER
from pertoken.store.schema.rows import (
    AgentSample,
    Capability,
    CounterState,
    DeviceRow,
    DeviceShare,
    EpochRow,
    Event,
    Tick,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the agent itself used since the tick before, its sampler included."""

    cpu_ms: int
    rss_bytes: int
    tick_ms: int
    missed_ticks: int


@dataclass(frozen=True, slots=True)
class Readings:
    """All that was read for one tick."""

    probe: ProbeReading
    engines: tuple[EngineReading, ...] = ()
    cpu_time_ms: Mapping[int, int] | None = None
    """CPU time so far of each engine's processes, by engine id; None where it was not needed."""
    gaps: tuple[Gap, ...] = ()
    events: tuple[Event, ...] = ()
    identity: HostIdentity = field(default_factory=HostIdentity)
    conditions: tuple[Condition, ...] = ()
    """Those of the whole host."""
    gateways: tuple[GatewayReading, ...] = ()
    """Those that were read since the tick before."""


def assemble(memory: TickState, readings: Readings, moment: Moment, cost: Cost | None) -> tuple[Tick, TickState]:
    """One tick and the memory to keep if the store takes it.

    `cost` None makes the first one: it lays the baseline (identities, counters never seen before) and no samples.
    """
    baseline = cost is None
    probe = readings.probe
    host_id, boot_id = host_id_of(probe), probe.host.boot_id
    before = {device.uuid: device for device in memory.probe.devices} if memory.probe else {}
    device_readings = (*probe.devices, *vanished(before, probe))
    devices = [
        device_step(memory, before.get(reading.uuid), reading, host_id, boot_life(boot_id), moment, baseline)
        for reading in device_readings
    ]
    engines, repeated, repeated_now = engine_steps(memory, readings.engines, host_id, boot_id, moment, baseline)
    if repeated:
        gaps_now, conditions_now = (*readings.gaps, *repeated), (*readings.conditions, *repeated_now)
        readings = replace(readings, gaps=gaps_now, conditions=conditions_now)
    holders = find_holders(memory, devices, engines, readings.cpu_time_ms)
    holdings = {**holders.gpu, **holders.cpu}
    gateways = gateway_rows(memory, readings.gateways, host_id, moment, baseline=baseline)
    epochs = {**_epochs(memory, devices, engines, holdings, moment.ts), **gateways.epochs}

    samples: list[object] = []
    if cost is not None:
        absent = replaced(device_readings)
        present = [step for step in devices if step.row.uuid not in absent]
        samples += [step.sample for step in present]
        samples += [host_sample(memory, probe, moment), _agent_sample(memory, probe, cost, moment)]
        for step in engines:
            if step.filed and step.deployment and step.deployment.deployment_id in epochs:
                epoch_id = epochs[step.deployment.deployment_id].epoch_id
                samples += [step.sample(epoch_id, moment.ts), *step.histogram_rows(epoch_id, moment.ts)]
                samples += step.counter_rows(epoch_id, moment.ts)
        samples += gateways.samples
        samples += _shares(present, engines, holdings, epochs, moment.ts)
    gaps = _gaps(readings, host_id, devices, engines, holders.gaps)
    capabilities = memory.capabilities if gaps == memory.gaps else _capabilities(memory, gaps)
    rows = {step.row.uuid: step.row for step in devices}
    told = tuple(_told(each, rows) for each in probe.happened if each.uuid is None or each.uuid in rows)
    conditions, changes = _conditions(memory, readings, host_id, devices, engines)
    events = [
        readings.events,
        told,
        *(step.events for step in devices),
        *(step.events for step in engines),
        gateways.events,
        changes,
    ]
    tick = Tick(
        ts=moment.ts,
        host=host_row(probe, readings.identity, __version__, memory.boot_ms, moment),
        devices=tuple(step.row for step in devices),
        engines=(*(step.engine for step in engines), *gateways.engines),
        deployments=(*(step.deployment for step in engines if step.deployment), *gateways.deployments),
        epochs=tuple(epoch for key, epoch in epochs.items() if memory.epochs.get(key) != epoch),
        samples=tuple(spread(samples, memory, moment, epochs)),
        bucket_sets={bucket_set_id(bounds): bounds for step in engines for _, bounds, _ in step.buckets},
        counters=(
            *chain.from_iterable(step.states for step in devices),
            *chain.from_iterable(step.states for step in engines),
            *gateways.states,
            *host_states(memory, host_id, boot_id, moment, baseline),
        ),
        forgotten=(*(each for step in engines for each in step.forgotten), *gateways.forgotten),
        capabilities=tuple(each for key, each in capabilities.items() if memory.capabilities.get(key) != each)
        if capabilities is not memory.capabilities
        else (),
        events=tuple(event for each in events for event in each),
    )
    kept = _kept(memory, readings, tick, moment, engines, gateways, epochs, gaps, capabilities, holders.gpu, baseline)
    return tick, replace(kept, conditions=conditions)


def _told(happened: Happened, rows: Mapping[str, DeviceRow]) -> Event:
    if happened.uuid is None:
        return Event(happened.kind, happened.message)
    row = rows[happened.uuid]
    # The number of an Xid is what it is, not a figure that changes.
    state = happened.message if happened.kind == "xid" else None
    return Event(happened.kind, f"{row.name} ({row.uuid}): {happened.message}", row.device_id, state)


def _epochs(
    memory: TickState,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    holdings: Mapping[int, tuple[Holding, ...]],
    ts: int,
) -> dict[int, EpochRow]:
    """The epoch of each deployment: carried on, completed or begun."""
    epochs = {}
    # An engine on a MIG device runs on that, not on the GPU it is a slice of.
    sliced = {step.row.parent_id for step in devices}
    drivers = {step.row.device_id: step.row.driver_version for step in devices}
    for step in engines:
        if step.deployment is None:
            continue
        deployment_id = step.deployment.deployment_id
        previous = memory.epochs.get(deployment_id)
        if not step.usable:
            if previous is not None:
                epochs[deployment_id] = previous
            continue
        device_ids = sorted(
            device
            for device, held in holdings.items()
            for each in held
            if each.owner == step.engine.engine_id and device not in sliced
        )
        # One that just restarted beside others has not used the CPUs yet: it runs where it ran.
        spread = len(device_ids or (previous.device_ids if previous else ()))
        epochs[deployment_id] = follow(
            previous,
            deployment_id=deployment_id,
            knobs={
                **layout(step.engine.kind, str(step.reading.knobs.get("split_mode")), spread),
                **step.reading.knobs,
            },
            engine_version=step.reading.version,
            device_ids=tuple(device_ids),
            restarted=step.restarted,
            ts=ts,
            driver_version=_only(drivers.get(device) for device in device_ids),
        )
    return epochs


def _only(versions: Iterable[str | None]) -> str | None:
    """Return the one version that all devices with a version have; None where they differ."""
    known = set(versions) - {None}
    return known.pop() if len(known) == 1 else None


def _shares(
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    holdings: Mapping[int, tuple[Holding, ...]],
    epochs: Mapping[int, EpochRow],
    ts: int,
) -> list[DeviceShare]:
    """Rows of who had how much of which device; an engine whose model is not known yet is foreign work."""
    step_of = {step.engine.engine_id: step for step in engines}
    rows: dict[tuple[int, int], DeviceShare] = {}
    for device in devices:
        device_id, duration = device.row.device_id, device.sample.duration_ms
        for holding in holdings.get(device_id, ()):
            step = step_of.get(holding.owner)
            epoch = epochs.get(step.deployment.deployment_id) if step and step.deployment else None
            busy = min(step.at_most_busy_ms, duration) if step and epoch else 0
            epoch_id = epoch.epoch_id if epoch else OTHER
            row = DeviceShare(device_id, epoch_id, ts, duration, holding.share_1e6, busy, holding.provenance)
            same = rows.get((device_id, epoch_id))
            rows[device_id, epoch_id] = replace(row, share_1e6=row.share_1e6 + same.share_1e6) if same else row
    return list(rows.values())


def _agent_sample(memory: TickState, probe: ProbeReading, cost: Cost, moment: Moment) -> AgentSample:
    span = memory.span(host_id_of(probe), moment)
    return AgentSample(
        host_id=host_id_of(probe),
        ts=moment.ts,
        duration_ms=span.observed_ms,
        observed_ms=span.observed_ms,
        cpu_ms=cost.cpu_ms + probe.cpu_ms,
        rss_bytes=cost.rss_bytes + probe.rss_bytes,
        tick_ms=cost.tick_ms,
        missed_ticks=cost.missed_ticks,
        driver_calls=probe.driver_calls,
    )


def _gaps(
    readings: Readings,
    host_id: int,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    hidden: Mapping[int, Gap],
) -> dict[int, tuple[Gap, ...]]:
    """Return what cannot be read now, by owner: everyone asked is there."""
    owners = {host_id: (*readings.probe.gaps, *readings.gaps)}
    owners |= {step.row.device_id: step.gaps for step in devices}
    owners |= {device_id: (*owners.get(device_id, ()), gap) for device_id, gap in hidden.items()}
    return owners | {step.engine.engine_id: step.gaps for step in engines}


def _conditions(
    memory: TickState, readings: Readings, host_id: int, devices: Sequence[DeviceStep], engines: Sequence[EngineStep]
) -> tuple[Conditions, list[Event]]:
    """Return the conditions that hold after this tick, and the events of what began and ended with it."""
    now = [*readings.conditions]
    judged = {host_id}
    for device in devices:
        now += device.conditions
        judged.add(device.row.device_id)
    for engine in engines:
        now += engine.conditions
        if not engine.gone:
            judged.add(engine.engine.engine_id)
    return followed(memory.conditions, now, judged)


def _capabilities(memory: TickState, gaps: Mapping[int, tuple[Gap, ...]]) -> dict[tuple[int, str], Capability]:
    """What cannot be read now and why; what could not be and now can turns `ok`."""
    found = {
        (owner, gap.metric): Capability(owner, gap.metric, gap.status, gap.reason, gap.remedy)
        for owner, each in gaps.items()
        for gap in each
    }
    for key, capability in memory.capabilities.items():
        if key not in found:
            found[key] = replace(capability, status="ok", reason=None, remedy=None) if key[0] in gaps else capability
    return found


def _kept(
    memory: TickState,
    readings: Readings,
    tick: Tick,
    moment: Moment,
    engines: Sequence[EngineStep],
    gateways: GatewayRows,
    epochs: Mapping[int, EpochRow],
    gaps: Mapping[int, tuple[Gap, ...]],
    capabilities: Mapping[tuple[int, str], Capability],
    gpu: Mapping[int, tuple[Holding, ...]],
    baseline: bool,
) -> TickState:
    row_ends, row_ts = dict(memory.row_ends), dict(memory.row_ts)
    owners = {owner: moment for owner in (tick.host.host_id, *(each.device_id for each in tick.devices))}
    owners |= {step.deployment.deployment_id: step.at for step in engines if step.deployment and step.filed}
    for owner, at in owners.items():
        # At the baseline nothing has rows yet; what had some in the store is behind by the time away.
        if not baseline:
            row_ends[owner], row_ts[owner] = at.monotonic_ms, moment.ts
        elif owner in memory.known_owners:
            row_ends[owner] = moment.monotonic_ms - memory.away_ms
            row_ts[owner] = memory.last_ts or 0
    usable = {step.engine.engine_id: step.reading for step in engines if step.usable}
    running = {step.engine.engine_id for step in engines if not step.gone}
    taken = {step.engine.engine_id: step.at for step in engines if step.counts_taken}
    taken |= dict.fromkeys(gateways.taken, moment)
    return replace(
        memory,
        last_ts=memory.last_ts if baseline else moment.ts,
        newest_ts=memory.newest_ts if baseline else max(moment.ts, memory.newest_ts or 0),
        set_back_ts=memory.set_back_ts if baseline else _set_back_ts(memory, moment.ts),
        monotonic_ms=moment.monotonic_ms,
        row_ends=row_ends,
        row_ts=row_ts,
        probe=readings.probe,
        counters=_counted(memory.counters, tick, buckets=False),
        buckets=_counted(memory.buckets, tick, buckets=True),
        pages={**memory.pages, **taken},
        epochs={**memory.epochs, **epochs},
        gaps=gaps,
        capabilities=capabilities,
        engines={key: each for key, each in {**memory.engines, **usable}.items() if key in running},
        stretches=memory.stretches
        if baseline
        else {step.engine.engine_id: step.busy.stretch for step in engines if step.engine.engine_id in running},
        gpu_holdings=gpu,
        cpu_time_ms=dict(readings.cpu_time_ms or {}),
    )


def _set_back_ts(memory: TickState, ts: int) -> int:
    newest_ts = memory.newest_ts or 0
    return newest_ts if ts <= newest_ts else memory.set_back_ts


def _counted(
    known: Mapping[int, Mapping[str, CounterState]], tick: Tick, *, buckets: bool
) -> Mapping[int, Mapping[str, CounterState]]:
    """States of counters, or of buckets, after a tick, by owner; of an owner of which none moved the same as before."""
    forgotten = [(owner, series) for owner, series in tick.forgotten if is_bucket(series) is buckets]
    moved = [state for state in tick.counters if is_bucket(state.series) is buckets]
    owners = {owner for owner, _ in forgotten} | {state.owner_id for state in moved}
    changed = {owner: dict(known.get(owner, {})) for owner in owners}
    for owner, series in forgotten:
        del changed[owner][series]
    for state in moved:
        changed[state.owner_id][state.series] = state
    return {**known, **changed}
