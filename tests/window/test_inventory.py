"""Inventory of a window: deployments that still run, hosts that report, and the order of devices."""

from types import SimpleNamespace
from typing import Any

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.figures import STALE_TICKS
from pertoken.window.inventory import STOPPED_S, Inventory
from pertoken.window.reading import Window
from tests.window.conftest import END

NOW = 100_000


def host(host_id: int, newest_ts: int) -> Any:
    return SimpleNamespace(host_id=host_id, name=f"host-{host_id}", newest_ts=newest_ts)


def epoch(epoch_id: int, deployment_id: int, newest_ts: int | None, host_id: int = 1) -> Any:
    return SimpleNamespace(
        epoch_id=epoch_id,
        deployment_id=deployment_id,
        host_id=host_id,
        newest_ts=newest_ts,
        knobs="{}",
        base_url="http://h:8000",
    )


def inventory(hosts: list[Any], epochs: list[Any]) -> Inventory:
    return Inventory(NOW, hosts, {}, epochs, {}, {host.host_id: 10 for host in hosts}, 10)


def test_a_deployment_without_rows_runs_no_more_once_its_host_has_rows_that_are_much_newer() -> None:
    seen = inventory(
        [host(1, NOW), host(2, NOW - 5000)],
        [epoch(1, 11, NOW - STOPPED_S), epoch(2, 12, NOW - STOPPED_S - 1), epoch(3, 13, NOW - 5000, 2)],
    )
    assert set(seen.newest) == {11, 12, 13}
    assert set(seen.running) == {11, 13}


def test_the_newest_epoch_of_a_deployment_stands_for_it() -> None:
    seen = inventory([host(1, NOW)], [epoch(1, 11, NOW - 600), epoch(2, 11, NOW)])
    assert seen.newest[11].epoch_id == seen.running[11].epoch_id == 2
    assert [row.epoch_id for row in seen.epochs_of[11]] == [1, 2]


def test_a_host_reports_while_its_newest_row_is_a_few_ticks_old() -> None:
    seen = inventory([host(1, NOW - 10 * STALE_TICKS), host(2, NOW - 10 * STALE_TICKS - 1)], [])
    assert seen.reporting == {1}


def test_devices_are_shown_by_host_and_slot_and_cpus_last(recorded_db: StoreLocation) -> None:
    with open_store(recorded_db).read() as connection:
        inventory = Window(connection, END - 1800, END).inventory
    assert [(row.kind, row.slot) for row in inventory.devices.values()] == [("gpu", 0), ("gpu", 1), ("gpu", 2)]
    (epoch_id,) = inventory.deployment_of
    assert sorted(inventory.device_names[row.device_id] for row in inventory.held(epoch_id)) == [
        f"{row.name} #{row.slot}" for row in list(inventory.devices.values())[:2]
    ]
