"""The query API of a Prometheus server: ranges of series, within a time and a size.

Only the URL that a person named is contacted. Source: Prometheus HTTP API, /api/v1/query_range (2.42 and 3.x).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from pertoken.agent.engines.adapters.adapter import PROCESS_START
from pertoken.agent.scrape import ACCEPT, Labels, RequestLimits, ScrapeError, fetch
from pertoken.errors import BadInput
from pertoken.units import RATIO

SeriesLabels = Mapping[str, str]
_LIMITS = (413, 422, 503, 504)
"""Statuses of a query that loads too many samples or takes too long, of Prometheus, Thanos, Mimir, VictoriaMetrics and
proxies before them. 422 is also that of a query that cannot be executed: then its single steps fail too."""
MAX_POINTS = 11_000
"""Points of a series that Prometheus returns at most for one query."""


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """One series over a range: its labels, its name among them as `__name__`, and a value for each step."""

    labels: SeriesLabels
    values: Sequence[float | None]
    """None where Prometheus has no sample of the five minutes before the step."""


@dataclass(frozen=True, slots=True)
class RangeSteps:
    """Instants at which series are read: `count` of them from `start`, `step_s` apart."""

    start: int
    count: int
    step_s: int

    @property
    def end(self) -> int:
        """The last instant."""
        return self.start + (self.count - 1) * self.step_s


class PrometheusApi:
    """One Prometheus server (or one that speaks its API: Thanos, Mimir, VictoriaMetrics)."""

    def __init__(self, url: str, limits: RequestLimits, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self._limits = limits
        self._headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", **(headers or {})}

    def ranges(self, query: str, steps: RangeSteps) -> list[PrometheusSeries]:
        """Return all series of a query; one that is too large for the server, or here, is asked for in two halves.

        Raises BadInput where the server cannot be read, or answers with something else.
        """
        if steps.count > MAX_POINTS:
            return self._by_halves(query, steps)
        try:
            return list(self._read(query, steps))
        except ScrapeError as error:
            if (error.kind == "too_large" or error.status in _LIMITS) and steps.count > 1:
                return self._by_halves(query, steps)
            raise BadInput(f"{error.message}; {_remedy(error)}") from None

    def _by_halves(self, query: str, steps: RangeSteps) -> list[PrometheusSeries]:
        """Return the series of a range that is asked for in two."""
        half = steps.count // 2
        first = RangeSteps(steps.start, half, steps.step_s)
        second = RangeSteps(steps.start + half * steps.step_s, steps.count - half, steps.step_s)
        return _joined(half, self.ranges(query, first), second.count, self.ranges(query, second))

    def _read(self, query: str, steps: RangeSteps) -> Iterator[PrometheusSeries]:
        parameters = urlencode({"query": query, "start": steps.start, "end": steps.end, "step": steps.step_s})
        body = fetch("GET", f"{self.url}/api/v1/query_range?{parameters}", self._limits, self._headers).body
        try:
            document = json.loads(body)
            results = document["data"]["result"] if document["status"] == "success" else None
            if results is None or document["data"]["resultType"] != "matrix":
                raise ValueError("no matrix")
            for result in results:
                values: list[float | None] = [None] * steps.count
                for ts, value in result["values"]:
                    step, rest = divmod(round(ts) - steps.start, steps.step_s)
                    if not rest and 0 <= step < steps.count:
                        values[step] = float(value)
                yield PrometheusSeries(dict(result["metric"]), values)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise ScrapeError("malformed", f"{self.url}: does not answer as the query API of Prometheus does") from None


def _joined(
    first_count: int, first: Sequence[PrometheusSeries], second_count: int, second: Sequence[PrometheusSeries]
) -> list[PrometheusSeries]:
    """Return the series of two ranges of these lengths in steps, one after the other, as series of the whole."""
    values_by_labels: dict[tuple[tuple[str, str], ...], tuple[SeriesLabels, list[float | None]]] = {}
    for first_step, part in ((0, first), (first_count, second)):
        for item in part:
            _, values = values_by_labels.setdefault(
                tuple(sorted(item.labels.items())), (item.labels, [None] * (first_count + second_count))
            )
            values[first_step : first_step + len(item.values)] = item.values
    return [PrometheusSeries(labels, values) for labels, values in values_by_labels.values()]


def _remedy(error: ScrapeError) -> str:
    if error.kind == "access":
        return (
            "name its token by --token-file or --token-env, its tenant by --header 'X-Scope-OrgID: NAME', and its "
            "certificate's authority by --ca-file"
        )
    if error.kind == "too_large":
        return "one step of all its series is larger: raise --reply-limit-mb, or narrow them by --match"
    if error.kind == "timeout":
        return "raise --timeout, or narrow what is read by --match"
    if error.status == 400 or error.status == 422:
        return "it refused the query, also for a single step: check --match"
    if error.status == 429:
        return "it limits how often it is asked: try again later"
    return "check that the URL is that of a Prometheus server (http://prometheus:9090)"


_MIB = 2**20


@dataclass(frozen=True, slots=True)
class ExportedMetric:
    """A value of a `DeviceReading`, and where an exporter has it: the first name that is there is taken."""

    reading: str
    names: tuple[str, ...]
    scale: float = 1
    """Value of the reading for 1 of the exporter's units."""
    of_card: bool = False
    """Whether a MIG instance repeats the value of its whole card."""


@dataclass(frozen=True, slots=True)
class Exporter:
    """One exporter, as a table."""

    kind: str
    source: str
    """Where its names come from."""
    uuid: str
    """Label that holds the UUID."""
    uuid_prefix: str
    """Text before the label's UUID in that of the driver."""
    series: tuple[ExportedMetric, ...]
    memory: tuple[str, ...]
    """Series that add up to the memory of a device, in units of `memory_scale` bytes."""
    memory_scale: int
    name: str = ""
    """Label with the product's name, on the series or on `info`."""
    driver: str = ""
    """Label with the driver's version."""
    slot: str = ""
    host: str = ""
    """Label with the host's name."""
    instance_id: str = ""
    """Label that is set on the series of a MIG instance."""
    info: str | None = None
    """Series that carries name and driver where the others do not."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all series read."""
        value_names = (name for series in self.series for name in series.names)
        return tuple(dict.fromkeys((*value_names, *self.memory, *((self.info,) if self.info else ()))))


DCGM = Exporter(
    kind="dcgm-exporter",
    source="NVIDIA/dcgm-exporter etc/default-counters.csv and dcp-metrics-included.csv (4.x)",
    uuid="UUID",
    uuid_prefix="",
    name="modelName",
    driver="DCGM_FI_DRIVER_VERSION",
    slot="gpu",
    host="Hostname",
    instance_id="GPU_I_ID",
    memory=("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED"),
    memory_scale=_MIB,
    series=(
        ExportedMetric("util_1e4", ("DCGM_FI_DEV_GPU_UTIL",), RATIO / 100),
        ExportedMetric("memory_used_bytes", ("DCGM_FI_DEV_FB_USED",), _MIB),
        ExportedMetric("power_mw", ("DCGM_FI_DEV_POWER_USAGE",), 1000, of_card=True),
        ExportedMetric("energy_mj", ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",), of_card=True),
        ExportedMetric("sm_clock_mhz", ("DCGM_FI_DEV_SM_CLOCK",), of_card=True),
        ExportedMetric("memory_clock_mhz", ("DCGM_FI_DEV_MEM_CLOCK",), of_card=True),
        ExportedMetric("temperature_c", ("DCGM_FI_DEV_GPU_TEMP",), of_card=True),
        ExportedMetric(
            "throttle_reasons", ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"), of_card=True
        ),
        ExportedMetric("sm_active_1e4", ("DCGM_FI_PROF_SM_ACTIVE",), RATIO),
        ExportedMetric("sm_occupancy_1e4", ("DCGM_FI_PROF_SM_OCCUPANCY",), RATIO),
        ExportedMetric("tensor_active_1e4", ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",), RATIO),
        ExportedMetric("dram_active_1e4", ("DCGM_FI_PROF_DRAM_ACTIVE",), RATIO),
        ExportedMetric("nvlink_rx_mib_s", ("DCGM_FI_PROF_NVLINK_RX_BYTES",), 1 / _MIB),
        ExportedMetric("nvlink_tx_mib_s", ("DCGM_FI_PROF_NVLINK_TX_BYTES",), 1 / _MIB),
    ),
)
NVIDIA_GPU_EXPORTER = Exporter(
    kind="nvidia_gpu_exporter",
    source="utkuozdemir/nvidia_gpu_exporter METRICS.md (1.x)",
    uuid="uuid",
    uuid_prefix="GPU-",
    name="name",
    driver="driver_version",
    memory=("nvidia_smi_memory_total_bytes",),
    memory_scale=1,
    info="nvidia_smi_gpu_info",
    series=(
        ExportedMetric("util_1e4", ("nvidia_smi_utilization_gpu_ratio",), RATIO),
        ExportedMetric("memory_used_bytes", ("nvidia_smi_memory_used_bytes",)),
        ExportedMetric("power_mw", ("nvidia_smi_power_draw_watts",), 1000),
        ExportedMetric("sm_clock_mhz", ("nvidia_smi_clocks_current_sm_clock_hz",), 1e-6),
        ExportedMetric("memory_clock_mhz", ("nvidia_smi_clocks_current_memory_clock_hz",), 1e-6),
        ExportedMetric("temperature_c", ("nvidia_smi_temperature_gpu",)),
    ),
)
EXPORTERS: Mapping[str, Exporter] = {exporter.kind: exporter for exporter in (DCGM, NVIDIA_GPU_EXPORTER)}
"""By kind, the better first: where two exporters have a device, the first is taken."""


HOST_LABELS = ("node", "kubernetes_node", "nodename", "node_name", "host", "hostname", "kubernetes_io_hostname")
"""Labels by which discovery and relabelling name the host of a target, in their usual spellings."""
POD_LABELS = ("pod", "exported_pod", "pod_name")
_NAMESPACES = {"pod": "namespace", "exported_pod": "exported_namespace", "pod_name": "pod_namespace"}
_PAGE_LABELS = frozenset(
    {"model_name", "engine", "engine_type", "finished_reason", "le", "quantile", "source", "reason", "mode", "category"}
    | {"tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "is_streaming", "position", "kind", "model", "pid"}
)
"""Labels of engines' own pages, for a target without a start time of its process."""
_COUNTERS = ("_total", "_sum", "_count")
LAG_STEPS = 3
"""Steps by which two scrapes of one process may differ: one is late, or fills a gap by the sample before."""
_AGREEING = 0.9
"""Share of the common values that must agree, since a scrape in between restarts belongs to either side."""

Row = tuple[str, Labels]


@dataclass(frozen=True, slots=True)
class Scrape:
    """Series under one set of target labels."""

    target: Mapping[str, str]
    rows: dict[Row, Sequence[float | None]] = field(default_factory=dict)

    @property
    def key(self) -> Labels:
        """Its target labels, in order."""
        return tuple(sorted(self.target.items()))

    def present(self) -> list[bool]:
        """Return whether it has any value, by step."""
        return [any(value is not None for value in values) for values in zip(*self.rows.values(), strict=True)]

    def starts(self) -> Sequence[float | None]:
        """Return the start time of its process by step, as its page reports it."""
        return next((values for (name, _), values in self.rows.items() if name == PROCESS_START), ())


class Targets:
    """Split of the labels of series by page and target."""

    def __init__(self, series: Iterable[PrometheusSeries]) -> None:
        self._starts: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
        names: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for item in series:
            labels = _without_name(item.labels)
            if item.labels["__name__"] == PROCESS_START:
                self._starts[_scraped(labels)].append(labels)
            else:
                names[_scraped(labels)][item.labels["__name__"]] |= labels.keys()
        self._common = {
            key: frozenset.intersection(*map(frozenset, labels_by_name.values()))
            for key, labels_by_name in names.items()
        }

    def split(self, labels: Mapping[str, str]) -> tuple[Mapping[str, str], Labels]:
        """Return the labels of a series' target, and of its page."""
        series_labels = _without_name(labels)
        starts = [start for start in self._starts[_scraped(series_labels)] if start.items() <= series_labels.items()]
        if starts:
            longest: Mapping[str, str] = max(starts, key=len)
            target = dict(longest)
        else:
            common = self._common.get(_scraped(series_labels), frozenset())
            target = {name: series_labels[name] for name in series_labels if name in ("job", "instance")}
            target |= {name: series_labels[name] for name in series_labels.keys() & common - _PAGE_LABELS}
        return target, tuple(sorted((name, value) for name, value in series_labels.items() if name not in target))

    def scrapes(self, series: Iterable[PrometheusSeries]) -> list[Scrape]:
        """Return the scrapes that these series are of."""
        scrapes: dict[Labels, Scrape] = {}
        for item in series:
            target, page_labels = self.split(item.labels)
            scrape = scrapes.setdefault(tuple(sorted(target.items())), Scrape(target))
            scrape.rows.setdefault((item.labels["__name__"], page_labels), item.values)
        return list(scrapes.values())


def processes(scrapes: Iterable[Scrape]) -> list[list[Scrape]]:
    """Return the scrapes of each process, the one with the most values first."""
    ordered = sorted(scrapes, key=lambda scrape: (-sum(scrape.present()), sorted(scrape.target.items())))
    by_address: dict[str, list[list[Scrape]]] = defaultdict(list)
    for scrape in ordered:
        at_address = by_address[address_of(scrape.target)]
        same = next((process for process in at_address if all(_is_same(scrape, twin) for twin in process)), None)
        if same is None:
            at_address.append([scrape])
        else:
            same.append(scrape)
    return [process for address in sorted(by_address) for process in by_address[address]]


def merged(process: Sequence[Scrape]) -> dict[Row, Sequence[float | None]]:
    """Return the rows of a process: at each step, of its first scrape that has any.

    A counter that falls only because another scrape is a little behind stays where it was.
    """
    if len(process) == 1:
        return process[0].rows
    present = [scrape.present() for scrape in process]
    chosen = [next((n for n, has in enumerate(steps) if has), None) for steps in zip(*present, strict=True)]
    rows: dict[Row, Sequence[float | None]] = {}
    for row in dict.fromkeys(row for scrape in process for row in scrape.rows):
        columns = [scrape.rows.get(row) for scrape in process]
        values: list[float | None] = []
        for step, n in enumerate(chosen):
            column = None if n is None else columns[n]
            values.append(None if column is None else column[step])
        rows[row] = _without_lag(values, chosen) if row[0].endswith(_COUNTERS) else values
    return rows


def _without_lag(values: list[float | None], chosen: Sequence[int | None]) -> list[float | None]:
    raised, switched = list(values), -LAG_STEPS
    for step in range(1, len(values)):
        value, last = values[step], raised[step - 1]
        if chosen[step] != chosen[step - 1]:
            switched = step
        if value is None or last is None or value >= last or step - switched >= LAG_STEPS:
            continue
        recent = [number for number in values[max(0, step - 2 * LAG_STEPS) : step] if number is not None]
        if value >= min(recent):
            raised[step] = last
    return raised


def _is_same(first: Scrape, second: Scrape) -> bool:
    """Return whether two scrapes of one address are of one process."""
    for name in (*HOST_LABELS, *POD_LABELS, *_NAMESPACES.values()):
        if first.target.get(name, second.target.get(name)) != second.target.get(name, first.target.get(name)):
            return False
    both = [step for step, steps in enumerate(zip(first.present(), second.present(), strict=True)) if all(steps)]
    starts = [
        (first_start, second_start)
        for step in both
        if first.starts() and second.starts()
        for first_start, second_start in [(first.starts()[step], second.starts()[step])]
        if first_start is not None and second_start is not None
    ]
    if starts:
        return sum(first_start == second_start for first_start, second_start in starts) >= _AGREEING * len(starts)
    return not both or _agree(first, second)


def _agree(first: Scrape, second: Scrape) -> bool:
    """Return whether the counters of two scrapes are of one process, read at about the same time."""
    compared = agreeing = 0
    for row in first.rows.keys() & second.rows.keys():
        if row[0].endswith(_COUNTERS):
            first_values, second_values = first.rows[row], second.rows[row]
            for step in range(len(first_values)):
                if first_values[step] is not None and second_values[step] is not None:
                    compared += 1
                    agreeing += _is_near(first_values, second_values, step) or _is_near(
                        second_values, first_values, step
                    )
    return agreeing >= _AGREEING * compared


def _is_near(values: Sequence[float | None], reference: Sequence[float | None], step: int) -> bool:
    """Return whether a value lies among those that the other series has about the same time."""
    near = [number for number in reference[max(0, step - LAG_STEPS) : step + LAG_STEPS + 1] if number is not None]
    value = values[step]
    return value is not None and min(near) <= value <= max(near)


def address_of(target: Mapping[str, str]) -> str:
    """Return the scrape address of a target, with the pod where it names no port."""
    instance, pod = target.get("instance", ""), pod_of(target)
    return instance if ":" in instance or pod is None else f"{instance}/{pod.rpartition('/')[2]}"


def pod_of(labels: Mapping[str, str]) -> str | None:
    """Return the first pod that labels name, as namespace/pod where they name its namespace."""
    return next(iter(pods_of(labels)), None)


def pods_of(labels: Mapping[str, str]) -> list[str]:
    """Return all pods that labels name: the exporter's own, and the one that holds a device."""
    return [
        f"{labels[_NAMESPACES[name]]}/{labels[name]}" if labels.get(_NAMESPACES[name]) else labels[name]
        for name in POD_LABELS
        if labels.get(name)
    ]


def is_same_pod(first: str | None, second: str | None) -> bool:
    """Return whether two names are of one pod: namespaces count where both name one."""
    if first is None or second is None:
        return False
    first_namespace, first_name = first.rpartition("/")[::2]
    second_namespace, second_name = second.rpartition("/")[::2]
    return first_name == second_name and (
        not first_namespace or not second_namespace or first_namespace == second_namespace
    )


def distinct(processes: Sequence[tuple[str, str, Mapping[str, str]]]) -> list[str]:
    """Return an address for each process, by (host, address, target).

    The first label in which processes of one address on one host differ distinguishes them.
    """
    by_address: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for host, address, target in processes:
        by_address[host, address].append(target)
    names = []
    for host, address, target in processes:
        targets = by_address[host, address]
        labels = sorted({name for target_labels in targets for name in target_labels})
        differing = [
            name for name in labels if len({target_labels.get(name) for target_labels in targets}) == len(targets)
        ]
        apart = f"/{target.get(differing[0], '')}" if differing and len(targets) > 1 else ""
        names.append(address + apart)
    return names


def _scraped(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def _without_name(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "__name__"}
