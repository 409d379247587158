"""Links between the GPUs of a host: by NVLink, below one PCIe switch, or through its CPUs."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml

from pertoken.agent.probes.nvidia.nvml import Call, Fault

# The words of `state.fleet.LINKS`, which this process does without.
NVLINK, SWITCH, HOST, SOCKET = "nvlink", "pcie_switch", "pcie_host", "cross_socket"
_PEER = Call("nvmlDeviceGetP2PStatus", arguments=(pynvml.NVML_P2P_CAPS_INDEX_NVLINK,))
_ANCESTOR = Call("nvmlDeviceGetTopologyCommonAncestor")
BY_ANCESTOR = {
    pynvml.NVML_TOPOLOGY_INTERNAL: SWITCH,
    pynvml.NVML_TOPOLOGY_SINGLE: SWITCH,
    pynvml.NVML_TOPOLOGY_MULTIPLE: SWITCH,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: HOST,
    pynvml.NVML_TOPOLOGY_NODE: HOST,
    pynvml.NVML_TOPOLOGY_SYSTEM: SOCKET,
}
Answer = Callable[..., Any]
"""Returns the answer to a call for an owner and two handles, or the `Fault` of this call alone."""


def link(answer: Answer, owner: str, handle: Any, other: Any) -> str | None:
    """Return how one GPU reaches another; None where the driver does not report whether by NVLink.

    Raises NvmlFault if the device or the library fails.
    """
    peer = answer(owner, _PEER, handle, other)
    if isinstance(peer, Fault) or peer == pynvml.NVML_P2P_STATUS_UNKNOWN:
        return None
    if peer == pynvml.NVML_P2P_STATUS_OK:
        return NVLINK
    ancestor = answer(owner, _ANCESTOR, handle, other)
    return None if isinstance(ancestor, Fault) else BY_ANCESTOR.get(ancestor)


def links_by_gpu(pairs: Mapping[tuple[str, str], str | None], uuids: Iterable[str]) -> dict[str, str | None]:
    """Return the links of each GPU as text for its row; None for a GPU without any that is known."""
    links: dict[str, dict[str, list[str]]] = {uuid: defaultdict(list) for uuid in uuids}
    for (one, other), kind in pairs.items():
        if kind is not None:
            links[one][kind].append(other)
            links[other][kind].append(one)
    return {uuid: json.dumps(kinds, sort_keys=True) if kinds else None for uuid, kinds in links.items()}
