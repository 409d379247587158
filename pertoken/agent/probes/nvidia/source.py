"""Library and tables that all NVIDIA GPUs of a host are read with; a table of calls becomes values and reasons."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pynvml

from pertoken.agent.backoff import Clock
from pertoken.agent.probes.nvidia.nvml import NONSENSE, NOT_SUPPORTED, Call, Nvml, NvmlFault, Scope
from pertoken.agent.readings import Unavailable

_V2 = (pynvml.nvmlMemory_v2,)
Table = dict[str, tuple[Call, ...]]
"""Fields of `DeviceReading` -> the calls that give them, preferred first."""
MEMORY: Table = {
    "memory_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.total),
    ),
    # v1 counts what the driver reserves for itself as used.
    "memory_used_bytes": (
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used, _V2),
        Call("nvmlDeviceGetMemoryInfo", lambda memory: memory.used),
    ),
}
"""Calls that GPUs and MIG devices answer alike."""
NAME = Call("nvmlDeviceGetName")
UUID = Call("nvmlDeviceGetUUID")
_UNIFIED = {
    "memory_bytes": lambda meminfo: meminfo["MemTotal"],
    "memory_used_bytes": lambda meminfo: meminfo["MemTotal"] - meminfo["MemAvailable"],
}
_SHARED = "the driver reports none, as on GPUs that share the host's memory: this is the whole host's, of /proc/meminfo"


@dataclass(slots=True)
class Source:
    """The gateway, the clock (monotonic seconds) and the /proc of one host."""

    nvml: Nvml
    clock: Clock
    proc: Path

    def values(self, owner: str, handle: Any, table: Table) -> tuple[dict[str, Any], dict[str, Unavailable]]:
        """Return values by metric, and gaps for those refused. Raises NvmlFault if the device or the library fails."""
        values: dict[str, Any] = {}
        unavailable: dict[str, Unavailable] = {}
        for metric, calls in table.items():
            try:
                values[metric] = self.nvml.first(owner, calls, handle)
            except NvmlFault as error:
                if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                    raise
                unavailable[metric] = error.fault.missing(metric)
                if error.fault is NOT_SUPPORTED and metric in _UNIFIED:
                    values[metric] = _UNIFIED[metric](_meminfo(self.proc))
                    unavailable[metric] = replace(unavailable[metric], reason=_SHARED)
        return values, unavailable

    def answer(self, owner: str, call: Call, *arguments: Any) -> Any:
        """Return the answer to a call, or the `Fault` of this call alone. Raises NvmlFault for any other."""
        try:
            answer = self.nvml.ask(owner, call, *arguments)
        except NvmlFault as error:
            if error.fault.scope in (Scope.DEVICE, Scope.LIBRARY):
                raise
            return error.fault
        return NONSENSE if answer is None else answer


def _meminfo(proc: Path) -> dict[str, int]:
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
