"""Energy of devices over a window, by the epochs that held them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import add

import numpy as np

from pertoken.catalog.instances import node_power
from pertoken.provenance import Provenance
from pertoken.store.query.read import KnownDevice
from pertoken.window.columns import Columns, Floats, Mask
from pertoken.window.measured import MeasuredColumns

IDLE_PERCENTILE = 5
"""Of a device's buckets, by power: the level that stands for idle, which a single wrong reading does not lower."""


@dataclass(frozen=True, slots=True)
class Node:
    """Devices of one server."""

    host_id: int
    limits_w: Mapping[int, float | None]
    """Power limit of each accelerator by its id; of a server without any, its CPUs with None."""
    cpus: tuple[int, ...] = ()
    """CPUs beside accelerators."""


@dataclass(frozen=True, slots=True)
class DevicePower:
    """Watts of the server that a device pays for, in each of its buckets; NaN where they are not known."""

    watts: Floats
    idle_w: float
    """Level of idle; the lowest that was seen if the device was never idle."""
    at_plug: Mask
    """Buckets with power measured at the plug."""
    modelled: Mask
    """Other buckets in which the rest of the server was modelled; elsewhere, it has only its CPUs."""


def nodes_of(devices: Iterable[KnownDevice]) -> list[Node]:
    """Return the servers of devices that are no partitions of others."""
    by_host: dict[int, list[KnownDevice]] = defaultdict(list)
    for row in devices:
        if row.parent_id is None:
            by_host[row.host_id].append(row)
    nodes = []
    for host_id, rows in by_host.items():
        accelerators = [row for row in rows if row.kind != "cpu"]
        limits_w = {
            row.device_id: None if row.power_limit_mw is None else row.power_limit_mw / 1000 for row in accelerators
        }
        cpus = tuple(row.device_id for row in rows if row.kind == "cpu")
        nodes.append(Node(host_id, limits_w, cpus) if limits_w else Node(host_id, dict.fromkeys(cpus)))
    return nodes


def device_energy_mj(rows: Columns) -> Floats:
    """Return the energy of each row: by its counter, else by power over time."""
    counter, integral = rows.floats("energy_counter_mj"), rows.floats("energy_integral_mj")
    return np.where(np.isnan(counter), integral, counter)


def power_by_device(measured: MeasuredColumns, nodes: Sequence[Node]) -> dict[int, DevicePower]:
    """Return the power that each device of these servers pays for. The arrays are in the order of `timed` rows."""
    return {device_id: power for node in nodes for device_id, power in _of_node(measured, node).items()}


def timed(measured: MeasuredColumns, device_id: int) -> Columns:
    """Return the rows of a device that cover time."""
    rows = measured.device(device_id)
    return rows.where(rows.ints("duration_ms") > 0)


def _of_node(measured: MeasuredColumns, node: Node) -> dict[int, DevicePower]:
    rows = {device_id: timed(measured, device_id) for device_id in (*node.limits_w, *node.cpus)}
    host = measured.host(node.host_id)
    grid = np.unique(np.concatenate([host.ints("ts"), *(columns.ints("ts") for columns in rows.values())]))
    index = {device_id: np.searchsorted(grid, columns.ints("ts")) for device_id, columns in rows.items()}
    own_w = {device_id: device_energy_mj(columns) / columns.ints("duration_ms") for device_id, columns in rows.items()}
    devices_n, devices_w, cpus_w, plug_w = (np.full(len(grid), value) for value in (0.0, 0.0, 0.0, np.nan))
    for device_id in node.limits_w:
        devices_n[index[device_id]] += 1
        devices_w[index[device_id]] += own_w[device_id]
    for device_id in node.cpus:
        cpus_w[index[device_id]] += np.nan_to_num(own_w[device_id])
    on_plug = host.where(host.ints("plug_ms") > 0)
    plug_w[np.searchsorted(grid, on_plug.ints("ts"))] = on_plug.floats("plug_mj") / on_plug.ints("plug_ms")
    with np.errstate(divide="ignore", invalid="ignore"):  # a bucket of the host alone has no devices
        rest_w, cpus_w = np.maximum(plug_w - devices_w, 0) / devices_n, cpus_w / devices_n
    return {
        device_id: _device(own_w[device_id], rest_w[index[device_id]], cpus_w[index[device_id]], limit_w)
        for device_id, limit_w in node.limits_w.items()
    }


def _device(own_w: Floats, plug_rest_w: Floats, cpus_w: Floats, limit_w: float | None) -> DevicePower:
    at_plug = ~np.isnan(plug_rest_w)
    model = node_power()
    model_w = own_w * (model.load_factor - 1) + (np.nan if limit_w is None else model.rest_share * limit_w)
    watts = own_w + np.where(at_plug, plug_rest_w, np.fmax(model_w, cpus_w))
    measured = watts[~np.isnan(watts)]
    idle_w = float(np.percentile(measured, IDLE_PERCENTILE)) if len(measured) else 0.0
    return DevicePower(watts, idle_w, at_plug, ~at_plug & ~np.isnan(model_w))


@dataclass(frozen=True, slots=True)
class NodeEnergy:
    """Energy of servers at their plugs, by the share of their devices that an epoch held, while it is known."""

    joules: float = 0.0
    known_ms: float = 0.0
    """Held device time in which it is known."""
    above_idle_joules: float = 0.0
    """Part above the idle level of each device with its part of the server."""
    measured_joules: float = 0.0
    """Part that was measured at the plug."""
    modelled_joules: float = 0.0
    """Part with measured devices and a modelled rest of the server. The remaining part has only its CPUs."""

    def plus(self, energy: NodeEnergy) -> NodeEnergy:
        """Return the sum of both."""
        return NodeEnergy(*map(add, astuple(self), astuple(energy)))


@dataclass(frozen=True, slots=True)
class EpochEnergy:
    """Energy of the devices that an epoch held, by its share of them."""

    joules: float
    """Over the device time in which energy was measured."""
    measured_ms: float
    """Device time in which it was measured, by the share that was held."""
    held_ms: float
    provenance: Provenance
    """`COUNTER`, or `INTEGRAL` where power over time stood in for some device's energy counter."""
    node: NodeEnergy = NodeEnergy()
    """Over the same time."""

    def plus(self, energy: EpochEnergy) -> EpochEnergy:
        """Return the sum of both."""
        return EpochEnergy(
            self.joules + energy.joules,
            self.measured_ms + energy.measured_ms,
            self.held_ms + energy.held_ms,
            max(self.provenance, energy.provenance),
            self.node.plus(energy.node),
        )

    @property
    def measured_share(self) -> float:
        """Share of the held device time in which energy was measured, 0 to 1."""
        return self.measured_ms / self.held_ms if self.held_ms else 0.0


def energy_by_epoch(measured: MeasuredColumns, nodes: Sequence[Node] = ()) -> dict[int, EpochEnergy]:
    """Return the energy of each epoch that held a device. Energy of a device that no epoch held is left out."""
    energy_of: dict[int, EpochEnergy] = {}
    power = power_by_device(measured, nodes)
    for epoch_id, device_ids in measured.own_devices.items():
        for device_id in device_ids:
            rows = timed(measured, device_id)
            energy_mj = device_energy_mj(rows)
            is_measured = ~np.isnan(energy_mj)
            share = measured.share(epoch_id, device_id, rows)
            held_ms = share * rows.floats("duration_ms")
            if not held_ms.any():
                continue
            is_integral = (np.isnan(rows.floats("energy_counter_mj")) & is_measured).any()
            of_device = EpochEnergy(
                float((energy_mj[is_measured] * share[is_measured]).sum()) / 1000,
                float(held_ms[is_measured].sum()),
                float(held_ms.sum()),
                Provenance.INTEGRAL if is_integral else Provenance.COUNTER,
                _node_energy(power[device_id], held_ms) if device_id in power else NodeEnergy(),
            )
            energy_of[epoch_id] = energy_of[epoch_id].plus(of_device) if epoch_id in energy_of else of_device
    return energy_of


def _node_energy(power: DevicePower, held_ms: np.ndarray) -> NodeEnergy:
    joules = np.nan_to_num(power.watts) * held_ms / 1000
    above_w = np.maximum(np.nan_to_num(power.watts - power.idle_w), 0)
    return NodeEnergy(
        float(joules.sum()),
        float(held_ms[~np.isnan(power.watts)].sum()),
        float((above_w * held_ms).sum()) / 1000,
        float(joules[power.at_plug].sum()),
        float(joules[power.modelled].sum()),
    )
