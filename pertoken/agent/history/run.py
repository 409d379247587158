"""Import of what a Prometheus server recorded: hours at a time, into a folder that no agent writes meanwhile.

Roll-ups are computed from the replayed minutes by the store itself. An import goes on from where the one before it
ended, host by host, and ends where an agent's own telemetry of that host begins: no minute is stored twice, and no
bucket of an agent changes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.agent.history.api import MAX_POINTS, Steps
from pertoken.agent.history.replay import ImportedHost, host_id_of_name, replay
from pertoken.agent.history.series import Chunk, Source, found_names, read_chunk, wanted_names
from pertoken.metrics import label_of
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store
from pertoken.store.query import read
from pertoken.store.schema.rows import DeploymentSample, Tick
from pertoken.store.schema.shared import IMPORTED_MACHINE
from pertoken.store.schema.telemetry import HOUR, MINUTE
from pertoken.store.write.retention import Ages, purge
from pertoken.store.write.writer import Writer
from pertoken.units import format_utc

CHUNK_S = 6 * HOUR
"""Stretch read at once: 360 points of each series."""


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
    """Why a part of what was asked for was left out."""


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
    source: Source, store: Store, place: StoreLocation, start: int, end: int, ages: Ages, advanced: Advanced
) -> ImportReport:
    """Import [start, end), whole minutes, into a folder; rows older than `ages` are rolled up and deleted as usual.

    Raises BadInput where the server cannot be read, StoreError where the folder cannot be written.
    """
    with store.read() as connection:
        known = read.recorded_hosts(connection)
    imported = {host_id.name: host_id for host_id in known if (host_id.machine_id or "").startswith(IMPORTED_MACHINE)}
    run = _Run(start, imported, [host_id for host_id in known if host_id not in imported.values()])
    with Writer(place) as writer:
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
    seconds = Steps(start, min(MAX_POINTS, max(1, (end - start) // HOUR)), HOUR)
    return replace(report, wanted_names=wanted_names(), found_names=found_names(source, seconds))


def _chunks(start: int, end: int, cuts: Iterable[int]) -> Iterator[Steps]:
    """Yield the steps of each stretch: from `start` to `end`, both included, and a new one at each of `cuts`."""
    inside = {cut for cut in cuts if start < cut < end}
    starts = sorted({start, *range(start, end, CHUNK_S), *inside})
    for first, following in zip(starts, [*starts[1:], end + MINUTE], strict=True):
        yield Steps(first, (following - first) // MINUTE, MINUTE)


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
        """(kind, host, address) of each engine whose counters are known."""

    def hosts(self, chunk: Chunk, url: str, store: Store) -> Iterator[ImportedHost]:
        """Yield the hosts of a chunk, each with the state that its steps before left."""
        names = {engine.host for engine in chunk.engines} | {device.host for device in chunk.devices}
        for name in sorted(names):
            if name not in self._hosts:
                host = self._hosts[name] = ImportedHost(name, url)
                self._totals[name] = Imported(name)
                known = self._imported.get(name)
                if known is not None:
                    with store.read() as connection:
                        epochs = read.open_epochs(connection, host_id_of_name(name))
                    host.state = replace(host.state, epochs={epoch.deployment_id: epoch for epoch in epochs})
            yield self._hosts[name]

    def due(self, host: ImportedHost, chunk: Chunk) -> range:
        """Return the steps of a chunk that are neither imported nor recorded by an agent."""
        known = self._imported.get(host.name)
        since = self._start if known is None or known.until_ts is None else known.until_ts
        uuids = {device.uuid for device in chunk.devices if device.host == host.name}
        own = [agent.first_ts for agent in self._agents if agent.name == host.name or uuids & agent.uuids]
        until = min(own) if own else chunk.steps.end
        if own and until < chunk.steps.end:
            self._totals[host.name].note = "an agent recorded it from then on"
        if known is not None and _recorded_before(known.first_ts, host.name, chunk):
            self._totals[host.name].note = (
                f"what is older than its first import ({format_utc(known.first_ts)}) was left out: "
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
        """Return what was imported, and what is missing most often first."""
        blocked = [
            Blocked(label_of(metric), len(owners), reason, remedy)
            for (metric, reason, remedy), owners in self._missing.items()
        ]
        blocked.sort(key=lambda entry: (-entry.owners, entry.metric))
        return ImportReport([self._totals[name] for name in sorted(self._totals)], blocked)


def _recorded_before(ts: int, host: str, chunk: Chunk) -> bool:
    """Return whether a chunk has anything of a host before an instant."""
    steps = range(min(chunk.steps.count, max(0, (ts - chunk.steps.start) // chunk.steps.step_s)))
    return any(device.present(at) for device in chunk.devices if device.host == host for at in steps)
