"""Kubernetes object of a process's pod, by the process's environment and the name of the pod.

Sources: Kubernetes documents of Services (KUBERNETES_SERVICE_HOST is set in each container), of the downward API, and
of Deployments (a pod is NAME-HASH-SUFFIX; the alphabet is that of apimachinery's `rand.SafeEncodeString`). KServe names
the Deployment of an LLMInferenceService NAME-kserve. The Dynamo operator sets DYN_PARENT_DGD_K8S_NAME and _NAMESPACE.
Read November 2026.
"""

import re
from collections.abc import Callable, Mapping

from pertoken.state.deployment import Workload

VARIABLES = (
    *("KUBERNETES_SERVICE_HOST", "HOSTNAME", "POD_NAME", "POD_NAMESPACE"),
    *("DYN_PARENT_DGD_K8S_NAME", "DYN_PARENT_DGD_K8S_NAMESPACE"),
)
"""Variables that are read of an engine's environment for it: no other ones are."""
_OF_DEPLOYMENT = re.compile(r"(.+)-[bcdfghjklmnpqrstvwxz2456789]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}")
_KSERVE = "-kserve"


def workload_of(environment: Mapping[str, str], namespace: Callable[[], str | None], host_name: str) -> Workload | None:
    """Return the object that the pod of a process belongs to; None for a process in no pod.

    `namespace` reads that of the pod's service account. A pod in the network of its host has the name of the host,
    `host_name`, in HOSTNAME, which then names no pod.
    """
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    graph, graph_namespace = (environment.get(f"DYN_PARENT_DGD_K8S_{part}") or None for part in ("NAME", "NAMESPACE"))
    at = environment.get("POD_NAMESPACE") or graph_namespace or namespace()
    if graph is not None:
        return Workload("DynamoGraphDeployment", at, graph)
    hostname = environment.get("HOSTNAME", "")
    pod = environment.get("POD_NAME") or ("" if hostname == host_name else hostname)
    return workload_of_pod(at, pod)


def workload_of_pod(namespace: str | None, pod: str) -> Workload:
    """Return the object that a pod belongs to, as far as its name shows it."""
    match = _OF_DEPLOYMENT.fullmatch(pod)
    if match is None:
        return Workload(None, namespace, None)
    name = match[1]
    if name.endswith(_KSERVE):
        return Workload("LLMInferenceService", namespace, name.removesuffix(_KSERVE))
    return Workload("Deployment", namespace, name)
