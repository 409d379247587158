"""Present state, without anything later than the requested instant."""

from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.figures import rate
from pertoken.window.reading import Window
from tests.scenario import LOW_BATCH_70B
from tests.window.conftest import END


def test_rates_of_the_newest_minutes_are_of_all_epochs_of_a_deployment(recorded_db: StoreLocation) -> None:
    with open_store(recorded_db).read() as connection:
        window = Window(connection, END - 1800, END)
        recent, (deployment_id,) = window.recent(), window.inventory.running
        tok_s = rate(recent.of(deployment_id), "generated_tokens")
        devices = recent.devices
        newest = set(recent.newest_ts.values())
    assert tok_s is not None and abs(tok_s - LOW_BATCH_70B.generated_tok_s) < 1
    assert set(devices) == set(window.inventory.devices)
    assert newest == {END}


def test_nothing_later_than_the_instant_asked_for_is_read(recorded_db: StoreLocation) -> None:
    with open_store(recorded_db).read() as connection:
        recent = Window(connection, END - 1800, END - 600, dated=True).recent()
        assert max(recent.newest_ts.values()) <= END - 600


def test_each_device_is_allocated_to_the_epoch_that_held_it(recorded_db: StoreLocation) -> None:
    with open_store(recorded_db).read() as connection:
        window = Window(connection, END - 1800, END)
        recent, (epoch_id,) = window.recent(), window.inventory.deployment_of
        allocated, held_by = recent.allocated, recent.held_by
    assert set(allocated[epoch_id]) == set(window.inventory.epoch_devices[epoch_id])
    assert {device for device, epochs in held_by.items() if epoch_id in epochs} == set(allocated[epoch_id])
