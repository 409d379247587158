"""Series of a Prometheus server, by the engine or device they are of.

Engines are distinguished by their scrape address (`instance`), devices by UUID. Host names come from a label that a
person named, from the exporter, from the labels that Kubernetes discovery adds, else from the address.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PROCESS_START, Adapter
from pertoken.agent.history.api import PrometheusApi, Series, Steps
from pertoken.agent.history.exporters import EXPORTERS, Exporter
from pertoken.agent.scrape.page import Labels, Layout, Page

ENGINES = ("vllm", "sglang")
"""Engines whose pages name the model in a label: all that is known of the others comes from their API."""
HOST_LABELS = ("node", "kubernetes_node", "nodename")
"""Labels by which Kubernetes discovery names the node of a target, in the spellings of common relabelling rules."""
POD_LABELS = ("pod", "exported_pod", "pod_name")
_OF_THE_SCRAPE = frozenset({"__name__", "job", "instance"})
HISTOGRAMS_S = 600
"""Time between two readings of histograms, which have ten times as many series as all else: what was observed between
the last of them and a restart is lost."""


@dataclass(frozen=True, slots=True)
class Source:
    """Selection of the series of a server, and the naming of its hosts."""

    api: PrometheusApi
    match: str = ""
    """Label matchers, as in PromQL: `cluster="a"`."""
    host_label: str | None = None


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """Values of one engine's page at each step. `page` makes the page of a step."""

    kind: str
    address: str
    """`instance` of the scrape, with the pod where it names no port."""
    host: str
    pod: str | None
    rows: Sequence[tuple[str, Labels, Sequence[float | None]]]
    buckets: Mapping[int, Sequence[tuple[str, Labels, float]]] = field(default_factory=dict)
    """Buckets of its histograms, by the step at which they were read."""
    layouts: dict[tuple[bool, ...], Layout] = field(default_factory=dict, compare=False)

    @property
    def adapter(self) -> Adapter:
        """The table of its engine."""
        return ADAPTERS[self.kind]

    @property
    def first(self) -> int | None:
        """The first step at which it has a page."""
        steps = range(len(self.rows[0][2])) if self.rows else ()
        return next((at for at in steps if any(values[at] is not None for _, _, values in self.rows)), None)

    def page(self, at: int) -> Page | None:
        """Return its page at a step, with buckets where they were read; None where it was not scraped."""
        present = tuple(values[at] is not None for _, _, values in self.rows)
        if not any(present):
            return None
        samples: dict[str, dict[Labels, float]] = {}
        for name, labels, values in self.rows:
            value = values[at]
            if value is not None:
                samples.setdefault(name, {})[labels] = value
        buckets = self.buckets.get(at)
        if buckets is None:
            return Page(samples, self.layouts.setdefault(present, Layout()))
        for name, labels, value in buckets:
            samples.setdefault(name, {})[labels] = value
        return Page(samples)


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """Values that one exporter reported for a device at each step, in the units of a `DeviceReading`."""

    exporter: str
    uuid: str
    host: str
    name: str
    slot: int | None
    driver_version: str | None
    memory_bytes: int | None
    pods: frozenset[str]
    """Pods that its series name: one that holds it, or that of the exporter."""
    has_instances: bool
    """Whether it is divided into MIG instances."""
    values: Mapping[str, Sequence[int | None]]
    """By the name of the value in a reading."""

    def present(self, at: int) -> bool:
        """Return whether anything was read of it at a step."""
        return any(values[at] is not None for values in self.values.values())


@dataclass(frozen=True, slots=True)
class Chunk:
    """Series of a stretch of time."""

    steps: Steps
    engines: Sequence[EngineSeries]
    devices: Sequence[DeviceSeries]


def read_chunk(source: Source, steps: Steps, known: Collection[tuple[str, str]]) -> Chunk:
    """Read all series of a stretch.

    Histograms are read every `HISTOGRAMS_S`, and where an engine (kind, address) that is not `known` first appears: its
    buckets count from there. Raises BadInput.
    """
    devices: list[DeviceSeries] = []
    aliases: dict[str, str] = {}
    seen: set[str] = set()
    for exporter in EXPORTERS.values():
        device_series = source.api.ranges(_selector(exporter.names, source.match), steps)
        for device in _devices(exporter, device_series, source, aliases):
            if device.uuid not in seen:
                seen.add(device.uuid)
                devices.append(device)
    engines = [engine for kind in ENGINES for engine in _engines(kind, source, steps, aliases, known)]
    return Chunk(steps, engines, devices)


def _engines(
    kind: str,
    source: Source,
    steps: Steps,
    aliases: Mapping[str, str],
    known: Collection[tuple[str, str]],
) -> Iterable[EngineSeries]:
    adapter = ADAPTERS[kind]
    plain = [name for name in sorted(adapter.wanted) if not name.endswith("_bucket") and name != PROCESS_START]
    selector = _selector(plain, source.match)
    engine_series = source.api.ranges(selector, steps)
    if not engine_series:
        return
    started = f"{PROCESS_START}{{{source.match}}} and on (job, instance) {selector}"
    by_target = _by_target([*engine_series, *source.api.ranges(started, steps)])
    engines = {
        address: EngineSeries(
            kind, address, _host(labels, source, aliases), _pod(labels), [_row(one) for one in series]
        )
        for address, (labels, series) in by_target.items()
    }
    buckets = _selector([name for name in sorted(adapter.wanted) if name.endswith("_bucket")], source.match)
    due = {at for at in range(steps.count) if (steps.start + at * steps.step_s) % HISTOGRAMS_S == 0}
    due |= {
        engine.first for engine in engines.values() if engine.first is not None and (kind, engine.address) not in known
    }
    read: dict[str, dict[int, list[tuple[str, Labels, float]]]] = defaultdict(lambda: defaultdict(list))
    for run in _evenly_spaced(sorted(due)):
        apart_s = (run[1] - run[0]) * steps.step_s if len(run) > 1 else steps.step_s
        at_times = Steps(steps.start + run[0] * steps.step_s, len(run), apart_s)
        for address, (_, series) in _by_target(source.api.ranges(buckets, at_times)).items():
            for one in series:
                name, labels, values = _row(one)
                for at, value in zip(run, values, strict=True):
                    if value is not None:
                        read[address][at].append((name, labels, value))
    for address, engine in engines.items():
        yield EngineSeries(kind, address, engine.host, engine.pod, engine.rows, dict(read.get(address, {})))


def _evenly_spaced(steps: Sequence[int]) -> Iterable[Sequence[int]]:
    """Yield runs of steps that are equally far apart: each can be asked for at once."""
    run: list[int] = []
    for at in steps:
        if len(run) > 1 and at - run[-1] != run[1] - run[0]:
            yield run
            run = []
        run.append(at)
    if run:
        yield run


def _by_target(series: Iterable[Series]) -> dict[str, tuple[Mapping[str, str], list[Series]]]:
    """Return series by scrape address; of one that several jobs scrape those of the first job."""
    by_address: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for one in series:
        by_address[_address(one.labels)][one.labels.get("job", "")].append(one)
    return {
        address: (jobs[first][0].labels, jobs[first])
        for address, jobs in sorted(by_address.items())
        for first in [min(jobs)]
    }


def _address(labels: Mapping[str, str]) -> str:
    instance, pod = labels.get("instance", ""), _pod(labels)
    return instance if ":" in instance or not pod else f"{instance}/{pod}"


def _row(series: Series) -> tuple[str, Labels, Sequence[float | None]]:
    labels = tuple(sorted((name, value) for name, value in series.labels.items() if name not in _OF_THE_SCRAPE))
    return series.labels["__name__"], labels, series.values


def _devices(
    exporter: Exporter, ranges: Sequence[Series], source: Source, aliases: dict[str, str]
) -> Iterable[DeviceSeries]:
    by_uuid: dict[str, list[Series]] = defaultdict(list)
    for ranged in ranges:
        uuid = ranged.labels.get(exporter.uuid)
        if uuid:
            by_uuid[uuid if uuid.startswith(exporter.uuid_prefix) else exporter.uuid_prefix + uuid].append(ranged)
    for uuid, series in sorted(by_uuid.items()):
        labels: dict[str, str] = {}
        for one in series:
            labels |= {name: value for name, value in one.labels.items() if value}
        host = _host({**labels, "node": labels.get(exporter.host, labels.get("node", ""))}, source, {})
        aliases.setdefault(_host_part(labels.get("instance", "")), host)
        whole = [one for one in series if not one.labels.get(exporter.instance_id)]
        slot = labels.get(exporter.slot, "")
        pods = frozenset(one.labels[name] for one in series for name in POD_LABELS if one.labels.get(name))
        yield DeviceSeries(
            exporter.kind,
            uuid,
            host,
            labels.get(exporter.name, "NVIDIA GPU"),
            int(slot) if slot.isdecimal() else None,
            labels.get(exporter.driver),
            _memory_bytes(exporter, whole),
            pods,
            len(whole) < len(series),
            {
                reading.reading: values
                for reading in exporter.series
                if (values := _first(series if reading.of_card else whole, reading.names, reading.scale)) is not None
            },
        )


def _memory_bytes(exporter: Exporter, series: Sequence[Series]) -> int | None:
    """Return the memory of a device, by the first step at which all its parts are there."""
    parts = [one for name in exporter.memory for one in series if one.labels["__name__"] == name]
    by_name = {part.labels["__name__"]: part.values for part in reversed(parts)}
    for together in zip(*by_name.values(), strict=True):
        known = [value for value in together if value is not None]
        if known and len(known) == len(together):
            return int(sum(known) * exporter.memory_scale)
    return None


def _first(series: Sequence[Series], names: Sequence[str], scale: float) -> Sequence[int | None] | None:
    """Return the values of the first of these names, each from the first series that has it; None without any."""
    for name in names:
        own = [one.values for one in series if one.labels["__name__"] == name]
        if own:
            picked = (next((value for value in values if value is not None), None) for values in zip(*own, strict=True))
            # A page's NaN, and DCGM's marks of a blank value, are no value.
            return [round(value * scale) if value is not None and 0 <= value < 2**53 else None for value in picked]
    return None


def _selector(names: Sequence[str], match: str) -> str:
    return f'{{__name__=~"{"|".join(names)}"{"," if match else ""}{match}}}'


def _host(labels: Mapping[str, str], source: Source, aliases: Mapping[str, str]) -> str:
    named = next((labels[name] for name in (source.host_label or "", *HOST_LABELS) if labels.get(name)), None)
    if named is not None:
        return named
    address = _host_part(labels.get("instance", ""))
    return aliases.get(address, address) or "unnamed"


def _host_part(instance: str) -> str:
    """Return the host of `host:port`, of a bracketed IPv6 address too."""
    host, colon, port = instance.rpartition(":")
    return (host if colon and port.isdecimal() else instance).strip("[]")


def _pod(labels: Mapping[str, str]) -> str | None:
    return next((labels[name] for name in POD_LABELS if labels.get(name)), None)
