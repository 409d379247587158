"""Ranks of one deployment: those of this host as one endpoint, those that another host leads as one that waits for it.

Ranks on several hosts are recognised by where they meet (an address their command lines share) and the model. Where Ray
starts them no command line does: the workers of a node belong to the server of its cluster.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pertoken.agent.engines.adapters.adapter import invocation
from pertoken.agent.host.processes import HostProcesses, Process
from pertoken.agent.readings import Endpoint
from pertoken.catalog.knobs import executor_argument, rendezvous_argument

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
    return (nodes[0], rendezvous_argument("ray", nodes[0].argv)) if len(nodes) == 1 else (None, None)


def _workers(host: HostProcesses) -> tuple[int, ...]:
    roots = [process.pid for process in host.processes.values() if process.argv and process.argv[0].startswith(_WORKER)]
    return tuple(sorted({pid for root in roots for pid in host.group(root)}))


def _starts_by_ray(processes: Mapping[int, Process], endpoint: Endpoint) -> bool:
    root = processes.get(endpoint.pid) if endpoint.pid is not None else None
    return root is not None and executor_argument("vllm", root.argv) == "ray"


def _is_here(address: str, own_ips: frozenset[str]) -> bool:
    name = address.rpartition(":")[0].strip("[]") or address
    try:
        return str(ipaddress.ip_address(name)) in own_ips
    except ValueError:
        return False
