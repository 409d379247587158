"""The process that serves an endpoint now: found by the address it listens on and by its command line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from urllib.parse import urlsplit

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import Adapter, invocation
from pertoken.agent.host.owners import VARIABLES as POD_VARIABLES
from pertoken.agent.host.owners import workload_of
from pertoken.agent.host.processes import Address, HostProcesses, Process
from pertoken.agent.readings import SLEEP_AFTER, Endpoint
from pertoken.catalog import knobs
from pertoken.printable import short
from pertoken.state.deployment import WORKLOAD
from pertoken.store.schema.shared import CONNECTOR

TOPOLOGY = "topology"
"""Name, beside the knobs, of the reason why processes belong to a server that it did not start alone."""


class Children(Enum):
    """Processes that a process of an engine starts."""

    RANK_SERVERS = "servers of its data-parallel ranks, at its port and the ones after it"
    SERVERS = "servers of their own, each with its command line"
    UNNAMED_SERVERS = "servers of their own, at ports that no command line names"


@dataclass(frozen=True, slots=True)
class Topology:
    """A process of an engine that starts servers instead of being one."""

    kind: str
    children: Children
    source: str
    flags: tuple[str, ...] = ()
    """Flags that make it so; one is enough."""
    program: str | None = None
    """Program that is so."""


TOPOLOGIES = (
    Topology(
        "vllm",
        Children.RANK_SERVERS,
        "vLLM 0.32.0, options of its data-parallel supervisor",
        flags=("--data-parallel-multi-port-external-lb", "-dpm", "--data-parallel-supervisor-port"),
    ),
    Topology(
        "llama.cpp",
        Children.SERVERS,
        "llama.cpp tools/server/README.md, router mode (2026-11)",
        flags=("--models-dir", "--models-preset"),
    ),
    Topology(
        "sglang",
        Children.UNNAMED_SERVERS,
        "sglang_router launch_server.py: a server for each data-parallel rank behind one router (2026-11)",
        program="sglang_router.launch_server",
    ),
)
LAUNCHERS = re.compile(r"mpirun|mpiexec(\.hydra)?|orterun|prterun|orted|prted?|hydra_pmi_proxy|pmi_proxy")
"""Programs that start the server and its workers by MPI."""
WORKERS: Mapping[str, re.Pattern[str]] = {
    "vllm": re.compile(r"VLLM::"),
    "sglang": re.compile(r"sglang::"),
    "trtllm": re.compile(r"mpi4py\.futures(\.server)?$|tensorrt_llm\.llmapi\.mgmn_(worker|leader)_node$"),
}
"""Programs and titles of worker processes by kind of engine."""
_RUNNERS = frozenset({"llama.cpp"})
"""Engines that other programs start: their users never see the command line."""
_STARTS_ANYTHING = re.compile(
    r"|(-?|.*/)(ba|da|z|fi|k|c|tc)?sh|init|systemd|tini|dumb-init|docker-init|catatonit|s6-.*|runit|supervisord|pid1"
    r"|containerd-shim.*|conmon|podman|sudo|su|login|sshd.*|tmux.*|screen|SCREEN|nohup|env|make|just|node|pytest.*|-c|-m"
)
"""Programs that start anything: a server below one of them has the command line of its user."""


@dataclass(frozen=True, slots=True)
class UnreadServer:
    """A program that serves models or routes their requests, and that no adapter reads."""

    name: str
    reason: str
    remedy: str | None


_AT_SERVERS = ("it routes requests to servers, which count the tokens", "run the agent where these servers run")
_NO_COUNTERS = (
    "no adapter reads it",
    "serve the model with an engine that is read (docs/engines.md); until then its devices count as other work",
)
UNREAD: tuple[tuple[str, re.Pattern[str], tuple[str, str]], ...] = (
    ("vLLM's production-stack router", re.compile(r"vllm-router|vllm_router(\.app)?"), _AT_SERVERS),
    (
        "SGLang's router",
        re.compile(r"sglang-router|smg|sgl-model-gateway|sglang_router(\.launch_router|\.cli)?"),
        _AT_SERVERS,
    ),
    ("TensorRT-LLM's disaggregated server", re.compile(r"trtllm-serve disaggregated(_mpi_worker)?"), _AT_SERVERS),
    ("llm-d's routing proxy", re.compile(r"pd-sidecar|llm-d-routing-sidecar"), _AT_SERVERS),
    ("llama-swap", re.compile(r"llama-swap"), _AT_SERVERS),
    ("Aphrodite", re.compile(r"aphrodite( run)?|aphrodite\.endpoints\..*"), _NO_COUNTERS),
    ("FastChat", re.compile(r"fastchat\.serve\..*"), _NO_COUNTERS),
    ("Infinity", re.compile(r"infinity_emb( v2)?"), _NO_COUNTERS),
    ("KoboldCpp", re.compile(r"koboldcpp.*"), _NO_COUNTERS),
    ("KTransformers", re.compile(r"ktransformers(\..*)?"), _NO_COUNTERS),
    ("LightLLM", re.compile(r"lightllm\.server\..*"), _NO_COUNTERS),
    ("llamafile", re.compile(r"llamafile|.*\.llamafile"), _NO_COUNTERS),
    ("LM Studio", re.compile(r"lm-studio|lms|llmster"), _NO_COUNTERS),
    ("LocalAI", re.compile(r"local-ai"), _NO_COUNTERS),
    ("MAX", re.compile(r"max serve|max\.entrypoints\..*"), _NO_COUNTERS),
    ("mistral.rs", re.compile(r"mistralrs(-server)?"), _NO_COUNTERS),
    ("MLC LLM", re.compile(r"mlc_llm( serve)?"), _NO_COUNTERS),
    ("OpenVINO Model Server", re.compile(r"ovms"), _NO_COUNTERS),
    ("TabbyAPI", re.compile(r"tabbyapi"), _NO_COUNTERS),
    ("Transformers", re.compile(r"transformers serve"), _NO_COUNTERS),
    ("Xinference", re.compile(r"xinference(-local|-supervisor|-worker)"), _NO_COUNTERS),
)
"""Name, program with or without its first argument, and (reason, remedy)."""


@dataclass(frozen=True, slots=True)
class ServerProcesses:
    """Processes of one server."""

    process: Process
    """Process with the life of the server."""
    pids: tuple[int, ...]
    argv: Sequence[str]
    port: int | None = None
    """Port at which it answers, where the command line names another."""
    reason: str | None = None
    """Why these processes are its own, where it did not start all of them."""


def topology_of(host: HostProcesses, adapter: Adapter, process: Process) -> Topology | None:
    """Return the topology of a process that starts servers of its engine; None for one that is a server."""
    for topology in TOPOLOGIES:
        if topology.kind == adapter.kind and (
            invocation(process.argv)[0] == topology.program
            or knobs.sets_flag(adapter.kind, process.argv, topology.flags)
        ):
            return topology
    if adapter.kind == "llama.cpp" and any(adapter.recognises(child.argv) for child in host.children(process.pid)):
        return next(topology for topology in TOPOLOGIES if topology.kind == adapter.kind)
    return None


def server_roots(host: HostProcesses, adapter: Adapter) -> Iterator[Process]:
    """Yield processes of the engine's servers that no other process of the same server started."""
    for process in host.processes.values():
        if not adapter.recognises(process.argv):
            continue
        parent = host.processes.get(process.ppid)
        if parent is None or not adapter.recognises(parent.argv) or _starts_servers(host, adapter, parent):
            yield process


def _starts_servers(host: HostProcesses, adapter: Adapter, process: Process) -> bool:
    topology = topology_of(host, adapter, process)
    return topology is not None and topology.children is Children.SERVERS


def servers(host: HostProcesses, adapter: Adapter, root: Process) -> tuple[ServerProcesses, ...]:
    """Return the servers of one process of an engine: itself, or servers that it starts at their own ports.

    None for a router with servers that have command lines of their own: each of these is a root.
    """
    topology = topology_of(host, adapter, root)
    if topology is None:
        return (_with_workers(host, adapter, root),)
    if topology.children is Children.SERVERS:
        return ()
    listeners = [
        (address.port, child)
        for child in host.children(root.pid)
        for pid in host.group(child.pid)
        for address in host.processes[pid].listening
    ]
    name = invocation(root.argv)[0]
    if topology.children is Children.UNNAMED_SERVERS:
        children = dict.fromkeys(child for _, child in sorted(listeners, key=lambda pair: pair[0]))
        return tuple(
            ServerProcesses(child, host.group(child.pid), child.argv, reason=f"one of the servers that {name} starts")
            for child in children
        )
    ports = rank_ports(adapter, root)
    ranks = {port: child for port, child in listeners if port in ports}
    whole_server = f"of {len(ports)} of {name}"
    return tuple(
        ServerProcesses(
            ranks[port], host.group(ranks[port].pid), root.argv, port, f"rank server {port - ports[0]} {whole_server}"
        )
        for port in sorted(ranks)
    )


def rank_ports(adapter: Adapter, root: Process) -> range:
    """Return the ports at which the servers of a process's data-parallel ranks answer."""
    first = knobs.port_argument(adapter.kind, root.argv)
    sizes = (("--data-parallel-size-local", "-dpl"), ("--data-parallel-size", "-dp"))
    ranks = next((size for flags in sizes if (size := knobs.whole_argument(adapter.kind, root.argv, flags))), 1)
    return range(0) if first is None else range(first, first + ranks)


def _with_workers(host: HostProcesses, adapter: Adapter, root: Process) -> ServerProcesses:
    """Return a server with the workers of its launcher, else of its session or container."""
    group = host.group(root.pid)
    launchers = [process for process in host.ancestors(root.pid) if LAUNCHERS.fullmatch(invocation(process.argv)[0])]
    if launchers:
        launched = host.group(launchers[-1].pid)
        if not any(_is_server(host.processes[pid]) for pid in launched if pid not in group):
            name = invocation(launchers[-1].argv)[0]
            return ServerProcesses(root, launched, root.argv, reason=f"{name} started it and its workers")
    starter = host.processes.get(root.ppid)
    if adapter.kind in _RUNNERS and starter is not None and not _STARTS_ANYTHING.fullmatch(invocation(starter.argv)[0]):
        return ServerProcesses(root, group, root.argv, reason=f"{invocation(starter.argv)[0]} started it")
    strays = tuple(stray_workers(host, adapter.kind))
    lookups: tuple[tuple[str, Callable[[int], object]], ...]
    lookups = (("session", host.session_of), ("container", host.container_of))
    for name, lookup in lookups if strays else ():
        shared = lookup(root.pid)
        if shared is None:
            continue
        roots = [process for process in server_roots(host, adapter) if lookup(process.pid) == shared]
        workers = [stray.pid for stray in strays if lookup(stray.pid) == shared]
        if workers and not any(process.pid != root.pid for process in roots):
            pids = tuple(sorted({*group, *(pid for worker in workers for pid in host.group(worker))}))
            return ServerProcesses(root, pids, root.argv, reason=f"workers of its {name} are its own")
    return ServerProcesses(root, group, root.argv)


def unread_server(argv: Sequence[str]) -> UnreadServer | None:
    """Return the server or router that a command line starts and that cannot be read; None for any other program."""
    return _unread_server(tuple(argv))


@lru_cache(maxsize=1024)  # asked of every process at each look
def _unread_server(argv: tuple[str, ...]) -> UnreadServer | None:
    program, arguments = invocation(argv)
    words = {program, " ".join((program, *arguments[:1]))}
    return next((UnreadServer(name, *why) for name, pattern, why in UNREAD if any(map(pattern.fullmatch, words))), None)


def stray_workers(host: HostProcesses, kind: str) -> Iterator[Process]:
    """Yield worker processes of an engine that no process of a known server started."""
    pattern = WORKERS.get(knobs.like(kind))
    if pattern is None:
        return
    for process in host.processes.values():
        if is_worker(process, pattern) and not any(_is_server(above) for above in host.ancestors(process.pid)):
            yield process


def is_worker(process: Process, pattern: re.Pattern[str]) -> bool:
    """Return whether a process is a worker by its title or program."""
    return bool(process.argv) and bool(pattern.match(process.argv[0]) or pattern.match(invocation(process.argv)[0]))


def _is_server(process: Process) -> bool:
    return any(adapter.recognises(process.argv) for adapter in ADAPTERS.values() if not adapter.shared)


def locate(endpoint: Endpoint, host: HostProcesses) -> Endpoint:
    """Return the endpoint with the process that listens there now, if it is one of this host that can be seen."""
    empty = Endpoint(endpoint.kind, endpoint.base_url, endpoint.found_by, endpoint.port)
    owners: dict[int, Address] = {}
    for process in host.processes.values():
        address = next((address for address in process.listening if _leads_to(endpoint, address, host.own_ips)), None)
        if address is not None:
            owners[process.pid] = address
    if not owners:
        return empty
    for root in server_roots(host, ADAPTERS[endpoint.kind]):
        for server in servers(host, ADAPTERS[endpoint.kind], root):
            owner = next((pid for pid in owners if pid in server.pids), None)
            if owner is not None:
                contested = replace(empty, contested=host.rivals(server.pids, owners[owner]) > 0)
                environment = host.environment(root.pid, (*knobs.variables(empty.kind), *POD_VARIABLES))
                located = with_process(contested, server.process, server.pids, server.argv, environment)
                return in_pod(explained(located, server.reason), environment, host)
    owner = min(owners)
    library, mapped = ADAPTERS[endpoint.kind].library, host.libraries(owner) or ()
    certain = library is not None and any(library.search(path) for path in mapped)
    group = host.group(owner)
    contested = replace(empty, certain=certain, contested=host.rivals(group, owners[owner]) > 0)
    return with_process(contested, host.processes[owner], group)


def explained(endpoint: Endpoint, reason: str | None) -> Endpoint:
    """Return an endpoint with the reason why its processes are its own, where it has one."""
    return endpoint if reason is None else replace(endpoint, knobs={**endpoint.knobs, TOPOLOGY: short(reason)})


def with_process(
    empty: Endpoint,
    process: Process,
    group: Sequence[int],
    argv: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Endpoint:
    """Return an endpoint with the identity and group of its process, and the model and knobs of its command line."""
    environment = environment or {}
    values = knobs.read_environment(empty.kind, environment)
    if not knobs.layout_variables(empty.kind):
        values |= knobs.read_absent(empty.kind, argv)
    values |= knobs.read_argv(empty.kind, argv)
    model = knobs.model_argument(empty.kind, argv) or knobs.variable_argument(empty.kind, "model", environment)
    mode, devices = knobs.split_arguments(empty.kind, argv)
    if mode is not None:
        values = {"split_mode": mode, **(knobs.layout(empty.kind, mode, devices) if devices else {}), **values}
    if connector := knobs.connector_argument(empty.kind, argv):
        values[CONNECTOR] = connector
    if sleep_after_s := knobs.sleep_argument(empty.kind, argv):
        values[SLEEP_AFTER] = sleep_after_s
    meeting = knobs.rendezvous_argument(empty.kind, argv)
    return replace(
        empty,
        pid=process.pid,
        process_start_ms=process.start_ms,
        pids=tuple(group),
        knobs=values if meeting is None else {**values, "rendezvous": meeting},
        model_path=model,
    )


def in_pod(endpoint: Endpoint, environment: Mapping[str, str], host: HostProcesses) -> Endpoint:
    """Return an endpoint with the Kubernetes object that the pod of its process belongs to, if it is in one."""
    pid = endpoint.pid
    workload = workload_of(environment, lambda: None if pid is None else host.pod_namespace(pid), host.name)
    return endpoint if workload is None else replace(endpoint, knobs={**endpoint.knobs, WORKLOAD: str(workload)})


def _leads_to(endpoint: Endpoint, address: Address, own_ips: frozenset[str]) -> bool:
    parts = urlsplit(endpoint.base_url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = {"127.0.0.1", "::1"} if host == "localhost" else {host}
    if address.reached is not None:
        is_own = bool(addresses & own_ips)
        return any(
            reached_port == port and (ip in addresses or (is_own and ipaddress.ip_address(ip).is_loopback))
            for ip, reached_port in (address.reached, *address.also)
        )
    anywhere = ipaddress.ip_address(address.ip).is_unspecified
    return address.port == port and (address.ip in addresses or (anywhere and bool(addresses & own_ips)))
