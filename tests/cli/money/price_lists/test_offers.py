"""Importing list prices: shown, asked and stored so that no past costs change."""

import socket
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner, Result

from pertoken.cli import main
from pertoken.cli.money import price_lists
from pertoken.costs.prices.stored import detected_prices, market_of, offers_imported
from pertoken.errors import BadInput
from pertoken.state.deployment import Placement
from pertoken.store import repository
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository, PricesChanged
from pertoken.window.inventory import KnownDevice, KnownHost
from tests.price_lists import all_pages, row, served
from tests.values import new_store, set_price

NOW = int(time.time()) // 60 * 60


@pytest.fixture
def where(tmp_path: Path) -> StoreLocation:
    return new_store(tmp_path / "db")


def run(where: StoreLocation, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["prices", *arguments, "--db", str(where)], catch_exceptions=False)


OFFERS = """provider,instance_type,accelerator,n_devices,region,purchase,usd_per_hour,as_of,source
aws,p5.48xlarge,H100 SXM5,8,us-east-1,on_demand,48,2026-11-20,our contract
aws,p5.48xlarge,H100 SXM5,8,us-east-1,spot,60,2026-11-20,our contract
aws,p5.48xlarge,H100 SXM5,8,us-east-9,on_demand,50,2026-11-20,our contract
"""


def test_a_list_of_offers_is_shown_before_it_is_written_and_asks(where: StoreLocation, tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_text(OFFERS)
    refused = run(where, "import", str(file))
    assert refused.exit_code == 2 and "2 offers would be written, as shown: nothing was" in refused.stderr
    assert (
        "1 new offers, 0 risen, 1 fallen, 0 unchanged with a later date, 0 not newer than the known ones, 1 refused"
        in (refused.stdout)
    )
    assert "fallen   aws p5.48xlarge (8 x H100 SXM5) us-east-1 on-demand $55.04/h → $48.00/h (-13%)" in refused.stdout
    assert "spot costs more than on-demand there ($6)" in refused.stdout
    assert not offers_imported(open_store(where))
    done = run(where, "import", str(file), "--yes")
    assert done.exit_code == 0 and "2 offers written. Past costs stay as they are" in done.output
    again = run(where, "import", str(file), "--yes")
    assert "0 new offers, 0 risen, 0 fallen, 0 unchanged with a later date, 2 not newer" in again.output
    assert "Nothing to write." in again.output


def test_an_imported_price_counts_from_now_on_and_reaches_rules_and_detected_instances(
    where: StoreLocation, tmp_path: Path
) -> None:
    file = tmp_path / "list.csv"
    file.write_text(OFFERS)
    run(where, "import", str(file), "--yes")
    market = market_of(open_store(where), "aws")
    h100 = Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5")
    assert market.offers_at(h100)[0].nano_usd_per_device_hour == 6 * 10**9
    assert market.offers_at(replace(h100, region="us-east-9"))[0].source == "our contract"
    row = KnownDevice._make([None] * len(KnownDevice._fields))
    row = row._replace(kind="gpu", name="NVIDIA H100 80GB HBM3", uuid="GPU-0", host_id=1)
    host = KnownHost._make([None] * len(KnownHost._fields))
    host = host._replace(cloud="aws", instance_type="p5.48xlarge", region="us-east-1", purchase="on_demand")
    prices = detected_prices([row], {1: host}, market, date(2026, 11, 22))["GPU-0"]
    *listed, imported = [(price.nano_usd_per_device_hour, price.from_ts >= NOW) for price in prices]
    assert set(listed) == {(6_880_000_000, False)} and imported == (6_000_000_000, True)


COMMITTED = """provider,instance_type,accelerator,n_devices,region,purchase,usd_per_hour,as_of,source
aws,p5.48xlarge,H100 SXM5,8,us-east-1,reserved_1y,40,2026-11-20,quote 17
aws,p5.48xlarge,H100 SXM5,8,us-east-1,reserved_3y,30,2026-11-20,quote 17
azure,Standard_ND96isr_H100_v5,H100 SXM5,8,eastus,reserved_1y,64,2026-11-20,quote 18
azure,Standard_ND96isr_H100_v5,H100 SXM5,8,eastus,reserved_3y,99,2026-11-20,quote 18
"""


def test_committed_prices_of_aws_and_azure_are_imported_and_one_above_on_demand_is_refused(
    where: StoreLocation, tmp_path: Path
) -> None:
    file = tmp_path / "list.csv"
    file.write_text(COMMITTED)
    done = run(where, "import", str(file), "--yes")
    assert done.exit_code == 0 and "3 offers written" in done.output
    assert "reserved 3y costs more than on-demand there" in done.output
    market = market_of(open_store(where))
    for at, purchase, usd_per_device_hour in (
        (Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5"), "reserved_1y", 5.0),
        (Placement("aws", "us-east-1", "p5.48xlarge", "H100 SXM5"), "reserved_3y", 3.75),
        (Placement("azure", "eastus", "Standard_ND96isr_H100_v5", "H100 SXM5"), "reserved_1y", 8.0),
    ):
        (offer,) = market.offers_at(at, purchase)
        assert (offer.nano_usd_per_device_hour, offer.source[:5]) == (usd_per_device_hour * 10**9, "quote")


def test_offers_imported_meanwhile_refuse_others(where: StoreLocation) -> None:
    set_price(where, "H100", 1)
    with pytest.raises(PricesChanged), AdviceRepository(where).writing() as connection:
        repository.add_offers(connection, [], read_seq=3)


def test_update_without_a_network_is_one_line(where: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gpuhunt")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        done = run(where, "update", "--yes")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "cannot be fetched" in done.stderr


def test_update_refuses_a_database_of_no_use_before_it_fetches_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object) -> NoReturn:
        raise AssertionError("a list was fetched")

    monkeypatch.setattr(price_lists, "fetched", fetched)
    (tmp_path / "advice.db").write_bytes(b"no database" * 1000)
    done = run(StoreLocation(tmp_path), "update", "--yes")
    assert done.exit_code == 1 and "not a database" in done.stderr


TODAY = time.strftime("%Y%m%d", time.gmtime(NOW))
LISTS = {
    "aws": [
        row("p5.48xlarge", "us-east-1", 48.0, 8, "H100", 80.0),
        row("p4d.24xlarge", "us-east-1", 30.0, 8, "A100", 40.0),
        row("p5.48xlarge", "us-east-9", 50.0, 8, "H100", 80.0),
        row("p5.48xlarge", "us-east-9", 50.0, 8, "H100", 80.0, spot=True),
    ]
}


def test_update_fetches_the_lists_and_prints_what_is_new_risen_fallen_refused_and_gone(
    where: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gpuhunt")
    with served(all_pages(LISTS, "gcp", f"{TODAY}-1")) as url:
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", url)
        refused = run(where, "update")
        assert refused.exit_code == 2 and "3 offers would be written" in refused.stderr
        assert not offers_imported(open_store(where))
        done = run(where, "update", "--yes")
        again = run(where, "update", "--yes")
    assert done.exit_code == 0 and "3 offers written" in done.stdout
    assert "1 new offers, 1 risen, 1 fallen, 0 unchanged" in done.stdout and "gone from the lists" in done.stdout
    assert "new      aws p5.48xlarge (8 x H100 SXM5) us-east-9 on-demand $50.00/h" in done.stdout
    assert (
        "risen    aws p4d.24xlarge (8 x A100 40GB SXM4) us-east-1 on-demand $21.96/h → $30.00/h (+37%)" in done.stdout
    )
    assert "fallen   aws p5.48xlarge (8 x H100 SXM5) us-east-1 on-demand $55.04/h → $48.00/h (-13%)" in done.stdout
    assert "refused  aws p5.48xlarge (8 x H100 SXM5) us-east-9 spot $50.00/h: spot costs as much" in done.stdout
    assert "gone     aws " in done.stdout and "which stays" in done.stdout and "gone     gcp" not in done.stdout
    assert "The lists of gcp could not be fetched: their known prices stay" in done.stderr
    assert "Nothing to write." in again.stdout
    assert {offer.source for offer in offers_imported(open_store(where))} == {f"gpuhunt list of aws {TODAY}-1"}


def test_an_update_that_fails_while_it_writes_stores_nothing(
    where: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gpuhunt")
    with served(all_pages(LISTS, "gcp", f"{TODAY}-1")) as url, monkeypatch.context() as broken:
        broken.setenv("GPUHUNT_CATALOG_URL", url)
        add_offers = repository.add_offers

        def fail_after_writing(*arguments: Any, **words: Any) -> None:
            add_offers(*arguments, **words)
            raise BadInput("the disk is full")

        broken.setattr(repository, "add_offers", fail_after_writing)
        failed = run(where, "update", "--yes")
    assert failed.exit_code == 2 and "the disk is full" in failed.stderr
    assert not offers_imported(open_store(where))
