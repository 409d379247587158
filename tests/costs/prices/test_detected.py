from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

from pertoken.catalog.market import load_market
from pertoken.costs.prices.book import PriceBook, PriceSubject
from pertoken.costs.prices.stored import detected_prices, price_book
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.store.connect.open import Store, open_store
from pertoken.store.schema.rows import DeviceRow, HostRow
from pertoken.store.write.writer import Writer
from pertoken.units import NANO_USD
from pertoken.window.reading import Window
from tests.values import host_row, new_store, tick

END = 1_790_000_040
GPU = DeviceRow(1, host_row().host_id, "gpu", "GPU-1", "NVIDIA", "NVIDIA H100 80GB HBM3", 0)
CPU = DeviceRow(2, host_row().host_id, "cpu", "CPU-1", "AMD", "AMD EPYC 7R13")
P5 = replace(host_row(), cloud="aws", instance_type="p5.48xlarge", region="us-east-1", purchase="on_demand")


def recorded(folder: Path, *hosts: HostRow) -> Store:
    where = new_store(folder)
    with Writer(where) as writer:
        for n, host in enumerate(hosts):
            writer.commit(replace(tick(END + 60 * n), host=host, devices=(GPU, CPU)))
    return open_store(where)


def book(store: Store, now_ts: int) -> PriceBook:
    with store.read() as connection:
        return price_book(store, connection, Window(connection, 0, now_ts).inventory)


def price(store: Store, device: DeviceRow) -> int | None:
    price_in_force = book(store, END).at(PriceSubject(device.kind, device.name, device.uuid), END)
    return price_in_force.nano_usd_per_device_hour if price_in_force else None


def test_a_gpu_of_a_listed_instance_costs_its_part_of_the_list_price_and_the_cpus_nothing_of_their_own(
    tmp_path: Path,
) -> None:
    store = recorded(tmp_path, P5)
    assert price(store, GPU) == 6.88 * NANO_USD and price(store, CPU) is None


def test_an_unlisted_instance_or_one_of_unknown_purchase_has_no_price(tmp_path: Path) -> None:
    assert price(recorded(tmp_path / "a", replace(P5, purchase=None)), GPU) is None
    assert price(recorded(tmp_path / "b", replace(P5, instance_type="p5.small")), GPU) is None
    assert price(recorded(tmp_path / "c", replace(P5, region="mars-1")), GPU) is None


def test_instance_facts_missing_after_a_restart_are_kept(tmp_path: Path) -> None:
    store = recorded(tmp_path, P5, replace(P5, instance_type=None, region=None, purchase=None))
    assert price(store, GPU) == 6.88 * NANO_USD


def test_a_list_price_is_shown_with_its_date_and_a_stale_one_is_marked(tmp_path: Path) -> None:
    store = recorded(tmp_path, P5)
    fresh, old = (datetime(*day, tzinfo=UTC) for day in ((2025, 9, 10), (2026, 11, 21)))
    for now, stale in ((fresh, False), (old, True)):
        listed = book(store, int(now.timestamp())).detected["GPU-1"][0]
        assert listed.listed and listed.note and "aws p5.48xlarge on-demand in us-east-1, 20" in listed.note
        assert ("; stale: listed up to" in listed.note) is stale
    report = fleet_report(store, 3600, END)
    (line,) = (device for device in report.devices if device.kind == "gpu")
    assert line.listed_price and line.nano_usd_per_hour == 6.88 * NANO_USD
    assert any("Nobody set a price for NVIDIA H100 80GB HBM3: dollars are by the list price" in h for h in report.hints)


def test_a_list_price_is_in_force_from_the_day_it_was_listed_and_a_newer_one_changes_no_past_costs(
    tmp_path: Path,
) -> None:
    store, market = recorded(tmp_path, P5), load_market()
    with store.read() as connection:
        inventory = Window(connection, 0, END).inventory
    wanted = P5.cloud, P5.instance_type, P5.region
    offers = market.offers("H100 SXM5")
    old = next(offer for offer in offers if (offer.provider, offer.instance_type, offer.region) == wanted)
    new = replace(old, as_of=date(2026, 11, 1), nano_usd_per_device_hour=5 * NANO_USD)
    both = replace(market, all_offers=(new, *market.all_offers))
    book = PriceBook((), detected_prices(inventory.devices.values(), inventory.host, both, date(2026, 11, 21)))
    device = PriceSubject(GPU.kind, GPU.name, GPU.uuid)
    days = [int(datetime(*day, tzinfo=UTC).timestamp()) for day in ((2020, 1, 1), (2026, 10, 31), (2026, 11, 2))]
    before, then, now = (book.at(device, ts) for ts in days)
    assert before is None and then and now
    assert (then.nano_usd_per_device_hour, now.nano_usd_per_device_hour) == (6.88 * NANO_USD, 5 * NANO_USD)
    assert int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) in book.changes()


def test_an_instance_without_accelerators_prices_its_cpus_together(tmp_path: Path) -> None:
    where = new_store(tmp_path)
    graviton = replace(P5, instance_type="c8g.16xlarge")
    with Writer(where) as writer:
        writer.commit(replace(tick(END), host=graviton, devices=(CPU,)))
    store = open_store(where)
    assert price(store, CPU) == 2_552_320_000
    listed = book(store, END).detected["CPU-1"][-1]
    assert listed.note is not None and "aws c8g.16xlarge on-demand in us-east-1, 2026-07-20" in listed.note
