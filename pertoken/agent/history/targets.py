"""Series of one process: without the labels that a scrape adds, and once however many scrapes record it.

A series has the labels of its page and those of its target: what the scrape, relabelling and the server add. Only the
former distinguish counters of one process, since the latter may change while it runs. Several label sets of one address
are one process where they follow each other, or report one start time, or counters that agree: a label was added, or
two servers of a pair scrape it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.agent.engines.adapters.adapter import PROCESS_START
from pertoken.agent.history.api import Series
from pertoken.agent.scrape.page import Labels

HOST_LABELS = ("node", "kubernetes_node", "nodename", "node_name", "host", "hostname", "kubernetes_io_hostname")
"""Labels by which discovery and relabelling name the host of a target, in their usual spellings."""
POD_LABELS = ("pod", "exported_pod", "pod_name")
_NAMESPACES = {"pod": "namespace", "exported_pod": "exported_namespace", "pod_name": "pod_namespace"}
_PAGE_LABELS = frozenset(
    {"model_name", "engine", "engine_type", "finished_reason", "le", "quantile", "source", "reason", "mode", "category"}
    | {"tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "is_streaming", "position", "kind", "model", "pid"}
)
"""Labels of engines' own pages, for a target whose process reports no start time."""
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
    """Split of the labels of series in those of the page and those of the target."""

    def __init__(self, series: Iterable[Series]) -> None:
        self._starts: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
        names: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for item in series:
            labels = _without_name(item.labels)
            if item.labels["__name__"] == PROCESS_START:
                self._starts[_scraped(labels)].append(labels)
            else:
                names[_scraped(labels)][item.labels["__name__"]] |= labels.keys()
        self._common = {key: frozenset.intersection(*map(frozenset, of.values())) for key, of in names.items()}

    def split(self, labels: Mapping[str, str]) -> tuple[Mapping[str, str], Labels]:
        """Return the labels of a series' target, and those of its page."""
        own = _without_name(labels)
        starts = [start for start in self._starts[_scraped(own)] if start.items() <= own.items()]
        if starts:
            longest: Mapping[str, str] = max(starts, key=len)
            target = dict(longest)
        else:
            common = self._common.get(_scraped(own), frozenset())
            target = {name: own[name] for name in own if name in ("job", "instance")}
            target |= {name: own[name] for name in own.keys() & common - _PAGE_LABELS}
        return target, tuple(sorted((name, value) for name, value in own.items() if name not in target))

    def scrapes(self, series: Iterable[Series]) -> list[Scrape]:
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
        same = next((process for process in at_address if all(_is_same(scrape, other) for other in process)), None)
        if same is None:
            at_address.append([scrape])
        else:
            same.append(scrape)
    return [process for address in sorted(by_address) for process in by_address[address]]


def merged(process: Sequence[Scrape]) -> dict[Row, Sequence[float | None]]:
    """Return the rows of a process: at each step those of its first scrape that has any.

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
        before = [number for number in values[max(0, step - 2 * LAG_STEPS) : step] if number is not None]
        if value >= min(before):
            raised[step] = last
    return raised


def _is_same(first: Scrape, second: Scrape) -> bool:
    """Return whether two scrapes of one address are of one process."""
    for name in (*HOST_LABELS, *POD_LABELS, *_NAMESPACES.values()):
        if first.target.get(name, second.target.get(name)) != second.target.get(name, first.target.get(name)):
            return False
    both = [at for at, steps in enumerate(zip(first.present(), second.present(), strict=True)) if all(steps)]
    starts = [
        (one, other)
        for at in both
        if first.starts() and second.starts()
        for one, other in [(first.starts()[at], second.starts()[at])]
        if one is not None and other is not None
    ]
    if starts:
        return sum(one == other for one, other in starts) >= _AGREEING * len(starts)
    return not both or _agree(first, second)


def _agree(first: Scrape, second: Scrape) -> bool:
    """Return whether the counters of two scrapes are those of one process, read at about the same time."""
    compared = agreeing = 0
    for row in first.rows.keys() & second.rows.keys():
        if row[0].endswith(_COUNTERS):
            ours, theirs = first.rows[row], second.rows[row]
            for at in range(len(ours)):
                if ours[at] is not None and theirs[at] is not None:
                    compared += 1
                    agreeing += _is_near(ours, theirs, at) or _is_near(theirs, ours, at)
    return agreeing >= _AGREEING * compared


def _is_near(values: Sequence[float | None], other: Sequence[float | None], at: int) -> bool:
    """Return whether a value lies among those that the other series has about the same time."""
    near = [number for number in other[max(0, at - LAG_STEPS) : at + LAG_STEPS + 1] if number is not None]
    value = values[at]
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
    ours, ours_name = first.rpartition("/")[::2]
    theirs, theirs_name = second.rpartition("/")[::2]
    return ours_name == theirs_name and (not ours or not theirs or ours == theirs)


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
        labels = sorted({name for other in targets for name in other})
        differing = [name for name in labels if len({other.get(name) for other in targets}) == len(targets)]
        apart = f"/{target.get(differing[0], '')}" if differing and len(targets) > 1 else ""
        names.append(address + apart)
    return names


def _scraped(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("job", ""), labels.get("instance", "")


def _without_name(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "__name__"}
