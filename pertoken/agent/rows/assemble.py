"""From readings to rows: the changes since the tick before as one `Tick`, and the state to keep for the next.

Pure: clocks, readings and the memory of the tick before come in, values go out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise

from pertoken import __version__
from pertoken.agent.host.identity import HostIdentity
from pertoken.agent.readings import (
    DriverEvent,
    EngineReading,
    GatewayReading,
    PlugReading,
    ProbeReading,
    Unavailable,
)
from pertoken.agent.rows import counters
from pertoken.agent.rows.counters import advance, boot_life, is_bucket, rebase
from pertoken.agent.rows.devices import (
    DeviceStep,
    device_step,
    host_id_of,
    host_row,
    host_sample,
    replaced,
    vanished,
)
from pertoken.agent.rows.engines import EngineStep, engine_steps
from pertoken.agent.rows.epochs import bucket_set_id, follow
from pertoken.agent.rows.owners import find_owners
from pertoken.agent.rows.restored_state import host_states
from pertoken.agent.rows.tick_state import (
    OBSERVED_TICKS,
    Condition,
    Conditions,
    Moment,
    OwnerShare,
    TickState,
    followed,
)
from pertoken.catalog.knobs import layout
from pertoken.settings.owners import JOB
from pertoken.store.schema.rows import (
    AgentSample,
    Capability,
    CounterState,
    DeploymentRow,
    DeploymentSample,
    DeviceRow,
    DeviceSample,
    DeviceShare,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Event,
    HostSample,
    SampleValue,
    Tick,
)
from pertoken.store.schema.shared import GATEWAY, OTHER, stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE

DAY = 24 * HOUR
Timed = DeploymentSample | DeviceSample | DeviceShare | HostSample
"""Samples that are divided where they cover several buckets."""
_WORK = ("busy_ms", "split_ms", "prefill_ms", "decode_ms")
MAX_SPLIT_S = 31 * DAY
"""Time before this is filed under the oldest bucket within it, so that the work of one tick stays bounded."""


@dataclass(frozen=True, slots=True)
class Part:
    """One bucket's part of a row: where it ends (epoch seconds), and how long it is."""

    ts: int
    duration_ms: int


def spread(
    samples: Sequence[SampleValue], tick_state: TickState, moment: Moment, epochs: Mapping[int, EpochRow]
) -> list[SampleValue]:
    """Return the samples of a tick, long ones in parts; `epochs` by deployment.

    Duration, observed time, busy time and energy of the parts add up to the row.
    """
    limit_ms = OBSERVED_TICKS * 1000 * moment.interval_s
    if moment.ts <= tick_state.set_back_ts or all(getattr(sample, "duration_ms", 0) <= limit_ms for sample in samples):
        return list(samples)
    deployments = {epoch.epoch_id: deployment_id for deployment_id, epoch in epochs.items()}
    observed = {sample.epoch_id: sample.observed_ms for sample in samples if isinstance(sample, DeploymentSample)}
    rows: list[SampleValue] = []
    for sample in samples:
        if getattr(sample, "duration_ms", 0) <= limit_ms:
            rows.append(sample)
            continue
        match sample:
            case DeviceSample() | DeviceShare():
                owner = sample.device_id
            case HostSample():
                owner = sample.host_id
            case DeploymentSample():
                owner = deployments.get(sample.epoch_id, 0)
            case _:
                rows.append(sample)
                continue
        after_ts = max(tick_state.row_ts.get(owner, 0), tick_state.set_back_ts)
        rows += _split(sample, parts(sample.ts, sample.duration_ms, after_ts), observed)
    return rows


def parts(ts: int, duration_ms: int, after_ts: int) -> tuple[Part, ...]:
    """Return the parts of a row that covers the `duration_ms` until `ts`, in order; all end after `after_ts`.

    The bucket in which a long absence begins has rows of its owner already, and the older may be deleted: computed
    again, the bucket would lack them. Its part is filed under the next one.
    """
    start_ms = 1000 * ts - duration_ms
    oldest = max(start_ms // 1000, after_ts, ts - MAX_SPLIT_S)
    minutes_from = max(oldest, (ts - DAY) // HOUR * HOUR)
    ends = [
        *range(oldest // HOUR * HOUR + HOUR, minutes_from + 1, HOUR),
        *range(minutes_from // MINUTE * MINUTE + MINUTE, ts, MINUTE),
    ]
    if duration_ms > 1000 * HOUR:
        del ends[:1]
    limits_ms = [start_ms, *(1000 * end for end in ends), 1000 * ts]
    durations = (until - since for since, until in pairwise(limits_ms))
    return tuple(Part(end, duration) for end, duration in zip((*ends, ts), durations, strict=True))


def _split(sample: Timed, buckets: Sequence[Part], observed_of: Mapping[int, int]) -> Sequence[Timed]:
    if len(buckets) == 1:
        return [sample]
    durations = [bucket.duration_ms for bucket in buckets]
    if isinstance(sample, DeviceSample):
        return _split_device(sample, buckets, durations)
    if isinstance(sample, HostSample):
        observed = _latest(sample.observed_ms, durations)
        hosts = [
            HostSample(sample.host_id, part.ts, part.duration_ms, seen)
            for part, seen in zip(buckets[:-1], observed, strict=False)
        ]
        return [*hosts, replace(sample, duration_ms=durations[-1], observed_ms=observed[-1])]
    observed = _latest(observed_of.get(sample.epoch_id, 0), durations)
    if isinstance(sample, DeviceShare):
        return [
            replace(sample, ts=part.ts, duration_ms=part.duration_ms, busy_ms=busy_ms)
            for part, busy_ms in zip(buckets, _busy(sample.busy_ms, durations, observed), strict=True)
        ]
    times = [
        [None] * len(buckets) if (ms := getattr(sample, name)) is None else _busy(ms, durations, observed)
        for name in _WORK
    ]
    work = [dict(zip(_WORK, part_ms, strict=True)) for part_ms in zip(*times, strict=True)]
    provenance = sample.busy_provenance
    rows = [
        DeploymentSample(
            sample.epoch_id, part.ts, part.duration_ms, seen, complete=True, busy_provenance=provenance, **part_work
        )
        for part, seen, part_work in zip(buckets[:-1], observed, work, strict=False)
    ]
    return [*rows, replace(sample, duration_ms=durations[-1], observed_ms=observed[-1], **work[-1])]


def _split_device(sample: DeviceSample, buckets: Sequence[Part], durations: Sequence[int]) -> Sequence[DeviceSample]:
    counters, integrals = (
        [None] * len(buckets) if energy_mj is None else _evenly(energy_mj, durations)
        for energy_mj in (sample.energy_counter_mj, sample.energy_integral_mj)
    )
    observed = _latest(sample.observed_ms, durations)
    rows = [
        DeviceSample(
            sample.device_id, part.ts, part.duration_ms, seen, energy_counter_mj=counter, energy_integral_mj=integral
        )
        for part, seen, counter, integral in zip(buckets[:-1], observed, counters, integrals, strict=False)
    ]
    last = sample._replace(
        ts=buckets[-1].ts,
        duration_ms=durations[-1],
        observed_ms=observed[-1],
        energy_counter_mj=counters[-1],
        energy_integral_mj=integrals[-1],
    )
    return [*rows, last]


def _latest(amount: int, durations: Sequence[int]) -> list[int]:
    """Return how much of an amount of time each part has if it is the latest time of all."""
    shares = []
    for duration in reversed(durations):
        shares.append(min(amount, duration))
        amount -= shares[-1]
    return shares[::-1]


def _busy(busy_ms: int, durations: Sequence[int], observed: Sequence[int]) -> list[int]:
    """Return the busy time of each part: observed time is the latest; any other is spread evenly over the rest."""
    latest = _latest(min(busy_ms, sum(observed)), observed)
    unobserved = [duration - seen for duration, seen in zip(durations, observed, strict=True)]
    rest = _evenly(busy_ms - sum(latest), unobserved)
    return [a + b for a, b in zip(latest, rest, strict=True)]


def _evenly(amount: int, durations: Sequence[int]) -> list[int]:
    """Return the share of each part of an amount that is spread evenly over these times."""
    total = max(1, sum(durations))
    marks = [0, *(amount * reached // total for reached in accumulate(durations))]
    shares = [until - since for since, until in pairwise(marks)]
    shares[-1] += amount - marks[-1]
    return shares


@dataclass(frozen=True, slots=True)
class GatewayStep:
    """Rows of one gateway that was read for a tick."""

    engine: EngineRow
    deployment: DeploymentRow
    epoch: EpochRow
    samples: tuple[EngineCounterSample, ...]
    states: tuple[CounterState, ...]
    forgotten: tuple[tuple[int, str], ...]
    events: tuple[Event, ...]


def _gateway_step(tick_state: TickState, reading: GatewayReading, host_id: int, moment: Moment) -> GatewayStep:
    """Return the rows of a page.

    Counters of the first page are only remembered; a series that appears on a later one counts from 0. Tokens that a
    page does not count for certain stay unattributed.
    """
    engine_id = stable_id("gateway", host_id, reading.base_url)
    deployment_id = stable_id("deployment", engine_id, GATEWAY)
    life = None if reading.life_ms is None else counters.page_life(reading.life_ms)
    epoch = follow(
        tick_state.epochs.get(deployment_id),
        deployment_id=deployment_id,
        knobs={},
        engine_version=None,
        device_ids=(),
        restarted=False,
        ts=moment.ts,
    )
    states, since_page_ms = tick_state.counters.get(engine_id, {}), tick_state.since_page_ms(engine_id, moment)
    lives = {state.life for state in states.values()}
    events: tuple[Event, ...] = ()
    if (
        lives
        and life not in lives
        and reading.life_ms is not None
        and reading.life_ms <= moment.wall_ms - since_page_ms
    ):
        # It ran already when another process answered: each counts a part of the requests, and nothing adds them up.
        reason = f"{reading.base_url}: several processes of the gateway answer in turn, so that none is counted"
        events = (Event("gateway_in_turn", f"{reason}; let them share PROMETHEUS_MULTIPROC_DIR", engine_id),)
        taken = rebase(states, reading.counters, owner_id=engine_id, life=life, ts=moment.ts, reason=reason)
    else:
        taken = advance(
            states,
            reading.counters,
            owner_id=engine_id,
            life=life,
            ts=moment.ts,
            from_zero=engine_id in tick_state.pages,  # its page was seen before it had counted anything
            elapsed_s=since_page_ms / 1000,
        )
    deltas = Counter[str]()
    for series, delta in taken.deltas.items():
        if delta:
            deltas[reading.metric_of[series]] += delta
    return GatewayStep(
        EngineRow(engine_id, host_id, reading.kind, reading.base_url, None, None, None, None, GATEWAY, life),
        DeploymentRow(deployment_id, engine_id, host_id, reading.kind),
        epoch,
        tuple(EngineCounterSample(epoch.epoch_id, metric, moment.ts, delta) for metric, delta in deltas.items()),
        taken.moved,
        tuple((engine_id, series) for series in taken.forgotten),
        events,
    )


@dataclass(frozen=True, slots=True)
class AgentCost:
    """Resources that the agent used since the previous tick, its sampler included."""

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
    unavailable: tuple[Unavailable, ...] = ()
    events: tuple[Event, ...] = ()
    identity: HostIdentity = field(default_factory=HostIdentity)
    conditions: tuple[Condition, ...] = ()
    """Conditions of the whole host."""
    gateways: tuple[GatewayReading, ...] = ()
    """Those that were read since the tick before."""
    jobs_by_gpu: Mapping[str, str] = field(default_factory=dict)
    """Batch job of each GPU by its number, for deployments with processes that name none."""
    plug: PlugReading | None = None
    """Power of the server at its plug; None where nothing measures it."""


def assemble(
    tick_state: TickState, readings: Readings, moment: Moment, cost: AgentCost | None
) -> tuple[Tick, TickState]:
    """Return one tick and the memory to keep if the store takes it.

    `cost` None makes the first one: it lays the baseline (identities, counters never seen before) and no samples.
    """
    baseline = cost is None
    probe = readings.probe
    host_id, boot_id = host_id_of(probe), probe.host.boot_id
    previous_devices = {device.uuid: device for device in tick_state.probe.devices} if tick_state.probe else {}
    device_readings = (*probe.devices, *vanished(previous_devices, probe))
    devices = [
        device_step(
            tick_state, previous_devices.get(reading.uuid), reading, host_id, boot_life(boot_id), moment, baseline
        )
        for reading in device_readings
    ]
    engines, repeated, repeated_now = engine_steps(tick_state, readings.engines, host_id, boot_id, moment, baseline)
    if repeated:
        gaps_now, conditions_now = (*readings.unavailable, *repeated), (*readings.conditions, *repeated_now)
        readings = replace(readings, unavailable=gaps_now, conditions=conditions_now)
    owners = find_owners(tick_state, devices, engines, readings.cpu_time_ms)
    allocations = {**owners.gpu, **owners.cpu}
    # At the baseline, counters of gateways are left for the first real tick to take.
    gateways = [] if baseline else [_gateway_step(tick_state, page, host_id, moment) for page in readings.gateways]
    servers: list[EngineStep | GatewayStep] = [*engines, *gateways]
    steps: list[DeviceStep | EngineStep | GatewayStep] = [*devices, *servers]
    epochs = _epochs(tick_state, devices, engines, allocations, readings.jobs_by_gpu, moment.ts)
    epochs |= {step.deployment.deployment_id: step.epoch for step in gateways}

    samples: list[SampleValue] = []
    if cost is not None:
        absent = replaced(device_readings)
        present = [step for step in devices if step.row.uuid not in absent]
        samples += [step.sample for step in present]
        samples += [
            host_sample(tick_state, probe, moment, readings.plug),
            _agent_sample(tick_state, probe, cost, moment),
        ]
        for step in engines:
            if step.filed and step.deployment and step.deployment.deployment_id in epochs:
                epoch_id = epochs[step.deployment.deployment_id].epoch_id
                samples += [step.sample(epoch_id, moment.ts), *step.histogram_rows(epoch_id, moment.ts)]
                samples += step.counter_rows(epoch_id, moment.ts)
        samples += chain.from_iterable(step.samples for step in gateways)
        samples += _shares(present, engines, allocations, epochs, moment.ts)
    unavailable = _unavailable(readings, host_id, devices, engines, owners.unavailable)
    capabilities = (
        tick_state.capabilities if unavailable == tick_state.unavailable else _capabilities(tick_state, unavailable)
    )
    rows = {step.row.uuid: step.row for step in devices}
    reported_events = tuple(
        _stored_event(event, rows) for event in probe.driver_events if event.uuid is None or event.uuid in rows
    )
    conditions, changes = _conditions(tick_state, readings, host_id, devices, engines)
    events = [
        readings.events,
        reported_events,
        *(step.events for step in steps),
        changes,
    ]
    tick = Tick(
        ts=moment.ts,
        host=host_row(probe, readings.identity, __version__, tick_state.boot_ms, moment, readings.plug),
        devices=tuple(step.row for step in devices),
        engines=tuple(step.engine for step in servers),
        deployments=tuple(step.deployment for step in servers if step.deployment),
        epochs=tuple(epoch for key, epoch in epochs.items() if tick_state.epochs.get(key) != epoch),
        samples=tuple(spread(samples, tick_state, moment, epochs)),
        bucket_sets={bucket_set_id(bounds): bounds for step in engines for _, bounds, _ in step.buckets},
        counters=(
            *chain.from_iterable(step.states for step in steps),
            *host_states(tick_state, host_id, boot_id, moment, baseline),
        ),
        forgotten=tuple(chain.from_iterable(step.forgotten for step in servers)),
        capabilities=tuple(
            capability for key, capability in capabilities.items() if tick_state.capabilities.get(key) != capability
        )
        if capabilities is not tick_state.capabilities
        else (),
        events=tuple(chain.from_iterable(events)),
    )
    kept = _next_state(
        tick_state, readings, tick, moment, engines, gateways, epochs, unavailable, capabilities, owners.gpu, baseline
    )
    return tick, replace(kept, conditions=conditions)


def _stored_event(event: DriverEvent, rows: Mapping[str, DeviceRow]) -> Event:
    if event.uuid is None:
        return Event(event.kind, event.message)
    row = rows[event.uuid]
    # The number of an Xid is what it is, not a figure that changes.
    state = event.message if event.kind == "xid" else None
    return Event(event.kind, f"{row.name} ({row.uuid}): {event.message}", row.device_id, state)


def _epochs(
    tick_state: TickState,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    allocations: Mapping[int, tuple[OwnerShare, ...]],
    jobs_by_gpu: Mapping[str, str],
    ts: int,
) -> dict[int, EpochRow]:
    """Return the epoch of each deployment: carried on, completed or begun."""
    epochs = {}
    # An engine on a MIG device runs on that, not on the GPU it is a slice of.
    sliced = {step.row.parent_id for step in devices}
    drivers = {step.row.device_id: step.row.driver_version for step in devices}
    jobs = _jobs(devices, jobs_by_gpu)
    for step in engines:
        if step.deployment is None:
            continue
        deployment_id = step.deployment.deployment_id
        previous = tick_state.epochs.get(deployment_id)
        if not step.usable:
            if previous is not None:
                epochs[deployment_id] = previous
            continue
        device_ids = sorted(
            device
            for device, held in allocations.items()
            for allocation in held
            if allocation.owner == step.engine.engine_id and device not in sliced
        )
        # One that just restarted beside others has not used the CPUs yet: it runs where it ran.
        job = _common_value(jobs.get(device) for device in device_ids)
        spread = len(device_ids or (previous.device_ids if previous else ()))
        epochs[deployment_id] = follow(
            previous,
            deployment_id=deployment_id,
            knobs={
                **({JOB: job} if job else {}),
                **layout(step.engine.kind, str(step.reading.knobs.get("split_mode")), spread),
                **step.reading.knobs,
            },
            engine_version=step.reading.version,
            device_ids=tuple(device_ids),
            restarted=step.restarted,
            ts=ts,
            driver_version=_common_value(drivers.get(device) for device in device_ids),
        )
    return epochs


def _jobs(devices: Sequence[DeviceStep], jobs_by_gpu: Mapping[str, str]) -> dict[int, str]:
    """Return the batch job of each device; a part of a GPU has the job of its GPU."""
    slots = {step.row.device_id: step.row.slot for step in devices if step.row.kind != "cpu"}
    owners = {step.row.device_id: step.row.parent_id or step.row.device_id for step in devices}
    jobs = {device_id: jobs_by_gpu.get(str(slots.get(gpu_id))) for device_id, gpu_id in owners.items()}
    return {device_id: job for device_id, job in jobs.items() if job is not None}


def _common_value(values: Iterable[str | None]) -> str | None:
    """Return the one value that all devices with a value have; None where they differ."""
    distinct = set(values) - {None}
    return distinct.pop() if len(distinct) == 1 else None


def _shares(
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    allocations: Mapping[int, tuple[OwnerShare, ...]],
    epochs: Mapping[int, EpochRow],
    ts: int,
) -> list[DeviceShare]:
    """Return the shares of each device by epoch; an engine without a known model is foreign work."""
    step_of = {step.engine.engine_id: step for step in engines}
    rows: dict[tuple[int, int], DeviceShare] = {}
    for device in devices:
        device_id, duration = device.row.device_id, device.sample.duration_ms
        for allocation in allocations.get(device_id, ()):
            step = step_of.get(allocation.owner)
            epoch = epochs.get(step.deployment.deployment_id) if step and step.deployment else None
            busy = min(step.at_most_busy_ms, duration) if step and epoch else 0
            epoch_id = epoch.epoch_id if epoch else OTHER
            row = DeviceShare(device_id, epoch_id, ts, duration, allocation.share_1e6, busy, allocation.provenance)
            same = rows.get((device_id, epoch_id))
            rows[device_id, epoch_id] = replace(row, share_1e6=row.share_1e6 + same.share_1e6) if same else row
    return list(rows.values())


def _agent_sample(tick_state: TickState, probe: ProbeReading, cost: AgentCost, moment: Moment) -> AgentSample:
    row_interval = tick_state.row_interval(host_id_of(probe), moment)
    return AgentSample(
        host_id=host_id_of(probe),
        ts=moment.ts,
        duration_ms=row_interval.observed_ms,
        observed_ms=row_interval.observed_ms,
        cpu_ms=cost.cpu_ms + probe.cpu_ms,
        rss_bytes=cost.rss_bytes + probe.rss_bytes,
        tick_ms=cost.tick_ms,
        missed_ticks=cost.missed_ticks,
        driver_calls=probe.driver_calls,
    )


def _unavailable(
    readings: Readings,
    host_id: int,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    hidden: Mapping[int, Unavailable],
) -> dict[int, tuple[Unavailable, ...]]:
    """Return the gaps of this tick by owner: every owner that was read is there."""
    owners = {host_id: (*readings.probe.unavailable, *readings.unavailable)}
    owners |= {step.row.device_id: step.unavailable for step in devices}
    owners |= {device_id: (*owners.get(device_id, ()), missing) for device_id, missing in hidden.items()}
    return owners | {step.engine.engine_id: step.unavailable for step in engines}


def _conditions(
    tick_state: TickState,
    readings: Readings,
    host_id: int,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
) -> tuple[Conditions, list[Event]]:
    """Return the conditions that hold after this tick, and the events of their begin and end."""
    conditions = [*readings.conditions]
    judged = {host_id}
    for device in devices:
        conditions += device.conditions
        judged.add(device.row.device_id)
    for engine in engines:
        conditions += engine.conditions
        if not engine.gone:
            judged.add(engine.engine.engine_id)
    return followed(tick_state.conditions, conditions, judged)


def _capabilities(
    tick_state: TickState, unavailable: Mapping[int, tuple[Unavailable, ...]]
) -> dict[tuple[int, str], Capability]:
    """Return the present gaps with their reasons; a gap that ended turns `ok`."""
    capabilities = {
        (owner, missing.metric): Capability(owner, missing.metric, missing.status, missing.reason, missing.remedy)
        for owner, reasons in unavailable.items()
        for missing in reasons
    }
    for key, capability in tick_state.capabilities.items():
        if key not in capabilities:
            capabilities[key] = (
                replace(capability, status="ok", reason=None, remedy=None) if key[0] in unavailable else capability
            )
    return capabilities


def _next_state(
    tick_state: TickState,
    readings: Readings,
    tick: Tick,
    moment: Moment,
    engines: Sequence[EngineStep],
    gateways: Sequence[GatewayStep],
    epochs: Mapping[int, EpochRow],
    unavailable: Mapping[int, tuple[Unavailable, ...]],
    capabilities: Mapping[tuple[int, str], Capability],
    gpu: Mapping[int, tuple[OwnerShare, ...]],
    baseline: bool,
) -> TickState:
    row_ends, row_ts = dict(tick_state.row_ends), dict(tick_state.row_ts)
    owners = {owner: moment for owner in (tick.host.host_id, *(device.device_id for device in tick.devices))}
    owners |= {step.deployment.deployment_id: step.moment for step in engines if step.deployment and step.filed}
    for owner, read_moment in owners.items():
        # At the baseline nothing has rows yet; what had some in the store is behind by the time away.
        if not baseline:
            row_ends[owner], row_ts[owner] = read_moment.monotonic_ms, moment.ts
        elif owner in tick_state.known_owners:
            row_ends[owner] = moment.monotonic_ms - tick_state.away_ms
            row_ts[owner] = tick_state.last_ts or 0
    usable = {step.engine.engine_id: step.reading for step in engines if step.usable}
    running = {step.engine.engine_id for step in engines if not step.gone}
    newest_ts = tick_state.newest_ts or 0
    taken = {step.engine.engine_id: step.moment for step in engines if step.counts_taken}
    taken |= {step.engine.engine_id: moment for step in gateways}
    return replace(
        tick_state,
        last_ts=tick_state.last_ts if baseline else moment.ts,
        newest_ts=tick_state.newest_ts if baseline else max(moment.ts, newest_ts),
        set_back_ts=newest_ts if not baseline and moment.ts <= newest_ts else tick_state.set_back_ts,
        monotonic_ms=moment.monotonic_ms,
        row_ends=row_ends,
        row_ts=row_ts,
        probe=readings.probe,
        counters=_states_after(tick_state.counters, tick, buckets=False),
        buckets=_states_after(tick_state.buckets, tick, buckets=True),
        pages={**tick_state.pages, **taken},
        epochs={**tick_state.epochs, **epochs},
        unavailable=unavailable,
        capabilities=capabilities,
        engines={key: reading for key, reading in {**tick_state.engines, **usable}.items() if key in running},
        work_intervals=tick_state.work_intervals
        if baseline
        else {step.engine.engine_id: step.busy.work_interval for step in engines if step.engine.engine_id in running},
        gpu_allocations=gpu,
        cpu_time_ms=dict(readings.cpu_time_ms or {}),
    )


def _states_after(
    states_by_owner: Mapping[int, Mapping[str, CounterState]], tick: Tick, *, buckets: bool
) -> Mapping[int, Mapping[str, CounterState]]:
    """Return the states of counters, or of buckets, after a tick by owner; the same mapping where none moved."""
    forgotten = [(owner, series) for owner, series in tick.forgotten if is_bucket(series) is buckets]
    moved = [state for state in tick.counters if is_bucket(state.series) is buckets]
    owners = {owner for owner, _ in forgotten} | {state.owner_id for state in moved}
    changed = {owner: dict(states_by_owner.get(owner, {})) for owner in owners}
    for owner, series in forgotten:
        del changed[owner][series]
    for state in moved:
        changed[state.owner_id][state.series] = state
    return {**states_by_owner, **changed}
