"""Allocation of a device: the pids a driver names, joined to engines, as shares that sum to at most 1."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pertoken.agent.readings import DeviceProcess
from pertoken.provenance import Provenance
from pertoken.store.schema.shared import OTHER
from pertoken.units import SHARE, apportion

_PARTS = 5040
"""Parts of one unit of SM time: so that up to ten engines in a process have whole ones."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Share of a device that one owner (an engine id, or `OTHER`) has, in millionths."""

    owner: int
    share_1e6: int
    provenance: Provenance


def gpu_allocations(
    processes: Sequence[DeviceProcess], engines_of_pid: Mapping[int, Sequence[int]]
) -> tuple[Allocation, ...]:
    """Return shares of a GPU by the processes on it; none if it is free.

    One owner has all of it, as the driver reported. Several share it by their SM time since the list before; where that
    is not reported for all of them, or nobody computed, by their memory, or equally where a driver hides the memory:
    both are assumptions about time, and marked so. So is an equal part of a process that several engines run in.
    """
    memory: dict[int, int] = defaultdict(int)
    sm_time: dict[int, int] = defaultdict(int)
    shared = False
    for process in processes:
        owners = engines_of_pid.get(process.pid, (OTHER,))
        shared = shared or len(owners) > 1
        for owner in owners:
            memory[owner] += (process.memory_bytes or 0) // len(owners)
            sm_time[owner] += (process.sm_time or 0) * _PARTS // len(owners)
    if len(memory) <= 1:
        return tuple(Allocation(owner, SHARE, Provenance.REPORTED) for owner in memory)
    every = sorted(memory)
    if any(sm_time.values()) and all(process.sm_time is not None for process in processes):
        provenance = Provenance.ASSUMED if shared else Provenance.INTEGRAL
        return _split(every, [sm_time[owner] for owner in every], provenance)
    hidden = any(process.memory_bytes is None for process in processes)
    weights = [1] * len(every) if hidden else [memory[owner] for owner in every]
    return _split(every, weights, Provenance.ASSUMED)


def partition_allocations(slices: Sequence[tuple[int, Sequence[Allocation]]]) -> tuple[Allocation, ...]:
    """Return shares of a GPU by its MIG devices: of each, what part of the GPU it is (millionths) and who holds it.

    What no MIG device takes, and what nobody holds, is nobody's.
    """
    shares: dict[int, tuple[int, Provenance]] = {}
    for part_1e6, allocations in slices:
        for held in allocations:
            share, provenance = shares.get(held.owner, (0, held.provenance))
            share += part_1e6 * held.share_1e6 // SHARE
            shares[held.owner] = share, max(provenance, held.provenance)
    return tuple(Allocation(owner, share, provenance) for owner, (share, provenance) in sorted(shares.items()) if share)


def cpu_allocations(cpu_ms: Mapping[int, int | None]) -> tuple[Allocation, ...]:
    """Return shares of the host's CPUs among the engines that compute on them, by their CPU time since the tick before.

    A CPU always does foreign work; the host is taken to be there for its engines, so they share all of it. Where
    a time could not be read, or none of them worked, they share it equally and that is an assumption.
    """
    owners = sorted(cpu_ms)
    if len(owners) <= 1:
        return tuple(Allocation(owner, SHARE, Provenance.REPORTED) for owner in owners)
    used = [cpu_ms[owner] for owner in owners]
    known = [ms for ms in used if ms is not None]
    if len(known) < len(owners) or not any(known):
        return _split(owners, [1] * len(owners), Provenance.ASSUMED)
    return _split(owners, known, Provenance.COUNTER)


def _split(owners: Sequence[int], weights: Sequence[int], provenance: Provenance) -> tuple[Allocation, ...]:
    if not any(weights):
        weights = [1] * len(owners)
    return tuple(
        Allocation(owner, share, provenance)
        for owner, share in zip(owners, apportion(SHARE, weights), strict=True)
        if share
    )
