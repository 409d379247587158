"""Findings of `pertoken doctor`: metrics that this host can measure, and the reasons and remedies for the others."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata

import psutil

from pertoken.agent.discovery import EndpointWatch
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PageOrigin
from pertoken.agent.host.identity import HostIdentity, LastingIdentity
from pertoken.agent.host.owners import container_of
from pertoken.agent.host.plug import plug_watch
from pertoken.agent.host.processes import boot_ms, since_boot_ms
from pertoken.agent.readings import DeviceReading, EngineReading, PlugReading, ProbeReading, Unavailable
from pertoken.agent.rows.assemble import AgentCost, Readings, assemble
from pertoken.agent.rows.epochs import engine_id_of
from pertoken.agent.rows.tick_state import Moment, TickState
from pertoken.agent.sampler.client import Drivers
from pertoken.agent.scrape import RequestLimits
from pertoken.config import Settings
from pertoken.errors import PertokenError, StoreInaccessible
from pertoken.metrics import DEVICE
from pertoken.schedule.jobs import ADVISOR, AGENT, JobState, read_states
from pertoken.store.check import FIXED_WAL_RESET
from pertoken.store.connect.location import AgentLock, ProgramLock, StoreLocation, locate
from pertoken.store.connect.open import open_store
from pertoken.store.integrity.verify import quarantined_databases
from pertoken.store.query.read import first_and_last
from pertoken.store.schema.rows import DeploymentSample, DeviceSample, HostSample, Tick
from pertoken.store.write import rollup
from pertoken.units import RATIO, format_bytes, format_duration

ONCE_APART_S = 1.0
"""Time between the two readings."""
DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of everything on this host."""

    probe: ProbeReading
    engines: tuple[EngineReading, ...]
    unavailable: tuple[Unavailable, ...]
    wall_ms: int
    monotonic_ms: int
    identity: HostIdentity
    plug: PlugReading | None = None


class Looker:
    """Reads devices, host and engines as the daemon does, for as long as it is open."""

    def __init__(self, settings: Settings) -> None:
        limits = RequestLimits.of(settings)
        self._wait_s = 2 * limits.timeout_s  # a page, and what the engine is asked beside it
        self._drivers = Drivers(settings.agent_probes)
        self._plug = plug_watch(settings)
        self._plug.start_read()
        self._watch = EndpointWatch(settings.agent_engines, settings.agent_discover, limits)
        self._identity = LastingIdentity(settings.agent_cloud_metadata)
        self._identity.look()
        self._watch.look()

    def look(self) -> Look:
        """Read everything now; drivers that do not answer are a gap."""
        probe, _ = self._drivers.read(processes=True, deadline_s=DEADLINE_S)
        engines = self._watch.read(wait_s=self._wait_s)
        unavailable = (*self._watch.unavailable, *self._identity.unavailable, *self._plug.unavailable)
        now_ms = round(time.time() * 1000)
        return Look(probe, engines, unavailable, now_ms, since_boot_ms(), self._identity.known, self._plug.newest)

    def close(self) -> None:
        """End the sampler."""
        self._watch.close()
        self._plug.close()
        self._drivers.close()


def measure(settings: Settings) -> tuple[Look, Tick]:
    """Two looks `APART_S` apart: the second, and the tick the daemon would have stored of both."""
    with closing(Looker(settings)) as looker:
        first = looker.look()
        time.sleep(ONCE_APART_S)
        second = looker.look()
    tick_state = TickState(watching_since_ms=first.monotonic_ms, boot_ms=boot_ms())
    for look, cost in ((first, None), (second, AgentCost(0, 0, 0, 0))):
        moment = Moment(look.wall_ms // 1000, look.wall_ms, look.monotonic_ms, max(1, round(ONCE_APART_S)))
        readings = Readings(look.probe, look.engines, None, look.unavailable, (), look.identity, plug=look.plug)
        tick, tick_state = assemble(tick_state, readings, moment, cost)
    return second, tick


def show(measured: tuple[Look, Tick], as_json: bool) -> str:
    """Return a measurement as JSON or as lines for people; None (a dash) is unknown."""
    look, tick = measured
    if as_json:
        samples: dict[str, list[dict[str, object]]] = {}
        for sample in tick.samples:
            columns = sample._asdict() if isinstance(sample, DeviceSample) else asdict(sample)
            samples.setdefault(type(sample).__name__, []).append({**columns})
        document = {
            "host": asdict(tick.host),
            "devices": [asdict(row) for row in tick.devices],
            "engines": [asdict(reading) for reading in look.engines],
            "gaps": [asdict(missing) for missing in (*look.probe.unavailable, *look.unavailable)],
            "over_ms": round(1000 * ONCE_APART_S),
            "samples": samples,
        }
        return json.dumps(document, indent=2)
    return "\n".join(_lines(look, tick))


def _lines(look: Look, tick: Tick) -> Iterator[str]:
    host = next(sample for sample in tick.samples if isinstance(sample, HostSample))
    yield f"host     {tick.host.name}: CPU {_percent(host.cpu_util_1e4)}, memory {format_bytes(host.memory_used_bytes)}"
    if look.plug is not None:
        yield f"plug     {look.plug.power_mw / 1000:.0f} W by {look.plug.source}"
    names = {row.device_id: row.name for row in tick.devices}
    for sample in tick.samples:
        if isinstance(sample, DeviceSample):
            power = "–" if sample.power_mw is None else f"{sample.power_mw / 1000:.0f}"
            memory = format_bytes(sample.memory_used_bytes)
            yield f"device   {names[sample.device_id]}: {_percent(sample.util_1e4)} busy, {power} W, {memory}"
    models = {epoch.epoch_id: epoch.deployment_id for epoch in tick.epochs}
    served = {row.deployment_id: row.served_model for row in tick.deployments}
    rows = {served.get(models.get(s.epoch_id, 0)): s for s in tick.samples if isinstance(s, DeploymentSample)}
    for reading in look.engines:
        where = f"{reading.endpoint.kind} at {reading.endpoint.base_url}"
        if reading.fault:
            yield f"engine   {where}: {reading.fault}; {reading.remedy}"
            continue
        row = rows.get(reading.served_model)
        rate = "–" if row is None or row.generated_tokens is None else f"{row.generated_tokens / ONCE_APART_S:.0f}"
        totals = ", ".join(f"{value:,} {series}" for series, value in sorted(reading.counters.items()))
        yield f"engine   {where}: {reading.served_model}, {rate} generated tok/s now; so far {totals}"
    if not look.engines:
        yield "engine   none found"
    for missing in (*look.probe.unavailable, *look.unavailable):
        yield f"missing  {missing.metric}: {missing.reason}" + (f"; {missing.remedy}" if missing.remedy else "")


def _percent(ratio_1e4: int | None) -> str:
    return "–" if ratio_1e4 is None else f"{100 * ratio_1e4 / RATIO:.0f} %"


_QUARANTINED = "all others are computed; it is tried again when its rows change and after an upgrade of pertoken"
_ROOM_BYTES = 2**20
"""Less than this is no room for ticks."""
APART_S = 0.2
"""Between two looks: kernels count CPU time in hundredths of a second, GPUs their activity in tenths."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that works or does not."""

    area: str
    """`host`, `device`, `engine`, `database`, `jobs`, `settings` or `prices`."""
    subject: str
    ok: bool
    text: str
    remedy: str | None = None


def examine(settings: Settings) -> tuple[Finding, ...]:
    """Look at everything once; every fault is a finding. Raises BadInput for an address that names no database."""
    where = locate(settings.db, settings.advice)
    with closing(Looker(settings)) as looker:
        looker.look()
        time.sleep(APART_S)
        look = looker.look()  # rates need two readings
    findings = [Finding("host", look.probe.host.name, True, f"{look.probe.host.cpu_name}, {look.probe.host.os}")]
    findings += _machine(look.identity)
    findings += of_environment(_installed_version)
    findings += [_unavailable("host", "this host", missing) for missing in (*look.probe.unavailable, *look.unavailable)]
    for device in look.probe.devices:
        findings += of_device(device)
    read_at: dict[int, str] = {}
    for engine in look.engines:
        url = engine.endpoint.base_url
        first = read_at.setdefault(engine_id_of(0, engine.endpoint, {}), url)
        if first == url:
            findings += of_engine(engine)
        else:
            text = f"the same address as {first}, where it is read already"
            findings.append(Finding("engine", url, False, text, "name each server once in agent.engines"))
    if not look.engines:
        findings.append(
            Finding("engine", "none", False, "no inference server was found", "start one, or name it: --engine URL")
        )
    findings += [*_database(where, settings), *of_jobs(where, time.time())]
    source = str(settings.source) if settings.source else "none; defaults and the environment"
    findings.append(Finding("settings", source, True, "good"))
    return tuple(findings)


def of_environment(version_of: Callable[[str], str | None]) -> list[Finding]:
    """Return a finding where this program shares its Python environment with a package that looks for AMD GPUs.

    `version_of` returns the version of an installed distribution, None if it is not installed. Torch for ROCm and vLLM
    import `amdsmi` where it is there, and the one that comes with this program may not fit their ROCm.
    """
    shared = [f"{name} {version}" for name in ("torch", "vllm") if (version := version_of(name)) is not None]
    if not shared or version_of("amdsmi") is None:
        return []
    text = f"pertoken shares it with {' and '.join(shared)}, which import the amdsmi of this environment"
    remedy = "install pertoken in an environment of its own: pipx, the image, or python3 -m venv /opt/pertoken"
    return [Finding("host", "Python environment", False, text, remedy)]


def _installed_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _unavailable(area: str, subject: str, missing: Unavailable) -> Finding:
    return Finding(area, subject, False, f"{missing.metric}: {missing.reason}", missing.remedy)


def _machine(identity: HostIdentity) -> list[Finding]:
    made = " ".join(filter(None, (identity.dmi_vendor, identity.dmi_product)))
    findings = [Finding("host", "machine", True, made)] if made else []
    if identity.instance_type:
        bought = (identity.purchase or "purchase unknown").replace("_", "-")
        text = f"{identity.cloud} {identity.instance_type} in {identity.region or 'an unknown region'}, {bought}"
        findings.append(Finding("host", "instance", True, text))
    return findings


def of_device(device: DeviceReading) -> list[Finding]:
    """Return the readable and the missing metrics of one device, and its processes."""
    name = f"{device.name} #{device.slot}" if device.slot is not None else device.name
    if device.lost:
        silent = "" if device.silent_s is None else f"; it last answered {format_duration(device.silent_s)} ago"
        return [Finding("device", name, False, f"{device.lost}{silent}")]
    named = [(metric.label, metric.reading) for metric in DEVICE] + [("processes", "processes")]
    read = [label for label, metric in named if getattr(device, metric) is not None]
    findings = [Finding("device", name, True, ", ".join(read))]
    findings += [Finding("device", name, True, f"held by {_process(held.pid)}") for held in device.processes or ()]
    return findings + [_unavailable("device", name, missing) for missing in device.unavailable]


def _process(pid: int) -> str:
    """Return a process as people know it: by its name and its container."""
    try:
        named = f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        named = f"pid {pid}"
    container = container_of(pid)
    return f"{named} in {container}" if container else named


def of_engine(engine: EngineReading) -> list[Finding]:
    """Return the counters of one engine, how far their reading was tested, and the metrics it never exposes."""
    subject = f"{engine.endpoint.kind} at {engine.endpoint.base_url}"
    if engine.fault:
        return [Finding("engine", subject, False, engine.fault, engine.remedy)]
    adapter = ADAPTERS[engine.endpoint.kind]
    notes = [f"{engine.served_model}, {len(engine.counters)} counters"]
    if engine.endpoint.pid is not None and (container := container_of(engine.endpoint.pid)):
        notes.append(f"in {container}")
    notes += [", ".join(f"{name} {value}" for name, value in sorted(engine.knobs.items()))]
    if adapter.tested_on is not PageOrigin.LIVE:
        notes.append(f"its reading was tested on {adapter.tested_on}")
    if adapter.at_finish:
        notes.append(f"counted when a request finishes: {', '.join(sorted(adapter.at_finish))}")
    findings = [Finding("engine", subject, True, "; ".join(filter(None, notes)))]
    return findings + [
        _unavailable("engine", subject, missing) for missing in engine.unavailable if missing.status != "late"
    ]


def _database(where: StoreLocation, settings: Settings) -> list[Finding]:
    findings = []
    version = ".".join(map(str, sqlite3.sqlite_version_info))
    if sqlite3.sqlite_version_info < FIXED_WAL_RESET:
        fixed = ".".join(map(str, FIXED_WAL_RESET))
        text = f"SQLite {version}: before {fixed} two writers could corrupt a WAL; pertoken has one writer on any"
        findings.append(Finding("database", "library", True, text))
    else:
        findings.append(Finding("database", "library", True, f"SQLite {version}"))
    owner = AgentLock(where.folder).owner() if where.folder else None
    running = f"an agent records here (pid {owner})" if owner else "no agent records here now"
    try:
        with open_store(where).read() as connection:
            failed = list(rollup.findings(connection))
            _, newest_ts = first_and_last(connection)
    except PertokenError as error:
        remedy = None if isinstance(error, StoreInaccessible) else "start one: `pertoken agent`"
        findings.append(Finding("database", str(where), False, str(error), remedy))
    else:
        findings.append(Finding("database", str(where), True, f"readable; {running}"))
        if owner and newest_ts is not None:
            findings += _stalled(where, settings, time.time() - newest_ts)
        findings += [Finding("database", "roll-ups", False, text, _QUARANTINED) for text in failed]
    for quarantined in quarantined_databases(where) if where.folder else ():
        text = "was damaged and is quarantined; what came after is in a new database"
        remedy = "keep it for what it still holds, or delete it; look at the disk it was on"
        findings.append(Finding("database", str(quarantined), False, text, remedy))
    return findings


def of_jobs(where: StoreLocation, now_ts: float) -> list[Finding]:
    """Return how the periodic jobs of the agent and the advisor that run on this database went."""
    findings = []
    for program, state in running_jobs(where):
        good = state.error is None and not state.overdue(now_ts)
        remedy = None if good else f"see the {program}'s log"
        findings.append(Finding("jobs", state.name, good, state.text(now_ts), remedy))
    return findings


def running_jobs(where: StoreLocation) -> Iterator[tuple[str, JobState]]:
    """Yield each job of the programs that run on this database, with the program's name."""
    if where.folder is None:
        return
    for program, folder in ((AGENT, where.folder), (ADVISOR, where.file("advice").parent)):
        owner = ProgramLock(folder, program).owner()
        for state in () if owner is None else read_states(folder, owner, program):
            yield program, state


def _stalled(where: StoreLocation, settings: Settings, age_s: float) -> list[Finding]:
    """Return a finding where an agent runs and its newest tick is too old."""
    if age_s <= max(60, 5 * settings.agent_interval):
        return []
    file, disk = where.file("telemetry"), os.statvfs(where.file("telemetry").parent)
    cap = settings.store_max_mb
    if disk.f_bavail * disk.f_frsize < _ROOM_BYTES:
        why, remedy = "its disk is full", "make room there; what is counted meanwhile goes into the first tick after it"
    elif cap is not None and file.stat().st_size > cap * 1e6 - _ROOM_BYTES:
        why, remedy = f"it may take {cap:g} MB and is full", "raise store.max_mb"
    else:
        why, remedy = "ticks are not stored", "see the agent's log"
    text = f"an agent runs and its newest tick is {format_duration(age_s)} old: {why}"
    return [Finding("database", str(where), False, text, remedy)]


def show_doctor(findings: tuple[Finding, ...], as_json: bool) -> str:
    """Return findings as JSON or as lines: `ok` or `--`, the finding, and its remedy."""
    if as_json:
        return json.dumps([asdict(finding) for finding in findings], indent=2)
    lines = []
    area = ""
    for finding in findings:
        if finding.area != area:
            area = finding.area
            lines.append(f"{area}")
        lines.append(f"  {'ok' if finding.ok else '--'}  {finding.subject}: {finding.text}")
        if finding.remedy:
            lines.append(f"        {finding.remedy}")
    return "\n".join(lines)
