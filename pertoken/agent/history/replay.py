"""Recorded series of one host as ticks: step by step through `agent.rows`, as readings of its agent would go.

What an agent sees and Prometheus does not record is a gap with a remedy: rules that need it are blocked. Which engine
holds which device is known by the pod that both name; else an engine is taken to hold all devices of its host that no
pod holds, which is an assumption and stored as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.agent.bounds import bounded
from pertoken.agent.engines.adapters.adapter import PROCESS_START
from pertoken.agent.history.exporters import EXPORTERS
from pertoken.agent.history.series import Chunk, DeviceSeries, EngineSeries
from pertoken.agent.history.targets import is_same_pod
from pertoken.agent.readings import (
    DeviceProcess,
    DeviceReading,
    Endpoint,
    EngineReading,
    HostReading,
    ProbeReading,
    Unavailable,
)
from pertoken.agent.rows.assemble import Cost, Readings, assemble
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.scrape.page import Page, PageError
from pertoken.metrics import DEVICE
from pertoken.provenance import Provenance
from pertoken.store.schema.rows import AgentSample, DeviceShare, Tick
from pertoken.store.schema.shared import IMPORTED_MACHINE, stable_id

FOUND_BY = "prometheus"
MAX_UNSCRAPED_STEPS = 5
"""Steps without a page after which an engine has stopped: Prometheus itself looks back as far for a sample."""
_FOREIGN_PID = 1
_FIRST_PID = 2
"""Engines have no process here: each gets a number by which devices name who holds them."""
_NO_COST = Cost(0, 0, 0, 0)
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

    @property
    def host_id(self) -> int:
        """Its id: of its name, and of no agent's host."""
        return host_id_of_name(self.name)


def host_id_of_name(name: str) -> int:
    """Return the id of the imported host of that name."""
    return stable_id("host", IMPORTED_MACHINE + name)


def replay(host: ImportedHost, chunk: Chunk, at_steps: range) -> Iterator[Tick]:
    """Yield the ticks of a host for these steps of a chunk; its first step is the baseline, and yields identities only.

    A step at which nothing of the host was recorded has none: the next tick covers its time.
    """
    engines = [engine for engine in chunk.engines if engine.host == host.name]
    devices = [device for device in chunk.devices if device.host == host.name]
    pids = {engine.address: _FIRST_PID + n for n, engine in enumerate(engines)}
    pids_by_device = _owners(engines, devices, chunk.engines)
    unavailable = {device.uuid: tuple(_device_unavailable(host, device)) for device in devices}
    assumed = {device.uuid for device in devices if not _held_by_pod(device, chunk.engines)}
    for at in at_steps:
        readings = [reading for engine in engines for reading in _engine(host, engine, pids[engine.address], at)]
        if all(reading.fault for reading in readings) and not any(device.present(at) for device in devices):
            continue
        ts = chunk.steps.start + at * chunk.steps.step_s
        serving = {reading.endpoint.pid for reading in readings}
        present = [device for device in devices if _is_present(host, device, at)]
        probe = _probe(
            host,
            [
                _device(host, device, pids_by_device[device.uuid], serving, unavailable[device.uuid], at)
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
    """Return the tick without what only an agent has, its shares as sure as what names the holders."""
    unsure = {device.device_id for device in tick.devices if device.uuid in assumed}
    samples = tuple(
        replace(sample, provenance=Provenance.ASSUMED)
        if type(sample) is DeviceShare and sample.device_id in unsure
        else sample
        for sample in tick.samples
        if type(sample) is not AgentSample
    )
    return replace(tick, host=replace(tick.host, boot_ms=None, os=None), samples=samples)


def _held_by_pod(device: DeviceSeries, engines: Sequence[EngineSeries]) -> bool:
    return any(is_same_pod(engine.pod, pod) for engine in engines for pod in device.pods)


def _owners(
    engines: Sequence[EngineSeries], devices: Sequence[DeviceSeries], everywhere: Sequence[EngineSeries]
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


def _engine(host: ImportedHost, engine: EngineSeries, pid: int, at: int) -> Iterator[EngineReading]:
    """Yield its readings of a step, one of each model; earlier ones with a fault while it is not scraped."""
    page = engine.page(at)
    base_url = f"http://{engine.address}"
    own = {key: last for key, last in host.last.items() if last.endpoint.base_url == base_url}
    fault = "was not scraped"
    if page is not None:
        try:
            readings = list(_usable(engine, page, pid, buckets=at in engine.buckets))
        except PageError as error:
            fault = f"{error}"
        else:
            for key in own:
                del host.last[key]
            host.last |= {f"{reading.endpoint.base_url} {reading.endpoint.model}": reading for reading in readings}
            host.unscraped[engine.address] = 0
            yield from readings
            return
    missed = host.unscraped[engine.address] = host.unscraped.get(engine.address, 0) + 1
    for key, own_reading in own.items():
        if missed > MAX_UNSCRAPED_STEPS:
            del host.last[key]
        else:
            endpoint = replace(own_reading.endpoint, pid=pid, pids=(pid,))
            yield EngineReading(endpoint, fault=f"{engine.address} {fault}", fault_kind="closed")


def _usable(engine: EngineSeries, page: Page, pid: int, *, buckets: bool) -> Iterator[EngineReading]:
    adapter = engine.adapter
    models = adapter.models(page)
    identity = adapter.identify(lambda _: None, page)
    started = page.gauge(PROCESS_START)
    life_ms = round(1000 * next(iter(started.values()))) if len(started) == 1 else None
    for model in models:
        part = page.only(adapter.model_label or "", model) if len(models) > 1 else page
        values = adapter.read(part)
        if values.counters:
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
                counters=values.counters,
                gauges=values.gauges,
                histograms=adapter.histograms_of(part) if buckets else None,
                life_ms=life_ms,
                unavailable=(adapter.no_time,) if adapter.no_time else (),
            )


def _is_present(host: ImportedHost, device: DeviceSeries, at: int) -> bool:
    """Return whether a device is there at a step: scraped, or not scraped for a while only."""
    missed = host.unscraped[device.uuid] = 0 if device.present(at) else host.unscraped.get(device.uuid, 0) + 1
    return missed <= MAX_UNSCRAPED_STEPS


def _device(
    host: ImportedHost,
    device: DeviceSeries,
    pids: Sequence[int],
    serving: set[int | None],
    unavailable: tuple[Unavailable, ...],
    at: int,
) -> DeviceReading:
    values = {name: series[at] for name, series in device.values.items()}
    if device.memory_bytes is not None:
        host.memory_bytes.setdefault(device.uuid, device.memory_bytes)
    held_by = [pid for pid in pids if pid in serving]
    if not held_by and values.get("util_1e4"):
        held_by = [_FOREIGN_PID]
    lost = None if device.present(at) else f"{device.exporter} was not scraped"
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


def _device_unavailable(host: ImportedHost, device: DeviceSeries) -> Iterator[Unavailable]:
    names = {one.reading: one.names[0] for one in EXPORTERS[device.exporter].series}
    for metric in DEVICE:
        if (metric.series or metric.reading == "energy_mj") and metric.reading not in device.values:
            recorded = names.get(metric.reading)
            remedy = f"have {device.exporter} expose {recorded}, or {_REMEDY}" if recorded else _REMEDY
            yield Unavailable(metric.stored, "missing", f"{metric.label} is not recorded in {host.server}", remedy)
    if device.has_instances:
        yield Unavailable(
            "partitions", "missing", "its MIG instances are not imported: who holds which is unknown", _REMEDY
        )


def _probe(host: ImportedHost, devices: Sequence[DeviceReading], recorded: Sequence[DeviceSeries]) -> ProbeReading:
    before = {device.uuid: device for device in host.state.probe.devices} if host.state.probe else {}
    if host.state.probe is not None:
        # A device that is not recorded any more has gone; an agent would see that its driver lost it.
        known = tuple(before[device.uuid] for device in devices if device.uuid in before)
        host.state = replace(host.state, probe=replace(host.state.probe, devices=known))
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
        cpu_name=None,
        cpu_count=None,
        memory_bytes=None,
        cpu_util_1e4=None,
        load_1e2=None,
        memory_used_bytes=None,
        network_rx_bytes=None,
        network_tx_bytes=None,
    )
    return bounded(ProbeReading(reading, tuple(devices), tuple(unavailable)), before)
