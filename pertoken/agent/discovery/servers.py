"""Inference servers of this host, discovered by the command lines and mapped libraries of its processes.

Only ports on which a recognised process listens (or that its command line names) are ever contacted.
"""

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from pertoken.agent.discovery.ranks import joined, with_ray_workers
from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.adapters.adapter import Adapter, invocation
from pertoken.agent.engines.locate import explained, in_pod, with_process
from pertoken.agent.engines.topologies import (
    WORKERS,
    Children,
    Server,
    Topology,
    is_worker,
    rank_ports,
    server_roots,
    servers,
    topology_of,
    unread_server,
)
from pertoken.agent.host.listening import Address
from pertoken.agent.host.pods import VARIABLES as POD_VARIABLES
from pertoken.agent.host.processes import HostProcesses, Process
from pertoken.agent.host.published_ports import reached_at
from pertoken.agent.readings import Endpoint, Unavailable
from pertoken.catalog.knobs import (
    follows_argument,
    model_argument,
    names_port,
    port_argument,
    rendezvous_argument,
    socket_argument,
    tls_argument,
    variable_argument,
    variables,
)
from pertoken.printable import short

IdentifyKind = Callable[[str], str | None]
"""The kind of engine that answers at a base URL; None if none does."""

_NAME_IT = "name it to the agent: --engine http://HOST:PORT, or agent.engines in the settings"


@dataclass(frozen=True, slots=True)
class Discovery:
    """Result of one look at the host's processes."""

    endpoints: tuple[Endpoint, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    """Engines that are there but cannot be read, and what this agent has no right to see."""


def discover(host: HostProcesses, identify_kind: IdentifyKind, known: Iterable[Endpoint] = ()) -> Discovery:
    """Return inference servers among the host's processes.

    A server whose command line names the port it listens on is taken by its word; other ports of recognised
    processes are asked. `known`: endpoints of an earlier look; those of the same processes are not asked again.
    """
    before = {
        (endpoint.pid, endpoint.process_start_ms): endpoint for endpoint in known if endpoint.found_by == "process"
    }
    endpoints: list[Endpoint] = []
    unavailable: list[Unavailable] = []
    claimed: set[int] = set()
    led: set[int] = set()
    """Processes of servers that were found; what such a server starts for itself is no other one."""
    for adapter, root in _roots(host):
        if root.pid in led:
            continue  # the engine around it counts what it does
        own = servers(host, adapter, root)
        topology = topology_of(host, adapter, root)
        if topology is not None:
            claimed.update({root.pid} if topology.children is Children.SERVERS else host.group(root.pid))
            unavailable += _servers_missing(host, adapter, root, topology, own)
        for server in own:
            endpoint = _of_server(host, adapter, server, before, identify_kind)
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
                asked = _asked(process.listening, adapter.kind, process, before, identify_kind)
                if asked is not None:
                    group = host.group(process.pid)
                    endpoints.append(with_process(_listener(adapter.kind, asked, host, group), process, group))
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
    host: HostProcesses, adapter: Adapter, root: Process, topology: Topology, own: tuple[Server, ...]
) -> Iterator[Unavailable]:
    """Yield what is missing where a process starts servers and some of them are not there."""
    started = any(adapter.recognises(child.argv) for child in host.children(root.pid))
    ports = rank_ports(adapter, root) if topology.children is Children.RANK_SERVERS else range(len(own))
    if own and len(own) < len(ports):
        reason = f"{adapter.kind} (pid {root.pid}) has {len(ports)} rank servers, and {len(own)} listen at their ports"
        yield Unavailable(f"servers of {adapter.kind}", "failing", reason, "wait until all have loaded, or see its log")
    if not own and not (topology.children is Children.SERVERS and started):
        reason = f"{adapter.kind} (pid {root.pid}) starts {topology.children.value}: none of them is there"
        yield Unavailable(
            f"servers of {adapter.kind}", "missing", reason, "send it a request, or wait until it starts them"
        )


def _unread(host: HostProcesses, claimed: set[int]) -> Iterator[Unavailable]:
    """Yield inference servers and routers that are recognised and cannot be read, by what was seen of them."""
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


def _of_server(
    host: HostProcesses,
    adapter: Adapter,
    server: Server,
    before: dict[tuple[int | None, int | None], Endpoint],
    identify_kind: IdentifyKind,
) -> Endpoint | Unavailable:
    kind, root, argv = adapter.kind, server.process, server.argv
    if follows_argument(kind, argv):
        return _following(kind, server)
    listening = [address for pid in server.pids for address in host.processes[pid].listening]
    environment = host.environment(root.pid, (*variables(kind), *POD_VARIABLES))
    variable = variable_argument(kind, "port", environment) or ""
    names = server.port is not None or names_port(kind, argv)
    named = server.port or (int(variable) if variable.isdecimal() and not names else port_argument(kind, argv))
    address = next((address for address in listening if address.port == named), None)
    if adapter.shared:
        address = _asked([address] if address else [], kind, root, before, identify_kind)
    elif address is None:
        hidden = [address for address in host.unowned if address.port == named]
        # The others are its ranks' own: one that names its port answers there, or not yet.
        others = [] if names or variable else listening
        address = _asked(others or hidden, kind, root, before, identify_kind)
    if address is not None:
        empty = _listener(kind, address, host, server.pids, tls_argument(kind, argv))
        endpoint = explained(with_process(empty, root, server.pids, argv, environment), server.reason)
        return in_pod(endpoint, environment, host)
    if listening:
        ports = ", ".join(str(port) for port in sorted({address.port for address in listening}))
        reason = f"{kind} (pid {root.pid}) listens on {ports} but does not answer yet"
        return Unavailable(kind, "failing", reason, None if named else adapter.metrics_off)
    if path := socket_argument(kind, argv):
        reason = f"{kind} (pid {root.pid}) answers at the socket {path} alone, which is not read"
        return Unavailable(kind, "missing", reason, "start it with --port in place of --uds")
    return Unavailable(
        kind,
        "missing",
        f"{kind} (pid {root.pid}) runs, but its port is not seen from here",
        f"wait until it has loaded; if it is in another network namespace, {_NAME_IT}",
    )


def _following(kind: str, server: Server) -> Endpoint | Unavailable:
    root = server.process
    address, model = rendezvous_argument(kind, root.argv), model_argument(kind, root.argv)
    if address is None or model is None:
        return Unavailable(
            kind,
            "missing",
            f"{kind} (pid {root.pid}) serves for another host, and its command line does not name that host",
        )
    empty = Endpoint(kind, f"rendezvous://{address}/{model}", "process", follows=True)
    return with_process(empty, root, server.pids, root.argv)


def _asked(
    addresses: Iterable[Address],
    kind: str,
    process: Process,
    before: dict[tuple[int | None, int | None], Endpoint],
    identify_kind: IdentifyKind,
) -> Address | None:
    old = before.get((process.pid, process.start_ms))
    tls = tls_argument(kind, process.argv)
    candidates = sorted(set(addresses), key=lambda address: (address.port, address.ip))
    for address in candidates:
        if old is not None and (old.kind, old.base_url) == (kind, _url(address, tls)):
            return address
    return next((address for address in candidates if identify_kind(_url(address, tls)) == kind), None)


def _listener(kind: str, address: Address, host: HostProcesses, group: Collection[int], tls: bool = False) -> Endpoint:
    """Return an endpoint at `address`, whose socket the processes of `group` own, without its process yet."""
    ip, port = address.reached or (address.ip, address.port)
    local = address.reached is None or ip in host.own_ips or ipaddress.ip_address(ip).is_loopback
    contested = host.rivals(group, address) > 0
    return Endpoint(kind, _url(address, tls), "process", port if local else None, contested=contested)


def _url(address: Address, tls: bool = False) -> str:
    bound, port = address.reached or (address.ip, address.port)
    ip = reached_at(bound)
    host = f"[{ip}]" if ":" in ip else ip
    return f"{'https' if tls else 'http'}://{host}:{port}"
