"""The inference servers of this host: found among its processes, and each read beside the tick.

Front door: `EndpointWatch`.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import psutil

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import Adapter, invocation
from pertoken.agent.engines.processes import (
    WORKERS,
    Children,
    ServerProcesses,
    Topology,
    explained,
    in_pod,
    is_worker,
    rank_ports,
    server_roots,
    servers,
    topology_of,
    unread_server,
    with_process,
)
from pertoken.agent.engines.reader import REMEDIES, EngineReader, answers, detect
from pertoken.agent.host.owners import VARIABLES as POD_VARIABLES
from pertoken.agent.host.processes import (
    Address,
    HostProcesses,
    Process,
    host_processes,
    reached_at,
    since_boot_ms,
    start_ms,
)
from pertoken.agent.readings import Endpoint, EngineReading, Unavailable
from pertoken.agent.scrape import RequestLimits, ScrapeError
from pertoken.agent.workers import Workers
from pertoken.catalog import knobs
from pertoken.printable import short

_WORKER = "ray::RayWorkerWrapper"
"""How Ray titles the processes in which vLLM's ranks run. Source: vLLM 0.32.0 v1/executor/ray_utils.py."""


def joined(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return ranks of one deployment as one endpoint: those that follow stand for themselves only without their head
    here."""
    by_rendezvous: dict[object, Endpoint] = {}
    for endpoint in sorted(endpoints, key=lambda address: address.follows):
        key: object = (endpoint.kind, endpoint.knobs.get("rendezvous"), endpoint.model_path)
        if not endpoint.follows and (key in by_rendezvous or "rendezvous" not in endpoint.knobs):
            key = endpoint.base_url
        head = by_rendezvous.get(key)
        if head is None:
            by_rendezvous[key] = endpoint
            continue
        # Bound to one address and to every one: which server answers is up to the kernel.
        rival = key == endpoint.base_url and endpoint.pid not in head.pids and head.pid not in endpoint.pids
        pids = tuple(sorted({*head.pids, *endpoint.pids}))
        by_rendezvous[key] = replace(head, pids=pids, contested=head.contested or rival)
    return tuple(by_rendezvous.values())


def with_ray_workers(endpoints: Iterable[Endpoint], host: HostProcesses) -> tuple[Endpoint, ...]:
    """Return the endpoints, with the workers that Ray runs on this host for one of them, or for a server elsewhere.

    Which of several servers of this host a worker belongs to may be unknown: then it belongs to none.
    """
    result = list(endpoints)
    node, cluster = _node(host)
    workers = _workers(host)
    if node is None or cluster is None or not workers:
        return tuple(result)
    heads = [endpoint for endpoint in result if endpoint.kind == "vllm" and _starts_by_ray(host.processes, endpoint)]
    if len(heads) == 1:
        pids = tuple(sorted({*heads[0].pids, *workers}))
        head = replace(heads[0], pids=pids, knobs={**heads[0].knobs, "rendezvous": cluster})
        return tuple(head if endpoint is heads[0] else endpoint for endpoint in result)
    # A page of Ray Serve on this node counts what its workers do.
    if heads or any(endpoint.kind == "ray" for endpoint in result) or _is_here(cluster, host.own_ips):
        return tuple(result)
    follower = Endpoint(
        "vllm",
        f"rendezvous://{cluster}/",
        "process",
        pid=node.pid,
        process_start_ms=node.start_ms,
        pids=workers,
        knobs={"rendezvous": cluster},
        follows=True,
    )
    return (*result, follower)


def _node(host: HostProcesses) -> tuple[Process | None, str | None]:
    """Return the Ray node of this host, and the address of its cluster; nothing where there are several."""
    nodes = [process for process in host.processes.values() if invocation(process.argv)[0] == "raylet"]
    return (nodes[0], knobs.rendezvous_argument("ray", nodes[0].argv)) if len(nodes) == 1 else (None, None)


def _workers(host: HostProcesses) -> tuple[int, ...]:
    roots = [process.pid for process in host.processes.values() if process.argv and process.argv[0].startswith(_WORKER)]
    return tuple(sorted({pid for root in roots for pid in host.group(root)}))


def _starts_by_ray(processes: Mapping[int, Process], endpoint: Endpoint) -> bool:
    root = processes.get(endpoint.pid) if endpoint.pid is not None else None
    return root is not None and knobs.executor_argument("vllm", root.argv) == "ray"


def _is_here(address: str, own_ips: frozenset[str]) -> bool:
    name = address.rpartition(":")[0].strip("[]") or address
    try:
        return str(ipaddress.ip_address(name)) in own_ips
    except ValueError:
        return False


IdentifyKind = Callable[[str], str | None]
"""The kind of engine that answers at a base URL; None if none does."""

_NAME_IT = "name it to the agent: --engine http://HOST:PORT, or agent.engines in the settings"


@dataclass(frozen=True, slots=True)
class Discovery:
    """Result of one look at the host's processes."""

    endpoints: tuple[Endpoint, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    """Engines that are there but cannot be read, and rights that this agent lacks."""


def discover(host: HostProcesses, identify_kind: IdentifyKind, previous: Iterable[Endpoint] = ()) -> Discovery:
    """Return inference servers among the host's processes.

    A server whose command line names the port it listens on is taken by its word; other ports of recognised
    processes are asked. `previous`: endpoints of an earlier look; those of the same processes are not asked again.
    """
    endpoint_by_process = {
        (endpoint.pid, endpoint.process_start_ms): endpoint for endpoint in previous if endpoint.found_by == "process"
    }
    endpoints: list[Endpoint] = []
    unavailable: list[Unavailable] = []
    claimed: set[int] = set()
    led: set[int] = set()
    """Processes of servers that were found: a server is no other one because another started it."""
    for adapter, root in _roots(host):
        if root.pid in led:
            continue  # the engine around it counts what it does
        found_servers = servers(host, adapter, root)
        topology = topology_of(host, adapter, root)
        if topology is not None:
            claimed.update({root.pid} if topology.children is Children.SERVERS else host.group(root.pid))
            unavailable += _servers_missing(host, adapter, root, topology, found_servers)
        for server in found_servers:
            endpoint = _server_endpoint(host, adapter, server, endpoint_by_process, identify_kind)
            led.update(() if adapter.shared else server.pids)  # also before it answers
            if isinstance(endpoint, Endpoint):
                endpoints.append(endpoint)
            elif adapter.shared:
                continue
            else:
                unavailable.append(endpoint)
            claimed.update(server.pids)
    hidden = len(set(host.unowned))
    for process in host.processes.values():
        if process.pid in claimed or not process.listening:
            continue
        libraries = host.libraries(process.pid)
        hidden += len(process.listening) if libraries is None else 0
        for adapter in ADAPTERS.values():
            if adapter.library and any(adapter.library.search(path) for path in libraries or ()):
                address = _identified_address(
                    process.listening, adapter.kind, process, endpoint_by_process, identify_kind
                )
                if address is not None:
                    group = host.group(process.pid)
                    endpoints.append(with_process(_listener(adapter.kind, address, host, group), process, group))
    unavailable += [*_unread(host, claimed), *_without_server(host, claimed)]
    if hidden:
        unavailable.append(
            Unavailable(
                "engines",
                "denied",
                f"listening ports of processes that this agent may not look into: {hidden}; "
                "an engine served from one of them is not found",
                "the rights CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH show them; `pertoken agent install` gives both; "
                f"or {_NAME_IT}",
            )
        )
    return Discovery(joined(with_ray_workers(endpoints, host)), tuple(unavailable))


def _roots(host: HostProcesses) -> list[tuple[Adapter, Process]]:
    """Return the processes of servers by engine; a process that starts others goes before them."""
    roots = [(adapter, root) for adapter in ADAPTERS.values() for root in server_roots(host, adapter)]
    return sorted(roots, key=lambda pair: sum(1 for _ in host.ancestors(pair[1].pid)))


def _servers_missing(
    host: HostProcesses, adapter: Adapter, root: Process, topology: Topology, found_servers: tuple[ServerProcesses, ...]
) -> Iterator[Unavailable]:
    """Yield the servers that a process should have started and that are not there."""
    started = any(adapter.recognises(child.argv) for child in host.children(root.pid))
    ports = rank_ports(adapter, root) if topology.children is Children.RANK_SERVERS else range(len(found_servers))
    if found_servers and len(found_servers) < len(ports):
        listening = f"{len(found_servers)} listen at their ports"
        reason = f"{adapter.kind} (pid {root.pid}) has {len(ports)} rank servers, and {listening}"
        yield Unavailable(f"servers of {adapter.kind}", "failing", reason, "wait until all have loaded, or see its log")
    if not found_servers and not (topology.children is Children.SERVERS and started):
        reason = f"{adapter.kind} (pid {root.pid}) starts {topology.children.value}: none of them is there"
        yield Unavailable(
            f"servers of {adapter.kind}", "missing", reason, "send it a request, or wait until it starts them"
        )


def _unread(host: HostProcesses, claimed: set[int]) -> Iterator[Unavailable]:
    """Yield inference servers and routers that are recognised but cannot be read."""
    for process in host.processes.values():
        server = unread_server(process.argv)
        parent = host.processes.get(process.ppid)
        if server is None or (parent is not None and unread_server(parent.argv) == server):
            continue
        if process.pid in claimed or any(above.pid in claimed for above in host.ancestors(process.pid)):
            continue
        ports = sorted({address.port for pid in host.group(process.pid) for address in host.processes[pid].listening})
        where = f", which listens on {', '.join(map(str, ports))}" if ports else ""
        reason = f"{server.name} runs (pid {process.pid}{where}): {server.reason}"
        yield Unavailable(f"server {server.name}", "unsupported", reason, server.remedy)


def _without_server(host: HostProcesses, claimed: set[int]) -> Iterator[Unavailable]:
    """Yield worker processes of engines that belong to no server: its program is not known, or it has ended."""
    for kind, pattern in WORKERS.items():
        pids = [
            process.pid
            for process in host.processes.values()
            # A process of which the parent cannot be seen may belong to any server.
            if process.pid not in claimed and (process.ppid in host.processes or process.ppid == 1)
            if is_worker(process, pattern)
        ]
        if not pids:
            continue
        above = next((process for process in host.ancestors(pids[0]) if process.pid != 1 and process.argv), None)
        named = " ".join((short(host.processes[pids[0]].argv[0]), *([] if above is None else ["below", _shown(above)])))
        reason = f"workers of {kind} run without a server that is recognised: pid {pids[0]} ({named})"
        remedy = f"if their server answers, {_NAME_IT}; if it has ended, end them: they hold their devices"
        yield Unavailable(f"workers of {kind}", "missing", reason, remedy)


def _shown(process: Process) -> str:
    """Return a process by its program and pid: arguments may hold secrets."""
    return f"`{short(invocation(process.argv)[0])}` (pid {process.pid})"


def _server_endpoint(
    host: HostProcesses,
    adapter: Adapter,
    server: ServerProcesses,
    endpoint_by_process: dict[tuple[int | None, int | None], Endpoint],
    identify_kind: IdentifyKind,
) -> Endpoint | Unavailable:
    kind, root, argv = adapter.kind, server.process, server.argv
    if knobs.follows_argument(kind, argv):
        return _following(kind, server)
    listening = [address for pid in server.pids for address in host.processes[pid].listening]
    environment = host.environment(root.pid, (*knobs.variables(kind), *POD_VARIABLES))
    variable = knobs.variable_argument(kind, "port", environment) or ""
    names = server.port is not None or knobs.names_port(kind, argv)
    named = server.port or (int(variable) if variable.isdecimal() and not names else knobs.port_argument(kind, argv))
    address = next((address for address in listening if address.port == named), None)
    if adapter.shared:
        address = _identified_address([address] if address else [], kind, root, endpoint_by_process, identify_kind)
    elif address is None:
        hidden = [address for address in host.unowned if address.port == named]
        # The others are its ranks' own: one that names its port answers there, or not yet.
        others = [] if names or variable else listening
        address = _identified_address(others or hidden, kind, root, endpoint_by_process, identify_kind)
    if address is not None:
        empty = _listener(kind, address, host, server.pids, knobs.tls_argument(kind, argv))
        endpoint = explained(with_process(empty, root, server.pids, argv, environment), server.reason)
        return in_pod(endpoint, environment, host)
    if listening:
        ports = ", ".join(str(port) for port in sorted({address.port for address in listening}))
        reason = f"{kind} (pid {root.pid}) listens on {ports} but does not answer yet"
        return Unavailable(kind, "failing", reason, None if named else adapter.metrics_off)
    if path := knobs.socket_argument(kind, argv):
        reason = f"{kind} (pid {root.pid}) answers at the socket {path} alone, which is not read"
        return Unavailable(kind, "missing", reason, "start it with --port in place of --uds")
    return Unavailable(
        kind,
        "missing",
        f"{kind} (pid {root.pid}) runs, but its port is not seen from here",
        f"wait until it has loaded; if it is in another network namespace, {_NAME_IT}",
    )


def _following(kind: str, server: ServerProcesses) -> Endpoint | Unavailable:
    root = server.process
    address, model = knobs.rendezvous_argument(kind, root.argv), knobs.model_argument(kind, root.argv)
    if address is None or model is None:
        return Unavailable(
            kind,
            "missing",
            f"{kind} (pid {root.pid}) serves for another host, and its command line does not name that host",
        )
    empty = Endpoint(kind, f"rendezvous://{address}/{model}", "process", follows=True)
    return with_process(empty, root, server.pids, root.argv)


def _identified_address(
    addresses: Iterable[Address],
    kind: str,
    process: Process,
    endpoint_by_process: dict[tuple[int | None, int | None], Endpoint],
    identify_kind: IdentifyKind,
) -> Address | None:
    old = endpoint_by_process.get((process.pid, process.start_ms))
    tls = knobs.tls_argument(kind, process.argv)
    candidates = sorted(set(addresses), key=lambda address: (address.port, address.ip))
    for address in candidates:
        if old is not None and (old.kind, old.base_url) == (kind, _url(address, tls)):
            return address
    return next((address for address in candidates if identify_kind(_url(address, tls)) == kind), None)


def _listener(kind: str, address: Address, host: HostProcesses, group: Collection[int], tls: bool = False) -> Endpoint:
    """Return an endpoint at `address`, a socket of the processes of `group`, without its process yet."""
    ip, port = address.reached or (address.ip, address.port)
    local = address.reached is None or ip in host.own_ips or ipaddress.ip_address(ip).is_loopback
    contested = host.rivals(group, address) > 0
    return Endpoint(kind, _url(address, tls), "process", port if local else None, contested=contested)


def _url(address: Address, tls: bool = False) -> str:
    bound, port = address.reached or (address.ip, address.port)
    ip = reached_at(bound)
    host = f"[{ip}]" if ":" in ip else ip
    return f"{'https' if tls else 'http'}://{host}:{port}"


_T = TypeVar("_T")


class Questions(Generic[_T]):
    """At most one question under way to each address, and a bounded number altogether."""

    def __init__(self, max_threads: int) -> None:
        self._workers = Workers(max_threads, "ask")
        self._changed = threading.Condition()
        self._under_way: set[str] = set()
        self._answers: dict[str, _T] = {}

    def answer(self, address: str, ask: Callable[[], _T]) -> _T | None:
        """Return the answer of `address` if it is there; else begin to ask and return None."""
        with self._changed:
            if address in self._answers:
                return self._answers[address]
            if address not in self._under_way:
                self._under_way.add(address)
                self._workers.submit(lambda: self._run(address, ask))
        return None

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is under way, or for `seconds`; returns whether anything was asked since `forget`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            any_question = bool(self._under_way or self._answers)
            self._changed.wait_for(lambda: not self._under_way, max(0.0, deadline - time.monotonic()))
        return any_question

    def forget(self) -> None:
        """Drop the answers: the next question is asked again. Those under way stay so."""
        with self._changed:
            self._answers.clear()

    def close(self) -> None:
        """Ask nothing more, without waiting for questions under way."""
        self._workers.close()
        with self._changed:
            self._under_way.clear()
            self._changed.notify_all()

    def _run(self, address: str, ask: Callable[[], _T]) -> None:
        try:
            answer = ask()
            with self._changed:
                self._answers[address] = answer
        finally:
            with self._changed:
                self._under_way.discard(address)
                self._changed.notify_all()


log = logging.getLogger("pertoken.agent")

MAX_READERS = 64
"""Engines read at the same time: as many may hang before another one has to wait."""
MAX_QUESTIONS = 16
"""Ports and URLs identified at the same time."""
LIST_WAIT_S = 5.0
"""Longest wait for the processes of this host, which no server can hold up."""
LOOK_WAIT_S = 10.0
"""Longest wait of a look for the ports and URLs it asks. Answers that come later count in the next look."""
READ_WAIT_S = 0.25
"""Default wait of a tick for the readings it began, which take a few milliseconds."""
ASK_AGAIN_S = 120.0
"""Time for which a port that let us wait and then was no engine is not asked again."""


class EndpointWatch:
    """Endpoints found by discovery and by setting; `start_look` finds them, `read` is for every tick."""

    def __init__(
        self,
        urls: Iterable[str],
        find: bool,
        limits: RequestLimits,
        clock: Callable[[], float] = time.monotonic,
        endpoints: Iterable[Endpoint] = (),
    ) -> None:
        """`endpoints`: those found under other settings; those that the new ones may find too are read on meanwhile."""
        self._urls, self._find, self._limits, self._clock = tuple(urls), find, limits, clock
        self._silent: dict[str, float] = {}
        """Ports that let us wait -> when to ask them again."""
        self.endpoints = tuple(_allowed_endpoints(self._urls, find, endpoints))
        """The servers at the last look."""
        self._engines: dict[str, _Engine] = {}
        """By base URL."""
        self._awaited: set[_Engine] = set()
        self._ticks = 0
        self._done: SimpleQueue[_Engine] = SimpleQueue()
        self._readers = Workers(MAX_READERS, "engine")
        self._questions: Questions[Endpoint | str | ScrapeError] = Questions(MAX_QUESTIONS)
        self._lookers = Workers(1, "look")
        self._looking = threading.Lock()
        self._listed, self._looked = threading.Event(), threading.Event()
        self.unavailable: tuple[Unavailable, ...] = ()

    def start_look(self) -> None:
        """Look for servers in the background, unless a look is under way."""
        if self._looking.acquire(blocking=False):
            self._looking.release()
            self._listed.clear()
            self._looked.clear()
            self._lookers.submit(self._look_and_note)

    def wait(self, seconds: float) -> None:
        """Wait for the look that was started: until it knows the host's processes, then `seconds` for those it asks."""
        self._listed.wait(LIST_WAIT_S)
        self._looked.wait(seconds)

    def _look_and_note(self) -> None:
        try:
            self.look()
        finally:
            self._listed.set()
            self._looked.set()

    def look(self) -> tuple[Endpoint, ...]:
        """Find the servers there are now. One that does not answer is kept while its process lives.

        Servers that need not be identified count at once, others within `LOOK_WAIT_S`.
        """
        with self._looking:
            processes = _once(host_processes)
            endpoints, unavailable = self._servers(processes, final=False)
            if self._questions.wait(0):
                self.endpoints = endpoints
                self._listed.set()
                self._questions.wait(LOOK_WAIT_S)
                endpoints, unavailable = self._servers(processes, final=True)
                self._questions.forget()
            self.endpoints, self.unavailable = endpoints, unavailable
            return endpoints

    def _servers(
        self, processes: Callable[[], HostProcesses], *, final: bool
    ) -> tuple[tuple[Endpoint, ...], tuple[Unavailable, ...]]:
        """Return the servers known by now, and the missing ones; without `final`, more answers are waited for."""
        endpoints: dict[str, Endpoint] = {}
        unavailable: list[Unavailable] = []

        def add(endpoint: Endpoint) -> None:
            # The same server may be found under several names of this host: it is read once.
            if not any(_same_server(endpoint, read_endpoint) for read_endpoint in endpoints.values()):
                endpoints.setdefault(endpoint.base_url, endpoint)

        if self._find:
            seen = discover(processes(), self._kind, self.endpoints)
            endpoints = {endpoint.base_url: endpoint for endpoint in seen.endpoints}
            unavailable += seen.unavailable
        endpoint_by_url = {endpoint.base_url: endpoint for endpoint in self.endpoints}
        for url in self._urls:
            if url in endpoints:
                continue
            engine = self._engines.get(url)
            if url in endpoint_by_url and engine is not None and engine.reads_well and _is_alive(endpoint_by_url[url]):
                add(endpoint_by_url[url])
                continue
            answer = self._questions.answer(f"setting {url}", lambda url=url: self._detect(url, processes))  # type: ignore[misc]
            if isinstance(answer, Endpoint):
                add(answer)
            elif isinstance(answer, ScrapeError):
                unavailable.append(Unavailable(f"engine {url}", "failing", answer.message, REMEDIES.get(answer.kind)))
            elif final:
                unavailable.append(
                    Unavailable(f"engine {url}", "failing", f"{url}: still asked what it is", REMEDIES["timeout"])
                )
        for endpoint in self.endpoints:
            if endpoint.base_url in self._urls if endpoint.pid is None else _is_alive(endpoint):
                add(endpoint)
        return tuple(endpoints.values()), tuple(unavailable)

    def _detect(self, url: str, processes: Callable[[], HostProcesses]) -> Endpoint | ScrapeError:
        try:
            return detect(url, self._limits, processes)
        except ScrapeError as error:
            return error

    def _kind(self, url: str) -> str | None:
        """Return the kind of engine that answers at a port that is only guessed; None while it was not heard of."""
        if self._clock() < self._silent.get(url, 0.0):
            return None
        answer = self._questions.answer(url, lambda: self._ask(url))
        return answer if isinstance(answer, str) and answer else None

    def _ask(self, url: str) -> str:
        started = time.monotonic()
        kind = answers(url, self._limits)
        if kind is None and time.monotonic() - started >= self._limits.timeout_s:
            self._silent[url] = self._clock() + ASK_AGAIN_S
        return kind or ""

    def start_read(self, *, latencies: bool = True, patience_s: float = READ_WAIT_S) -> None:
        """Begin to read every server that is not being read. Without `latencies` histograms are left for another time.

        `take` then waits for those that took less than `patience_s` the last time.
        """
        self._ticks += 1
        engines: dict[str, _Engine] = {}
        self._awaited = set()
        for endpoint in self.endpoints:
            url = endpoint.base_url
            engine = engines[url] = self._engines.get(url) or _Engine(EngineReader(endpoint, self._limits), endpoint)
            if engine.under_way:
                continue
            if engine.endpoint is not endpoint:  # by a later look; until then a reader follows its server alone
                engine.endpoint = endpoint
                if _process(engine.reader.endpoint) != _process(endpoint):
                    engine.reader = EngineReader(endpoint, self._limits)
            engine.under_way = True
            if engine.took_s < patience_s:
                self._awaited.add(engine)
            self._readers.submit(partial(engine.read, self._ticks, latencies, self._done))
        self._engines = engines

    def wait_read(self, seconds: float) -> None:
        """Wait for the readings that were begun, of servers that were quick the last time."""
        deadline = time.monotonic() + seconds
        while any(engine.under_way for engine in self._awaited):
            try:
                self._done.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                break

    def take(self, *, wait_s: float = READ_WAIT_S) -> tuple[EngineReading, ...]:
        """Return the newest reading of every server; never raises for one of them. One of several models has several.

        A reading from before this tick has the time at which it was read. A server without any after `wait_s` has one
        with the fault `LATE`; the next call returns the reading that came meanwhile.
        """
        self.wait_read(wait_s)
        while not self._done.empty():
            self._done.get()
        fresh_ms = since_boot_ms() - 1000 * (wait_s + READ_WAIT_S)
        engines = self._engines.values()
        return tuple(chain.from_iterable(engine.take(self._ticks, fresh_ms) for engine in engines))

    def read(self, *, latencies: bool = True, wait_s: float = READ_WAIT_S) -> tuple[EngineReading, ...]:
        """Begin to read, and take the readings that are there within `wait_s`."""
        self.start_read(latencies=latencies, patience_s=wait_s)
        return self.take(wait_s=wait_s)

    def close(self) -> None:
        """End the threads. None is waited for: a server that hangs would hold up whoever closes this."""
        for workers in (self._readers, self._questions, self._lookers):
            workers.close()


@dataclass(eq=False)
class _Engine:
    """A server that is read: at most one read is under way. Its thread owns `reader` meanwhile."""

    reader: EngineReader
    endpoint: Endpoint
    """The server by the last look: the one that the reader began with, or agrees with."""
    under_way: bool = False
    reads_well: bool = False
    """Whether all of it could be read the last time."""
    failed: bool = False
    took_s: float = 0.0
    result: tuple[int, int, tuple[EngineReading, ...]] | None = None
    """Not taken yet: the tick that began to read, the time since boot (ms) at which it was read, and the readings."""

    def read(self, tick: int, latencies: bool, done: SimpleQueue[_Engine]) -> None:
        """Read it, in another thread, and put it into `done`."""
        started = time.monotonic()
        try:
            readings = self.reader.read(latencies=latencies)
            self.failed = False
        except Exception as error:
            if not self.failed:
                log.exception("%s could not be read", self.reader.endpoint.base_url)
            self.failed = True
            readings = self.reader.failed(error)
        ended = time.monotonic()
        self.reads_well = not any(reading.fault for reading in readings)
        self.took_s = ended - started
        self.result = tick, since_boot_ms(), readings
        self.under_way = False
        done.put(self)

    def take(self, tick: int, fresh_ms: float) -> tuple[EngineReading, ...]:
        """Return the readings since the last call, or that they are late.

        Those that an earlier tick began, or that were there before `fresh_ms`, have the time at which they were read.
        """
        result, self.result = self.result, None
        if result is None:
            return self.reader.late()
        began, read_ms, readings = result
        if began == tick and read_ms >= fresh_ms:
            return readings
        return tuple(replace(reading, read_ms=read_ms) for reading in readings)


def cpu_time_ms(endpoint: Endpoint) -> int | None:
    """Return CPU time so far of a server's processes, milliseconds; None if one cannot be read."""
    total = 0.0
    try:
        for pid in endpoint.pids:
            times = psutil.Process(pid).cpu_times()
            total += times.user + times.system
    except psutil.Error:
        return None
    return round(total * 1000)


def _once(call: Callable[[], HostProcesses]) -> Callable[[], HostProcesses]:
    """Return `call` made once for all threads that need it; libraries of a process are looked up once too."""
    lock = threading.Lock()

    @cache
    def made() -> HostProcesses:
        host = call()
        return replace(host, libraries=cache(host.libraries))

    def shared() -> HostProcesses:
        with lock:
            return made()

    return shared


def _allowed_endpoints(urls: Iterable[str], find: bool, endpoints: Iterable[Endpoint]) -> Iterable[Endpoint]:
    """Return the endpoints that these settings may find too."""
    for endpoint in endpoints:
        if find and endpoint.found_by == "process":
            yield endpoint
        elif endpoint.base_url in urls:
            yield replace(endpoint, found_by="setting")


def _process(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.kind, endpoint.pid, endpoint.process_start_ms, endpoint.contested


def _same_server(first: Endpoint, second: Endpoint) -> bool:
    """Return whether both lead to one server of this host. A proxy may lead to several, by its ports and paths."""
    if first.pid is None or _process(first) != _process(second):
        return False
    same_way = (first.port, urlsplit(first.base_url).path) == (second.port, urlsplit(second.base_url).path)
    return same_way or (first.certain and second.certain)


def _is_alive(endpoint: Endpoint) -> bool:
    """Return whether its process lives, if it is one of this host that can be seen."""
    return endpoint.pid is None or start_ms(endpoint.pid) == endpoint.process_start_ms
