"""Power that a device pays for, by hand: its own, and its part of the rest of its server."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pertoken.catalog.instances import node_power
from pertoken.window.columns import NULL, Columns, columns
from pertoken.window.energy import Node, energy_by_epoch, nodes_of, power_by_device
from pertoken.window.measured import DEPLOYMENT_TIME, DEVICE, HOST, SHARES, MeasuredColumns

GPU, OTHER_GPU, CPU, SERVER, EPOCH = 10, 11, 12, 1, 5
MINUTE_MS = 60_000


def of(names: Sequence[str], rows: Sequence[dict[str, int]]) -> Columns:
    values = [[row.get(name, NULL) for name in names] for row in rows]
    return Columns({name: n for n, name in enumerate(names)}, np.array(values, np.int64).reshape(-1, len(names)))


def device(device_id: int, minute: int, watts: float | None) -> dict[str, int]:
    row = {"device_id": device_id, "ts": 60 * minute, "duration_ms": MINUTE_MS, "observed_ms": MINUTE_MS}
    return row if watts is None else row | {"energy_counter_mj": round(watts * MINUTE_MS)}


def plug(minute: int, watts: float, measured_ms: int = MINUTE_MS) -> dict[str, int]:
    row = {"host_id": SERVER, "ts": 60 * minute, "duration_ms": MINUTE_MS, "observed_ms": MINUTE_MS}
    return row | {"plug_mj": round(watts * measured_ms), "plug_ms": measured_ms}


def measured(devices: Sequence[dict[str, int]], hosts: Sequence[dict[str, int]] = ()) -> MeasuredColumns:
    shares = [{"device_id": GPU, "ts": row["ts"], "epoch_id": EPOCH, "held_ns": 30_000 * 1_000_000} for row in devices]
    parts = {"device": of(DEVICE, devices), "host": of(HOST, hosts), "share": of(SHARES, shares)}
    return MeasuredColumns(parts | {"deployment_time": columns(DEPLOYMENT_TIME, ())}, {EPOCH: [GPU]})


def test_power_at_the_plug_beyond_the_devices_is_divided_equally_and_holds_the_cpus() -> None:
    rows = [device(GPU, 0, 500), device(OTHER_GPU, 0, 300), device(CPU, 0, 400)]
    node = Node(SERVER, {GPU: 700.0, OTHER_GPU: 700.0}, (CPU,))
    power = power_by_device(measured(rows, [plug(0, 1400)]), [node])
    assert power[GPU].watts == pytest.approx([800]) and power[OTHER_GPU].watts == pytest.approx([600])
    assert power[GPU].at_plug.all() and sum(power[id].watts[0] for id in node.limits_w) == pytest.approx(1400)


def test_without_a_plug_the_rest_is_modelled_and_at_least_what_the_cpus_draw() -> None:
    rows = [device(GPU, 0, 500), device(CPU, 0, 100)]
    modelled = power_by_device(measured(rows), [Node(SERVER, {GPU: 700.0}, (CPU,))])[GPU]
    assert modelled.watts == pytest.approx([node_power().watts(500, 700)]) and modelled.modelled.all()
    busy_cpus = [device(GPU, 0, 500), device(CPU, 0, 900)]
    assert power_by_device(measured(busy_cpus), [Node(SERVER, {GPU: 700.0}, (CPU,))])[GPU].watts == pytest.approx(
        [1400]
    )
    unlimited = power_by_device(measured(rows), [Node(SERVER, {GPU: None}, (CPU,))])[GPU]
    assert unlimited.watts == pytest.approx([600]) and not unlimited.modelled.any() and not unlimited.at_plug.any()


def test_a_part_of_the_minutes_is_measured_at_the_plug_and_the_others_are_modelled() -> None:
    rows = [device(GPU, 0, 500), device(GPU, 1, 500)]
    power = power_by_device(measured(rows, [plug(0, 900, measured_ms=20_000)]), [Node(SERVER, {GPU: 700.0})])[GPU]
    assert power.watts == pytest.approx([900, node_power().watts(500, 700)])
    assert power.at_plug.tolist() == [True, False] and power.modelled.tolist() == [False, True]


def test_a_device_without_energy_has_no_known_power_and_its_server_no_measured_rest() -> None:
    rows = [device(GPU, 0, 500), device(OTHER_GPU, 0, None)]
    power = power_by_device(measured(rows, [plug(0, 1400)]), [Node(SERVER, {GPU: None, OTHER_GPU: None})])
    assert power[GPU].watts == pytest.approx([500]) and not power[GPU].at_plug.any()
    assert np.isnan(power[OTHER_GPU].watts).all()


def test_a_device_that_was_replaced_has_no_part_of_its_server_while_it_is_away() -> None:
    rows = [device(GPU, 0, 500), device(OTHER_GPU, 1, 300)]
    power = power_by_device(measured(rows, [plug(0, 900), plug(1, 800)]), [Node(SERVER, {GPU: None, OTHER_GPU: None})])
    assert power[GPU].watts == pytest.approx([900]) and power[OTHER_GPU].watts == pytest.approx([800])


def test_energy_above_idle_is_apart_and_an_epoch_has_its_share_of_its_server() -> None:
    rows = [device(GPU, minute, 100 if minute < 5 else 500) for minute in range(10)]
    hosts = [plug(minute, 400 if minute < 5 else 900) for minute in range(10)]
    energy = energy_by_epoch(measured(rows, hosts), [Node(SERVER, {GPU: 700.0})])[EPOCH]
    assert energy.node.joules == energy.node.measured_joules == pytest.approx(0.5 * 300 * (400 + 900))
    assert energy.node.above_idle_joules == pytest.approx(0.5 * 300 * (900 - 400))
    assert energy.joules == pytest.approx(0.5 * 300 * (100 + 500)) and energy.node.known_ms == energy.held_ms


def test_a_server_has_its_accelerators_without_partitions_or_its_cpus() -> None:
    def row(
        device_id: int, kind: str, host_id: int = SERVER, parent_id: int | None = None, limit_mw: int | None = None
    ) -> Any:
        return SimpleNamespace(
            device_id=device_id, kind=kind, host_id=host_id, parent_id=parent_id, power_limit_mw=limit_mw
        )

    rows = [
        row(GPU, "gpu", limit_mw=700_000),
        row(20, "mig", parent_id=GPU),
        row(CPU, "cpu"),
        row(30, "cpu", host_id=2),
    ]
    assert nodes_of(rows) == [Node(SERVER, {GPU: 700.0}, (CPU,)), Node(2, {30: None})]
