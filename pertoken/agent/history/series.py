"""Series of a Prometheus server, by engine and by device.

Engines are distinguished by their process (`prometheus.processes`), devices by UUID. A host's name comes from a label
that a person named, from the exporter, or from the labels that Kubernetes discovery adds. Without these it comes from
a GPU that names the engine's pod, else from the address.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import PROCESS_START
from pertoken.agent.history.prometheus import (
    EXPORTERS,
    HOST_LABELS,
    POD_LABELS,
    Exporter,
    PrometheusApi,
    PrometheusSeries,
    RangeSteps,
    Scrape,
    Targets,
    address_of,
    distinct,
    is_same_pod,
    merged,
    pod_of,
    pods_of,
    processes,
)
from pertoken.agent.host.owners import workload_of_pod
from pertoken.agent.scrape import Labels, Layout, MetricsPage
from pertoken.state.deployment import WORKLOAD

ENGINES = ("vllm", "sglang")
"""Engines that name the model in a label of their page: of others it is known from their API alone."""
PREFIXES = ("", "kserve_", "ray_")
"""Prefixes of relabelling rules before the names of engines: KServe's and Ray's, else any that is found."""
MAX_QUERY = 4000
"""Characters of a query that proxies pass on in a URL."""
_EXPORTER_POD = re.compile(r"dcgm-exporter(-\w+)?-[a-z0-9]{5}$")
"""Names of pods of dcgm-exporter, which reports its pod as the host where it has no other name."""
HISTOGRAMS_S = 600
"""Time between two readings of histograms, which have ten times as many series as all else: observations between the
last one and a restart are lost."""


@dataclass(frozen=True, slots=True)
class SeriesSource:
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
    """`instance` of the scrape, with the pod where it names no port; on its host no other engine has it."""
    host: str
    pod: str | None
    rows: Sequence[tuple[str, Labels, Sequence[float | None]]]
    buckets: Mapping[int, Sequence[tuple[str, Labels, float]]] = field(default_factory=dict)
    """Buckets of its histograms, by the step at which they were read."""
    layouts: dict[tuple[bool, ...], Layout] = field(default_factory=dict, compare=False)

    @property
    def owner(self) -> Mapping[str, str]:
        """The object that its pod belongs to, as the knob of an epoch."""
        if self.pod is None:
            return {}
        namespace, _, pod = self.pod.rpartition("/")
        return {WORKLOAD: str(workload_of_pod(namespace or None, pod))}

    @property
    def first(self) -> int | None:
        """The first step at which it has a page."""
        steps = range(len(self.rows[0][2])) if self.rows else ()
        return next((step for step in steps if any(values[step] is not None for _, _, values in self.rows)), None)

    def page(self, step: int) -> MetricsPage | None:
        """Return its page at a step, with buckets where they were read; None where it was not scraped."""
        present = tuple(values[step] is not None for _, _, values in self.rows)
        if not any(present):
            return None
        samples: dict[str, dict[Labels, float]] = {}
        for name, labels, values in self.rows:
            value = values[step]
            if value is not None:
                samples.setdefault(name, {})[labels] = value
        buckets = self.buckets.get(step)
        if buckets is None:
            return MetricsPage(samples, self.layouts.setdefault(present, Layout()))
        for name, labels, value in buckets:
            samples.setdefault(name, {})[labels] = value
        return MetricsPage(samples)


@dataclass(frozen=True, slots=True)
class ImportedDevice:
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
    host_named: bool = True
    """Whether the exporter or a label names its host; else it is named by its address."""

    def present(self, step: int) -> bool:
        """Return whether anything was read of it at a step."""
        return any(values[step] is not None for values in self.values.values())


@dataclass(frozen=True, slots=True)
class Chunk:
    """Series of an interval."""

    steps: RangeSteps
    engines: Sequence[EngineSeries]
    devices: Sequence[ImportedDevice]


def read_chunk(source: SeriesSource, steps: RangeSteps, counted_engines: Collection[tuple[str, str, str]]) -> Chunk:
    """Read all series of an interval.

    Histograms are read every `HISTOGRAMS_S`, and where an engine first appears that is not among `counted_engines`
    (kind, host, address): its buckets count from there. Raises BadInput.
    """
    devices: list[ImportedDevice] = []
    aliases: dict[str, str] = {}
    seen: set[str] = set()
    for exporter in EXPORTERS.values():
        device_series = source.api.ranges(_selector(exporter.names, source.match), steps)
        for device in _devices(exporter, device_series, source, aliases):
            if device.uuid not in seen:
                seen.add(device.uuid)
                devices.append(device)
    engines: list[EngineSeries] = []
    for kind in ENGINES:
        names = _names_on_server(kind, source, steps)
        if names:
            engines += _engines(kind, names, source, steps, _Hosts(source, aliases, devices), counted_engines)
    return Chunk(steps, engines, _on_hosts_of_pods(devices, engines))


def found_names(source: SeriesSource, steps: RangeSteps) -> list[str]:
    """Return the names on a server at these steps that look like counts of tokens."""
    series = source.api.ranges(f'count by (__name__) ({{__name__=~".*[Tt]okens?_total"{_and(source.match)}}})', steps)
    return sorted({item.labels.get("__name__", "") for item in series} - {""})


def wanted_names() -> list[str]:
    """Return a name of each engine that is looked for."""
    return [name for kind in ENGINES for name in _sentinels(kind)]


def _sentinels(kind: str) -> list[str]:
    return sorted({f"{kind}:prompt_tokens_total", f"{kind}:generation_tokens_total"} & ADAPTERS[kind].wanted)


def _names_on_server(kind: str, source: SeriesSource, steps: RangeSteps) -> dict[str, str]:
    """Return the names of an engine's series as this server has them, with the engine's own names.

    A relabelling rule may put a prefix before them or replace the colon. It is empty for an engine without series.
    """
    sentinels = _sentinels(kind)
    edges = RangeSteps(steps.start, min(steps.count, 1 + steps.count // 5), 5 * steps.step_s)
    spelled = {spell(name): name for name in sentinels for spell in _spellings(PREFIXES)}
    server_names = {
        item.labels["__name__"] for item in source.api.ranges(_selector(list(spelled), source.match), edges)
    }
    if not server_names:
        pattern = "|".join(re.escape(name).replace(":", "[:_]") for name in sentinels)
        series = source.api.ranges(f'{{__name__=~".+({pattern})"{_and(source.match)}}}', edges)
        server_names = {item.labels["__name__"] for item in series}
    prefixes = {
        name.removesuffix(ending)
        for name in server_names
        for sentinel in sentinels
        for ending in (sentinel, sentinel.replace(":", "_"))
        if name.endswith(ending)
    }
    spellings = [
        spell for spell in _spellings(sorted(prefixes)) if any(spell(name) in server_names for name in sentinels)
    ]
    plain = [name for name in sorted(ADAPTERS[kind].wanted) if name != PROCESS_START]
    names = {spell(name): name for spell in spellings for name in plain}
    return names | dict(zip(plain, plain, strict=True)) if names else {}


def _spellings(prefixes: Iterable[str]) -> list[Callable[[str], str]]:
    def spelling(prefix: str, colon: str) -> Callable[[str], str]:
        return lambda name: prefix + name.replace(":", colon)

    return [spelling(prefix, colon) for prefix in prefixes for colon in (":", "_")]


class _Hosts:
    """Names of the hosts of engines."""

    def __init__(self, source: SeriesSource, aliases: Mapping[str, str], devices: Sequence[ImportedDevice]) -> None:
        self._source, self._aliases, self._devices = source, aliases, devices

    def of(self, target: Mapping[str, str]) -> str:
        """Return the name of a target's host: by its labels, by a GPU that names its pod, else by its address."""
        named, pod = _named_host(target, self._source), pod_of(target)
        if named is not None:
            return named
        hosts = {
            device.host for device in self._devices if any(is_same_pod(pod, device_pod) for device_pod in device.pods)
        }
        return hosts.pop() if len(hosts) == 1 else _host(target, self._source, self._aliases)


def _on_hosts_of_pods(devices: Sequence[ImportedDevice], engines: Sequence[EngineSeries]) -> list[ImportedDevice]:
    """Return the devices; one without a host by its exporter is on the host of the engine in its pod."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for device in devices:
        if not device.host_named:
            hosts[device.host] |= {
                engine.host for engine in engines if any(is_same_pod(engine.pod, pod) for pod in device.pods)
            }
    renamed = {host: engine_hosts.pop() for host, engine_hosts in hosts.items() if len(engine_hosts) == 1}
    return [replace(device, host=renamed.get(device.host, device.host)) for device in devices]


def _engines(
    kind: str,
    names: Mapping[str, str],
    source: SeriesSource,
    steps: RangeSteps,
    hosts: _Hosts,
    counted_engines: Collection[tuple[str, str, str]],
) -> Iterable[EngineSeries]:
    selected = [name for name, engine_name in names.items() if not engine_name.endswith("_bucket")]
    engine_series = _renamed(source.api.ranges(_selector(selected, source.match), steps), names)
    if not engine_series:
        return
    every_series = [*engine_series, *_starts(source, steps, engine_series, _selector(selected, source.match))]
    targets = Targets(every_series)
    scrapes_by_process = processes(targets.scrapes(every_series))
    targets_of = [_union(process) for process in scrapes_by_process]
    addresses = distinct([(hosts.of(target), address_of(target), target) for target in targets_of])
    engines = [
        EngineSeries(
            kind,
            address,
            hosts.of(target),
            pod_of(target),
            [(name, labels, values) for (name, labels), values in merged(process).items()],
        )
        for process, target, address in zip(scrapes_by_process, targets_of, addresses, strict=True)
    ]
    buckets = _selector([name for name, engine_name in names.items() if engine_name.endswith("_bucket")], source.match)
    due = {step for step in range(steps.count) if (steps.start + step * steps.step_s) % HISTOGRAMS_S == 0}
    due |= {
        engine.first
        for engine in engines
        if engine.first is not None and (kind, engine.host, engine.address) not in counted_engines
    }
    rank_by_scrape = {
        scrape.key: (n, rank) for n, process in enumerate(scrapes_by_process) for rank, scrape in enumerate(process)
    }
    read: dict[int, dict[int, dict[int, list[tuple[str, Labels, float]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for run in _evenly_spaced(sorted(due)):
        apart_s = (run[1] - run[0]) * steps.step_s if len(run) > 1 else steps.step_s
        at_times = RangeSteps(steps.start + run[0] * steps.step_s, len(run), apart_s)
        for scrape in targets.scrapes(_renamed(source.api.ranges(buckets, at_times), names)):
            if scrape.key not in rank_by_scrape:
                continue
            engine_n, rank = rank_by_scrape[scrape.key]
            for (name, labels), values in scrape.rows.items():
                for step, value in zip(run, values, strict=True):
                    if value is not None:
                        read[engine_n][step][rank].append((name, labels, value))
    for n, engine in enumerate(engines):
        yield replace(engine, buckets={step: ranks[min(ranks)] for step, ranks in read[n].items()})


def _starts(
    source: SeriesSource, steps: RangeSteps, engine_series: Sequence[PrometheusSeries], selector: str
) -> list[PrometheusSeries]:
    """Return the series of the start times of the processes of these series."""
    jobs = "|".join(sorted({_literal(item.labels.get("job", "")) for item in engine_series}))
    query = f'{{__name__=~"{PROCESS_START}",job=~"{_quoted(jobs)}"{_and(source.match)}}}'
    if len(query) > MAX_QUERY:
        query = f"{PROCESS_START}{{{source.match}}} and on (job, instance) {selector}"
    scraped = {(item.labels.get("job"), item.labels.get("instance")) for item in engine_series}
    return [
        item
        for item in source.api.ranges(query, steps)
        if item.labels["__name__"] == PROCESS_START and (item.labels.get("job"), item.labels.get("instance")) in scraped
    ]


def _literal(text: str) -> str:
    """Return a pattern of this text alone, in Prometheus's syntax, which knows no escaped space."""
    return re.escape(text).replace("\\ ", " ")


def _union(process: Sequence[Scrape]) -> dict[str, str]:
    """Return the labels of a process's target: its first scrape goes first."""
    return {name: value for scrape in reversed(process) for name, value in scrape.target.items()}


def _renamed(series: Iterable[PrometheusSeries], names: Mapping[str, str]) -> list[PrometheusSeries]:
    """Return the series under the engine's own names."""
    return [
        PrometheusSeries({**item.labels, "__name__": names[item.labels["__name__"]]}, item.values)
        for item in series
        if item.labels["__name__"] in names
    ]


def _evenly_spaced(steps: Sequence[int]) -> Iterable[Sequence[int]]:
    """Yield runs of steps that are equally far apart: each can be asked for at once."""
    run: list[int] = []
    for step in steps:
        if len(run) > 1 and step - run[-1] != run[1] - run[0]:
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _devices(
    exporter: Exporter, ranges: Sequence[PrometheusSeries], source: SeriesSource, aliases: dict[str, str]
) -> Iterable[ImportedDevice]:
    by_uuid: dict[str, list[PrometheusSeries]] = defaultdict(list)
    for ranged in ranges:
        uuid = ranged.labels.get(exporter.uuid)
        if uuid:
            by_uuid[uuid if uuid.startswith(exporter.uuid_prefix) else exporter.uuid_prefix + uuid].append(ranged)
    for uuid, series in sorted(by_uuid.items()):
        labels: dict[str, str] = {}
        for item in series:
            labels |= {name: value for name, value in item.labels.items() if value}
        reported = labels.get(exporter.host, "")
        if reported in [labels.get(name) for name in POD_LABELS] or _EXPORTER_POD.search(reported):
            reported = ""  # the name of the exporter's own pod
        named = labels if source.host_label in labels else {**labels, "node": reported or labels.get("node", "")}
        host = _host(named, source, {})
        aliases.setdefault(_host_part(labels.get("instance", "")), host)
        card_series = [item for item in series if not item.labels.get(exporter.instance_id)]
        slot = labels.get(exporter.slot, "")
        pods = frozenset(pod for item in series for pod in pods_of(item.labels))
        yield ImportedDevice(
            exporter.kind,
            uuid,
            host,
            labels.get(exporter.name, "NVIDIA GPU"),
            int(slot) if slot.isdecimal() else None,
            labels.get(exporter.driver),
            _memory_bytes(exporter, card_series),
            pods,
            len(card_series) < len(series),
            {
                reading.reading: values
                for reading in exporter.series
                if (values := _first(series if reading.of_card else card_series, reading.names, reading.scale))
                is not None
            },
            _named_host(named, source) is not None,
        )


def _memory_bytes(exporter: Exporter, series: Sequence[PrometheusSeries]) -> int | None:
    """Return the memory of a device, by the first step at which all its parts are there."""
    parts = [item for name in exporter.memory for item in series if item.labels["__name__"] == name]
    by_name = {part.labels["__name__"]: part.values for part in reversed(parts)}
    for together in zip(*by_name.values(), strict=True):
        values = [value for value in together if value is not None]
        if values and len(values) == len(together):
            return int(sum(values) * exporter.memory_scale)
    return None


def _first(series: Sequence[PrometheusSeries], names: Sequence[str], scale: float) -> Sequence[int | None] | None:
    """Return the values of the first of these names, each from the first series that has it; None without any."""
    for name in names:
        columns = [item.values for item in series if item.labels["__name__"] == name]
        if columns:
            picked = (
                next((value for value in values if value is not None), None) for values in zip(*columns, strict=True)
            )
            # A page's NaN, and DCGM's marks of a blank value, are no value.
            return [round(value * scale) if value is not None and 0 <= value < 2**53 else None for value in picked]
    return None


def _selector(names: Sequence[str], match: str) -> str:
    return f'{{__name__=~"{"|".join(names)}"{_and(match)}}}'


def _and(match: str) -> str:
    return f",{match}" if match else ""


def _quoted(pattern: str) -> str:
    """Return a pattern as it stands within quotation marks."""
    return pattern.replace("\\", "\\\\").replace('"', '\\"')


def _named_host(labels: Mapping[str, str], source: SeriesSource) -> str | None:
    return next((labels[name] for name in (source.host_label or "", *HOST_LABELS) if labels.get(name)), None)


def _host(labels: Mapping[str, str], source: SeriesSource, aliases: Mapping[str, str]) -> str:
    named = _named_host(labels, source)
    if named is not None:
        return named
    address = _host_part(labels.get("instance", ""))
    return aliases.get(address, address) or "unnamed"


def _host_part(instance: str) -> str:
    """Return the host of `host:port`, of a bracketed IPv6 address too."""
    host, colon, port = instance.rpartition(":")
    return (host if colon and port.isdecimal() else instance).strip("[]")
