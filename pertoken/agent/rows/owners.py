"""Owners of each device in a tick, and the devices with unknown owners."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from pertoken.agent.readings import Unavailable
from pertoken.agent.rows.devices import DeviceStep
from pertoken.agent.rows.engines import EngineStep
from pertoken.agent.rows.tick_state import (
    OwnerShare,
    TickState,
    cpu_allocations,
    gpu_allocations,
    partition_allocations,
)
from pertoken.provenance import Provenance

PROCESSES = "processes"
"""Metric of the gap for a device with unknown owners."""
_PARTITION_HIDDEN = Unavailable(
    PROCESSES,
    "failing",
    "who holds one of its partitions, or how large that is, is not known",
    "see with `pertoken doctor` what cannot be read of its partitions",
)
ByDevice = Mapping[int, tuple[OwnerShare, ...]]


@dataclass(frozen=True, slots=True)
class DeviceOwners:
    """Allocations by device id. A device with unknown owners is left out: that is not the same as none."""

    gpu: ByDevice
    """Of GPUs and their partitions."""
    cpu: ByDevice
    unavailable: Mapping[int, Unavailable] = field(default_factory=dict)
    """For GPUs where only a part of the owners is known."""


def find_owners(
    tick_state: TickState,
    devices: Sequence[DeviceStep],
    engines: Sequence[EngineStep],
    cpu_time_ms: Mapping[int, int] | None,
) -> DeviceOwners:
    """Return the owners of each device, by its processes.

    Engines without a GPU compute on the host's CPUs; that is concluded only if the owners of every GPU are known.
    """
    accelerators = [step for step in devices if step.reading.kind != "cpu"]
    refused = {
        step.row.device_id for step in accelerators if any(missing.metric == PROCESSES for missing in step.unavailable)
    }
    by_device = _by_processes(tick_state, accelerators, engines, refused)
    gpu, hidden = _with_partitions(accelerators, by_device, refused)
    unknown = hidden.keys() | refused
    complete = gpu.keys() - unknown
    cpu = next((step.row.device_id for step in devices if step.reading.kind == "cpu"), None)
    if cpu is None or not all(step.row.device_id in complete for step in accelerators if step.reading.kind == "gpu"):
        return DeviceOwners(gpu, {}, hidden)
    return DeviceOwners(gpu, {cpu: _on_cpu(tick_state, engines, gpu, cpu_time_ms)}, hidden)


def _by_processes(
    tick_state: TickState, accelerators: Sequence[DeviceStep], engines: Sequence[EngineStep], refused: Set[int]
) -> dict[int, tuple[OwnerShare, ...]]:
    """Return allocations by the processes of each device: as they were listed this time, else as they were listed last.

    `refused`: devices without a readable list of processes.
    """
    engines_of_pid: dict[int, tuple[int, ...]] = {}
    for engine in engines:
        for pid in () if engine.gone else engine.reading.endpoint.pids:
            engines_of_pid[pid] = (*engines_of_pid.get(pid, ()), engine.engine.engine_id)
    by_device: dict[int, tuple[OwnerShare, ...]] = {}
    for step in accelerators:
        device_id, processes = step.row.device_id, step.reading.processes
        last = tick_state.gpu_allocations.get(device_id)
        if processes is not None:
            by_device[device_id] = gpu_allocations(processes, engines_of_pid)
        elif last is not None and device_id not in refused:
            by_device[device_id] = last
        elif last:
            # Who held it last may hold it still; that nobody did proves nothing for now.
            by_device[device_id] = tuple(replace(allocation, provenance=Provenance.ASSUMED) for allocation in last)
    return by_device


def _with_partitions(
    accelerators: Sequence[DeviceStep], by_device: dict[int, tuple[OwnerShare, ...]], refused: Set[int]
) -> tuple[dict[int, tuple[OwnerShare, ...]], dict[int, Unavailable]]:
    """Return the allocations; a GPU in partitions is allocated to the owners of its partitions."""
    partitions: dict[int, list[DeviceStep]] = {}
    for step in accelerators:
        if step.row.parent_id is not None and not step.reading.lost:
            partitions.setdefault(step.row.parent_id, []).append(step)
    hidden: dict[int, Unavailable] = {}
    together = dict(by_device)
    for gpu_id, steps in partitions.items():
        parts = [(step.row.part_1e6, by_device.get(step.row.device_id)) for step in steps]
        known_parts = [(part_1e6, held) for part_1e6, held in parts if part_1e6 is not None and held is not None]
        together[gpu_id] = partition_allocations(known_parts)
        if len(known_parts) < len(parts) or any(step.row.device_id in refused for step in steps):
            hidden[gpu_id] = _PARTITION_HIDDEN
        if not together[gpu_id] and (gpu_id in hidden or gpu_id in refused):
            del together[gpu_id]
    return together, hidden


def _on_cpu(
    tick_state: TickState, engines: Sequence[EngineStep], gpu: ByDevice, cpu_time_ms: Mapping[int, int] | None
) -> tuple[OwnerShare, ...]:
    on_gpu = {allocation.owner for held in gpu.values() for allocation in held}
    local = [
        step.engine.engine_id
        for step in engines
        if not step.gone and step.reading.endpoint.pids and step.engine.engine_id not in on_gpu
    ]
    time_by_engine, previous_time = cpu_time_ms or {}, tick_state.cpu_time_ms
    used = {
        engine_id: max(0, time_by_engine[engine_id] - previous_time[engine_id])
        if engine_id in time_by_engine and engine_id in previous_time
        else None
        for engine_id in local
    }
    return cpu_allocations(used)
