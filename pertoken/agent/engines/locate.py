"""The process that serves an endpoint now: found by the address it listens on and by its command line."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from pertoken.agent.engines.adapters import ADAPTERS
from pertoken.agent.engines.topologies import TOPOLOGY, server_roots, servers
from pertoken.agent.host.listening import Address
from pertoken.agent.host.pods import VARIABLES as POD_VARIABLES
from pertoken.agent.host.pods import workload_of
from pertoken.agent.host.processes import HostProcesses, Process
from pertoken.agent.readings import SLEEP_AFTER, Endpoint
from pertoken.catalog.knobs import (
    connector_argument,
    layout,
    layout_variables,
    model_argument,
    read_absent,
    read_argv,
    read_environment,
    rendezvous_argument,
    sleep_argument,
    split_arguments,
    variable_argument,
    variables,
)
from pertoken.printable import short
from pertoken.state.deployment import WORKLOAD
from pertoken.store.schema.shared import CONNECTOR


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
                environment = host.environment(root.pid, (*variables(empty.kind), *POD_VARIABLES))
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
    """Return an endpoint with what its process reveals: identity, group, model and knobs of its command line."""
    environment = environment or {}
    knobs = read_environment(empty.kind, environment)
    if not layout_variables(empty.kind):
        knobs |= read_absent(empty.kind, argv)
    knobs |= read_argv(empty.kind, argv)
    model = model_argument(empty.kind, argv) or variable_argument(empty.kind, "model", environment)
    mode, devices = split_arguments(empty.kind, argv)
    if mode is not None:
        knobs = {"split_mode": mode, **(layout(empty.kind, mode, devices) if devices else {}), **knobs}
    if connector := connector_argument(empty.kind, argv):
        knobs[CONNECTOR] = connector
    if sleep_after_s := sleep_argument(empty.kind, argv):
        knobs[SLEEP_AFTER] = sleep_after_s
    meeting = rendezvous_argument(empty.kind, argv)
    return replace(
        empty,
        pid=process.pid,
        process_start_ms=process.start_ms,
        pids=tuple(group),
        knobs=knobs if meeting is None else {**knobs, "rendezvous": meeting},
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
        here_too = bool(addresses & own_ips)
        ways = (address.reached, *address.also)
        return any(
            reached == port and (ip in addresses or (here_too and ipaddress.ip_address(ip).is_loopback))
            for ip, reached in ways
        )
    anywhere = ipaddress.ip_address(address.ip).is_unspecified
    return address.port == port and (address.ip in addresses or (anywhere and bool(addresses & own_ips)))
