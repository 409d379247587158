"""Cost of each host, compared with the bill."""

from pathlib import Path

import pytest

from pertoken.costs.hours import host_costs, hourly
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.open import Store, open_store
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_002_800
MODEL = LOW_BATCH_70B.model


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Four GPUs over two whole hours, two of them held by a model."""
    return open_store(
        seed(tmp_path_factory.mktemp("hosts"), LOW_BATCH_70B, gpus=4, usd_per_hour=6.88, minutes=120, end_ts=END)
    )


def test_a_host_costs_what_all_its_devices_cost_whoever_held_them(store: Store) -> None:
    bill = fleet_report(store, 7200, END).bill
    (host,) = host_costs(store, 3, END)
    assert bill is not None and bill.unallocated > 0
    assert host.nano_usd == bill.paid == 4 * 2 * 6_880_000_000
    assert (host.devices, host.unpriced_devices) == (4, 0)
    assert host.tokens == 7200 * 200
    assert host.nano_usd_per_mtok == round(host.nano_usd * 10**6 / (7200 * 200))


def test_a_host_with_an_accelerator_without_a_price_has_no_quotient(tmp_path: Path) -> None:
    where = seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=60, end_ts=END)
    (host,) = host_costs(open_store(where), 2, END)
    assert (host.nano_usd, host.unpriced_devices, host.nano_usd_per_mtok) == (None, 2, None)
    assert host.tokens == 3600 * 200


def test_models_of_a_service_are_counted_together_under_its_name(store: Store) -> None:
    (alone,) = hourly(store, 3, END)
    (service,) = hourly(store, 3, END, named={MODEL: "chat"}.__getitem__)
    assert (service.model, service.hours) == ("chat", alone.hours)
