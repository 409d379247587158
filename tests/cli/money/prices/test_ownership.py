"""A server of one's own has the price of owning it, with its measured energy."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pertoken.advisor.present import present
from pertoken.catalog.market import load_market
from pertoken.cli import main
from pertoken.costs.prices.stored import Ownership, device_hour, paid_power_w
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.window.reading import Window, weekly_power_w
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_006_400
"""A whole hour, so that the roll-up of the hour is there."""


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    """Two hours of two GPUs that a model holds, without a price."""
    return seed(tmp_path / "db", LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=120, end_ts=END)


def run(where: StoreLocation, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments, "--db", str(where)], catch_exceptions=False)


def measured_w(where: StoreLocation) -> float:
    with open_store(where).read() as connection:
        devices = Window(connection, 0, END).inventory.devices
        gpus = [device_id for device_id, row in devices.items() if row.kind == "gpu"]
        powers = weekly_power_w(connection, gpus)
    (((_, watts),), ((_, same),)) = powers.values()
    assert watts == pytest.approx(same)
    return watts


def limit_w(where: StoreLocation) -> float:
    with open_store(where).read() as connection:
        devices = Window(connection, 0, END).inventory.devices.values()
        return next(row.power_limit_mw / 1000 for row in devices if row.kind == "gpu" and row.power_limit_mw)


def host_of(where: StoreLocation) -> str:
    return fleet_report(open_store(where), 7200, END).hosts[0].name


def test_the_bill_of_owned_hardware_names_its_measured_and_assumed_terms(where: StoreLocation) -> None:
    assert fleet_report(open_store(where), 7200, END).bill is None
    done = run(where, "own", host_of(where), "--capex", "60000", "--years", "5", "--usd-per-kwh", "0.2")
    assert done.exit_code == 0, done.output
    watts = measured_w(where)
    owned = Ownership(60_000, years=5, usd_per_kwh=0.2, at_plug=True)
    paid_w = paid_power_w(owned, 2, watts, limit_w(where))
    assert watts > 50 and paid_w is not None and paid_w > watts
    assert f"at {paid_w:.0f} W of the server's power at the plug, modelled; assumed: cost_of_capital" in done.output
    hourly = device_hour(owned, 2, paid_w).nano_usd
    report = fleet_report(open_store(where), 7200, END)
    (gpu, *_) = (device for device in report.devices if device.kind == "gpu")
    assert gpu.nano_usd_per_hour == hourly and "cost of owning" in (gpu.listed_price or "")
    assert run(where, "show").output.count("cost of owning") == 2, "a line for each device"
    bill = report.bill
    assert bill is not None and bill.paid == pytest.approx(2 * 2 * hourly, abs=10)
    assert bill.paid == bill.busy + bill.idle + bill.other + bill.unallocated


def test_other_terms_change_no_past_costs_and_a_price_that_is_set_comes_first(where: StoreLocation) -> None:
    host = host_of(where)
    run(where, "own", host, "--capex", "60000")
    before = fleet_report(open_store(where), 7200, END).bill
    again = run(where, "own", host, "--capex", "10")
    assert "past costs stay as they are" in again.output
    assert fleet_report(open_store(where), 7200, END).bill == before
    run(where, "set", "3", "--for", "H100", "--from", "ever", "--yes")
    paid = fleet_report(open_store(where), 7200, END).bill
    assert paid is not None and paid.paid == 4 * 3 * 10**9


def test_a_server_with_a_cost_of_owning_is_owned_and_releasing_it_banks_nothing(where: StoreLocation) -> None:
    before = present(open_store(where), load_market(), 7200, END).fleet
    run(where, "own", host_of(where), "--capex", "60000")
    after = present(open_store(where), load_market(), 7200, END).fleet
    assert [host.placement.purchase for host in (*before.hosts, *after.hosts)] == [None, "owned"]
    assert {deployment.placement.purchase for deployment in after.deployments} == {"owned"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--capex", "0"), "capex is the price of the server"),
        (("--capex", "9", "--pue", "0.5"), "pue (energy of the facility"),
    ],
)
def test_impossible_input_is_refused_in_one_line(
    where: StoreLocation, arguments: tuple[str, ...], message: str
) -> None:
    done = run(where, "own", "gpu-1", *arguments)
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_a_host_that_is_not_recorded_is_named(where: StoreLocation) -> None:
    done = run(where, "own", "elsewhere", "--capex", "9")
    assert "No device of 'elsewhere' was recorded yet" in done.output
