"""Who holds a device: the pids a driver names, joined to engines, as shares that sum to at most 1."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.agent.readings import DeviceProcess
from pertoken.costs.ledger import apportion
from pertoken.provenance import Provenance
from pertoken.store.telemetry import OTHER
from pertoken.units import SHARE


@dataclass(frozen=True, slots=True)
class Holding:
    """What part of a device one owner (an engine id, or `OTHER`) has, in millionths."""

    owner: int
    share_1e6: int
    provenance: Provenance


def gpu_holdings(processes: Sequence[DeviceProcess], engine_of_pid: Mapping[int, int]) -> tuple[Holding, ...]:
    """Shares of a GPU by the processes on it; none if it is free.

    One owner has all of it, as the driver reported. Several share it by their memory, or equally where a driver
    hides the memory: both are assumptions about time, and say so.
    """
    memory: dict[int, int] = defaultdict(int)
    hidden = False
    for process in processes:
        memory[engine_of_pid.get(process.pid, OTHER)] += process.memory_bytes or 0
        hidden = hidden or process.memory_bytes is None
    if len(memory) <= 1:
        return tuple(Holding(owner, SHARE, Provenance.REPORTED) for owner in memory)
    owners = sorted(memory)
    weights = [1] * len(owners) if hidden else [memory[owner] for owner in owners]
    return _split(owners, weights, Provenance.ASSUMED)


def cpu_holdings(cpu_ms: Mapping[int, int | None]) -> tuple[Holding, ...]:
    """Shares of the host's CPUs among the engines that compute on them, by their CPU time since the tick before.

    A CPU always does foreign work; the host is taken to be there for its engines, so they share all of it. Where
    a time could not be read, or none of them worked, they share it equally and that is an assumption.
    """
    owners = sorted(cpu_ms)
    if len(owners) <= 1:
        return tuple(Holding(owner, SHARE, Provenance.REPORTED) for owner in owners)
    used = [cpu_ms[owner] for owner in owners]
    known = [ms for ms in used if ms is not None]
    if len(known) < len(owners) or not any(known):
        return _split(owners, [1] * len(owners), Provenance.ASSUMED)
    return _split(owners, known, Provenance.COUNTER)


def _split(owners: Sequence[int], weights: Sequence[int], provenance: Provenance) -> tuple[Holding, ...]:
    if not any(weights):
        weights = [1] * len(owners)
    return tuple(
        Holding(owner, share, provenance)
        for owner, share in zip(owners, apportion(SHARE, weights), strict=True)
        if share
    )
