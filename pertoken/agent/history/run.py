"""Import of the records of a Prometheus server: hours at a time, into a folder that no agent writes meanwhile.

Roll-ups are computed from the replayed minutes by the store itself. An import goes on from where the one before it
ended, host by host, and ends where an agent's own telemetry of that host begins: no minute is stored twice, and no
bucket of an agent changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PROCESS_START
from pertoken.agent.gateways import LITELLM, SpendLog
from pertoken.agent.history.prometheus import EXPORTERS, MAX_POINTS, RangeSteps, is_same_pod
from pertoken.agent.history.series import (
    Chunk,
    EngineSeries,
    ImportedDevice,
    SeriesSource,
    found_names,
    read_chunk,
    wanted_names,
)
from pertoken.agent.readings import (
    DeviceProcess,
    DeviceReading,
    Endpoint,
    EngineReading,
    HostReading,
    ProbeReading,
    Unavailable,
    bounded,
)
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.scrape import MetricsPage, PageError
from pertoken.errors import BadInput
from pertoken.metrics import DEVICE, label_of
from pertoken.provenance import Provenance
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.query import read
from pertoken.store.query.read import gateway_counted_until, newest_host
from pertoken.store.schema.rows import (
    AgentSample,
    DeploymentRow,
    DeploymentSample,
    DeviceShare,
    EngineCounterSample,
    EngineRow,
    EpochRow,
    Tick,
)
from pertoken.store.schema.shared import GATEWAY, IMPORTED_MACHINE, stable_id
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.retention import Ages, purge
from pertoken.store.write.writer import Writer
from pertoken.units import format_utc

FOUND_BY = "prometheus"
MAX_UNSCRAPED_STEPS = 5
"""Steps without a page after which an engine has stopped: Prometheus itself looks back as far for a sample."""
_FOREIGN_PID = 1
_FIRST_PID = 2
"""Engines have no process here: each gets a number by which devices name who holds them."""
_NO_COST = AgentCost(0, 0, 0, 0)
_REMEDY = "run the agent on this host: `pertoken agent install`"


@dataclass(slots=True)
class ImportedHost:
    """One host in the course of an import."""

    name: str
    server: str
    """URL of the Prometheus server, for people."""
    state: TickState = field(default_factory=lambda: TickState(watching_since_ms=0, boot_ms=0))
    begun: bool = False
    unscraped: dict[str, int] = field(default_factory=dict)
    """Steps in a row that the engine at an address, or a device, was not scraped."""
    last: dict[str, EngineReading] = field(default_factory=dict)
    """Last usable reading by base URL and model."""
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """Of each device, as first seen: a card does not change it."""


def host_id_of_name(name: str) -> int:
    """Return the id of the imported host of that name, which no agent's host has."""
    return stable_id("host", IMPORTED_MACHINE + name)


def replay(host: ImportedHost, chunk: Chunk, steps: range) -> Iterator[Tick]:
    """Yield the ticks of a host for these steps of a chunk; its first step is the baseline, and yields identities only.

    A step at which nothing of the host was recorded has none: the next tick covers its time.
    """
    engines = [engine for engine in chunk.engines if engine.host == host.name]
    devices = [device for device in chunk.devices if device.host == host.name]
    pids = {engine.address: _FIRST_PID + n for n, engine in enumerate(engines)}
    pids_by_device = _owners(engines, devices, chunk.engines)
    unavailable = {device.uuid: tuple(_device_unavailable(host, device)) for device in devices}
    assumed = {device.uuid for device in devices if not _held_by_pod(device, chunk.engines)}
    for step in steps:
        readings = [reading for engine in engines for reading in _engine(host, engine, pids[engine.address], step)]
        if all(reading.fault for reading in readings) and not any(device.present(step) for device in devices):
            continue
        ts = chunk.steps.start + step * chunk.steps.step_s
        serving = {reading.endpoint.pid for reading in readings}
        present = [device for device in devices if _is_present(host, device, step)]
        probe = _probe(
            host,
            [
                _device(host, device, pids_by_device[device.uuid], serving, unavailable[device.uuid], step)
                for device in present
            ],
            devices,
        )
        moment = Moment(ts, 1000 * ts, 1000 * ts, chunk.steps.step_s)
        tick, host.state = assemble(
            host.state, Readings(probe, tuple(readings)), moment, _NO_COST if host.begun else None
        )
        host.begun = True
        yield _imported(tick, assumed)


def _imported(tick: Tick, assumed: set[str]) -> Tick:
    """Return the tick without the columns of an agent; shares without a known holder are assumed."""
    unsure = {device.device_id for device in tick.devices if device.uuid in assumed}
    samples = tuple(
        replace(sample, provenance=Provenance.ASSUMED)
        if type(sample) is DeviceShare and sample.device_id in unsure
        else sample
        for sample in tick.samples
        if type(sample) is not AgentSample
    )
    return replace(tick, host=replace(tick.host, boot_ms=None, os=None), samples=samples)


def _held_by_pod(device: ImportedDevice, engines: Sequence[EngineSeries]) -> bool:
    return any(is_same_pod(engine.pod, pod) for engine in engines for pod in device.pods)


def _owners(
    engines: Sequence[EngineSeries], devices: Sequence[ImportedDevice], everywhere: Sequence[EngineSeries]
) -> Mapping[str, tuple[int, ...]]:
    """Return the numbers of the engines that hold each device, by UUID."""
    numbered = list(enumerate(engines, _FIRST_PID))
    without_pod = tuple(
        pid for pid, engine in numbered if not any(is_same_pod(engine.pod, pod) for row in devices for pod in row.pods)
    )
    return {
        device.uuid: tuple(pid for pid, engine in numbered if any(is_same_pod(engine.pod, pod) for pod in device.pods))
        if _held_by_pod(device, everywhere)
        else without_pod
        for device in devices
    }


def _engine(host: ImportedHost, engine: EngineSeries, pid: int, step: int) -> Iterator[EngineReading]:
    """Yield its readings of a step, one of each model; earlier ones with a fault while it is not scraped."""
    page = engine.page(step)
    base_url = f"http://{engine.address}"
    previous_readings = {key: last for key, last in host.last.items() if last.endpoint.base_url == base_url}
    fault = "was not scraped"
    if page is not None:
        try:
            readings = list(_usable(engine, page, pid, buckets=step in engine.buckets))
        except PageError as error:
            fault = f"{error}"
        else:
            for key in previous_readings:
                del host.last[key]
            host.last |= {f"{reading.endpoint.base_url} {reading.endpoint.model}": reading for reading in readings}
            host.unscraped[engine.address] = 0
            yield from readings
            return
    missed = host.unscraped[engine.address] = host.unscraped.get(engine.address, 0) + 1
    for key, previous in previous_readings.items():
        if missed > MAX_UNSCRAPED_STEPS:
            del host.last[key]
        else:
            endpoint = replace(previous.endpoint, pid=pid, pids=(pid,))
            yield EngineReading(endpoint, fault=f"{engine.address} {fault}", fault_kind="closed")


def _usable(engine: EngineSeries, page: MetricsPage, pid: int, *, buckets: bool) -> Iterator[EngineReading]:
    adapter = ADAPTERS[engine.kind]
    models = adapter.models(page)
    identity = adapter.identify(lambda _: None, page)
    started = page.gauge(PROCESS_START)
    life_ms = round(1000 * next(iter(started.values()))) if len(started) == 1 else None
    for model in models:
        part = page.only(adapter.model_label or "", model) if len(models) > 1 else page
        counters = adapter.counters_of(part)
        if counters:
            yield EngineReading(
                Endpoint(
                    engine.kind,
                    f"http://{engine.address}",
                    FOUND_BY,
                    pid=pid,
                    pids=(pid,),
                    model=model if len(models) > 1 else None,
                ),
                served_model=model,
                knobs={**identity.knobs, **engine.owner},
                counters=counters,
                gauges=adapter.gauges_of(part),
                histograms=adapter.histograms_of(part) if buckets else None,
                life_ms=life_ms,
                unavailable=(adapter.no_time,) if adapter.no_time else (),
            )


def _is_present(host: ImportedHost, device: ImportedDevice, step: int) -> bool:
    """Return whether a device is there at a step: scraped, or not scraped for a while only."""
    missed = host.unscraped[device.uuid] = 0 if device.present(step) else host.unscraped.get(device.uuid, 0) + 1
    return missed <= MAX_UNSCRAPED_STEPS


def _device(
    host: ImportedHost,
    device: ImportedDevice,
    pids: Sequence[int],
    serving: set[int | None],
    unavailable: tuple[Unavailable, ...],
    step: int,
) -> DeviceReading:
    values = {name: series[step] for name, series in device.values.items()}
    if device.memory_bytes is not None:
        host.memory_bytes.setdefault(device.uuid, device.memory_bytes)
    held_by = [pid for pid in pids if pid in serving]
    if not held_by and values.get("util_1e4"):
        held_by = [_FOREIGN_PID]
    lost = None if device.present(step) else f"{device.exporter} was not scraped"
    return DeviceReading(
        uuid=device.uuid,
        kind="gpu",
        vendor="nvidia",
        name=device.name,
        slot=device.slot,
        memory_bytes=host.memory_bytes.get(device.uuid),
        driver_version=device.driver_version,
        power_source="average, gpu" if "power_mw" in device.values else None,
        energy_source="gpu" if "energy_mj" in device.values else None,
        lost=lost,
        processes=tuple(DeviceProcess(pid, None) for pid in held_by),
        unavailable=unavailable,
        **values,
    )


def _device_unavailable(host: ImportedHost, device: ImportedDevice) -> Iterator[Unavailable]:
    names = {series.reading: series.names[0] for series in EXPORTERS[device.exporter].series}
    for metric in DEVICE:
        if (metric.series or metric.reading == "energy_mj") and metric.reading not in device.values:
            recorded = names.get(metric.reading)
            remedy = f"have {device.exporter} expose {recorded}, or {_REMEDY}" if recorded else _REMEDY
            yield Unavailable(metric.stored, "missing", f"{metric.label} is not recorded in {host.server}", remedy)
    if device.has_instances:
        yield Unavailable(
            "partitions", "missing", "its MIG instances are not imported: who holds which is unknown", _REMEDY
        )


def _probe(host: ImportedHost, devices: Sequence[DeviceReading], recorded: Sequence[ImportedDevice]) -> ProbeReading:
    previous_devices = {device.uuid: device for device in host.state.probe.devices} if host.state.probe else {}
    if host.state.probe is not None:
        # A device that is not recorded any more has gone; an agent would see that its driver lost it.
        remaining = tuple(previous_devices[device.uuid] for device in devices if device.uuid in previous_devices)
        host.state = replace(host.state, probe=replace(host.state.probe, devices=remaining))
    imported = Unavailable("source", "imported", f"its telemetry was imported from {host.server}", _REMEDY)
    unavailable = [imported]
    if not devices:
        unavailable.append(
            Unavailable("devices", "missing", f"{host.server} has no device of this host, so no price applies", _REMEDY)
        )
    reading = HostReading(
        name=host.name,
        machine_id=IMPORTED_MACHINE + host.name,
        boot_id=None,
        boot_ms=0,
        os="",
    )
    return bounded(ProbeReading(reading, tuple(devices), tuple(unavailable)), previous_devices)


CHUNK_S = 6 * HOUR
"""Interval read at once: 360 points of each series."""


@dataclass(slots=True)
class Imported:
    """Totals of the import of one host."""

    name: str
    first_ts: int | None = None
    last_ts: int | None = None
    minutes: int = 0
    devices: set[int] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    prompt_tokens: int = 0
    generated_tokens: int = 0
    note: str | None = None
    """Why a part of the import was left out."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """Something that rules and screens lack, since Prometheus does not have it."""

    metric: str
    owners: int
    """Devices, engines or hosts that lack it."""
    reason: str
    remedy: str | None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Summary of an import."""

    hosts: Sequence[Imported]
    blocked: Sequence[Blocked]
    wanted_names: Sequence[str] = ()
    """Names of engines' series that were looked for, if no engine was found."""
    found_names: Sequence[str] = ()
    """Names there that count tokens, if no engine was found."""


Advanced = Callable[[int], None]
"""Called with the seconds that were imported since it was called last."""


def import_prometheus(
    source: SeriesSource, store: Store, location: StoreLocation, start: int, end: int, ages: Ages, advanced: Advanced
) -> ImportReport:
    """Import [start, end), whole minutes, into a folder; rows older than `ages` are rolled up and deleted as usual.

    Raises BadInput where the server cannot be read, StoreError where the folder cannot be written.
    """
    with store.read() as connection:
        recorded_hosts = read.recorded_hosts(connection)
    imported = {
        host_id.name: host_id for host_id in recorded_hosts if (host_id.machine_id or "").startswith(IMPORTED_MACHINE)
    }
    run = _Run(start, imported, [host_id for host_id in recorded_hosts if host_id not in imported.values()])
    with Writer(location) as writer:
        for steps in _chunks(start, end, [host.until_ts for host in imported.values() if host.until_ts]):
            chunk = read_chunk(source, steps, run.engines)
            for host in run.hosts(chunk, source.api.url, store):
                ticks = [run.note(host, tick) for tick in replay(host, chunk, run.due(host, chunk))]
                run.engines |= {
                    (reading.endpoint.kind, host.name, reading.endpoint.base_url.removeprefix("http://"))
                    for reading in host.last.values()
                }
                writer.commit_all(ticks)
            writer.roll_up()
            purge(writer, ages, end)
            advanced(steps.count * steps.step_s)
    report = run.report()
    if run.engines or any(host.models for host in report.hosts):
        return report
    seconds = RangeSteps(start, min(MAX_POINTS, max(1, (end - start) // HOUR)), HOUR)
    return replace(report, wanted_names=wanted_names(), found_names=found_names(source, seconds))


def _chunks(start: int, end: int, cuts: Iterable[int]) -> Iterator[RangeSteps]:
    """Yield the steps of each interval: from `start` to `end`, both included, and a new one at each of `cuts`."""
    inside = {cut for cut in cuts if start < cut < end}
    starts = sorted({start, *range(start, end, CHUNK_S), *inside})
    for first, following in zip(starts, [*starts[1:], end + MINUTE], strict=True):
        yield RangeSteps(first, (following - first) // MINUTE, MINUTE)


class _Run:
    """State of one import."""

    def __init__(
        self, start: int, imported: Mapping[str, read.RecordedHost], agents: Sequence[read.RecordedHost]
    ) -> None:
        self._start, self._imported, self._agents = start, imported, agents
        self._hosts: dict[str, ImportedHost] = {}
        self._totals: dict[str, Imported] = {}
        self._missing: dict[tuple[str, str, str | None], set[int]] = defaultdict(set)
        self.engines: set[tuple[str, str, str]] = set()
        """(kind, host, address) of each engine with known counters."""

    def hosts(self, chunk: Chunk, url: str, store: Store) -> Iterator[ImportedHost]:
        """Yield the hosts of a chunk, each with the state that its steps before left."""
        names = {engine.host for engine in chunk.engines} | {device.host for device in chunk.devices}
        for name in sorted(names):
            if name not in self._hosts:
                host = self._hosts[name] = ImportedHost(name, url)
                self._totals[name] = Imported(name)
                imported_host = self._imported.get(name)
                if imported_host is not None:
                    with store.read() as connection:
                        epochs = read.open_epochs(connection, host_id_of_name(name))
                    host.state = replace(host.state, epochs={epoch.deployment_id: epoch for epoch in epochs})
            yield self._hosts[name]

    def due(self, host: ImportedHost, chunk: Chunk) -> range:
        """Return the steps of a chunk that are neither imported nor recorded by an agent."""
        imported_host = self._imported.get(host.name)
        since = self._start if imported_host is None or imported_host.until_ts is None else imported_host.until_ts
        uuids = {device.uuid for device in chunk.devices if device.host == host.name}
        agent_starts = [agent.first_ts for agent in self._agents if agent.name == host.name or uuids & agent.uuids]
        until = min(agent_starts) if agent_starts else chunk.steps.end
        if agent_starts and until < chunk.steps.end:
            self._totals[host.name].note = "an agent recorded it from then on"
        if imported_host is not None and _recorded_before(imported_host.first_ts, host.name, chunk):
            self._totals[host.name].note = (
                f"what is older than its first import ({format_utc(imported_host.first_ts)}) was left out: "
                "import into another folder to have all of it"
            )
        first = max(0, -(-(since - chunk.steps.start) // chunk.steps.step_s))
        last = (until - chunk.steps.start) // chunk.steps.step_s
        return range(first, min(chunk.steps.count, last + 1))

    def note(self, host: ImportedHost, tick: Tick) -> Tick:
        """Count a tick for the report, and return it without devices that an agent has taken over."""
        totals = self._totals[host.name]
        totals.models |= {deployment.served_model for deployment in tick.deployments}
        totals.devices |= {device.device_id for device in tick.devices}
        if tick.samples:
            totals.first_ts = totals.first_ts or tick.ts - MINUTE
            totals.last_ts = tick.ts
            totals.minutes += 1
        for sample in tick.samples:
            if type(sample) is DeploymentSample:
                totals.prompt_tokens += sample.prompt_tokens or 0
                totals.generated_tokens += sample.generated_tokens or 0
        for missing in tick.capabilities:
            if missing.status == "missing":
                self._missing[missing.metric, missing.reason or "", missing.remedy].add(missing.owner_id)
        taken = frozenset[str]().union(*(agent.uuids for agent in self._agents))
        return replace(tick, devices=tuple(device for device in tick.devices if device.uuid not in taken))

    def report(self) -> ImportReport:
        """Return the totals by host, and the missing metrics, most frequent first."""
        blocked = [
            Blocked(label_of(metric), len(owners), reason, remedy)
            for (metric, reason, remedy), owners in self._missing.items()
        ]
        blocked.sort(key=lambda entry: (-entry.owners, entry.metric))
        return ImportReport([self._totals[name] for name in sorted(self._totals)], blocked)


def _recorded_before(ts: int, host: str, chunk: Chunk) -> bool:
    """Return whether a chunk has anything of a host before an instant."""
    steps = range(min(chunk.steps.count, max(0, (ts - chunk.steps.start) // chunk.steps.step_s)))
    return any(device.present(step) for device in chunk.devices if device.host == host for step in steps)


_LOG = "spend log"
"""Part of the ids of imported rows: a gateway that is read too has ids of its own."""


@dataclass(frozen=True, slots=True)
class ImportedLog:
    """Rows that an import stored."""

    first_ts: int | None
    last_ts: int | None
    """Minutes that were stored; None for none."""
    tokens: int
    left_out_minutes: int
    """Minutes that are not newer than the previous import."""


def import_spend_log(log: SpendLog, url: str, store: Store, location: StoreLocation) -> ImportedLog:
    """Store the tokens of a log, from the minute on that the import before it ended with.

    Raises BadInput where no host was recorded, StoreError where the folder cannot be written.
    """
    engine_id = stable_id("gateway", _LOG, url)
    with store.read() as connection:
        host = newest_host(connection)
        until = gateway_counted_until(connection, engine_id)
    if host is None:
        raise BadInput(f"{location}: no host was recorded: tokens of tenants are joined with those of engines")
    deployment_id = stable_id("deployment", engine_id, GATEWAY)
    fresh = {minute: counts for minute, counts in log.tokens.items() if until is None or minute >= until}
    if not fresh:
        return ImportedLog(None, None, 0, len(log.tokens))
    first, last = min(fresh), max(fresh) + MINUTE
    epoch = EpochRow(stable_id("epoch", deployment_id, first), deployment_id, first, last, None, "{}", ())
    engine = EngineRow(engine_id, host.host_id, LITELLM.kind, url, None, None, None, None, GATEWAY)
    deployment = DeploymentRow(deployment_id, engine_id, host.host_id, LITELLM.kind)
    with Writer(location) as writer:
        for minute, counts in fresh.items():
            ts = minute + MINUTE // 2  # inside of the minute, so that no edge moves it to another one
            samples = tuple(EngineCounterSample(epoch.epoch_id, metric, ts, count) for metric, count in counts.items())
            writer.commit(Tick(ts, host, (), (engine,), (deployment,), (epoch,), samples))
        writer.roll_up()
    tokens = sum(count for counts in fresh.values() for count in counts.values())
    return ImportedLog(first, last, tokens, len(log.tokens) - len(fresh))
