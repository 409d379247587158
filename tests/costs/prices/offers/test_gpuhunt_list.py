"""The lists of gpuhunt as offers: by hand, and by the package itself from a server on loopback."""

import logging
import socket
import sys
from dataclasses import dataclass
from datetime import date

import pytest

from pertoken.catalog.coverage import faults
from pertoken.catalog.market import load_market
from pertoken.costs.prices.offers import TIMEOUT_S, convert, fetch
from pertoken.errors import BadInput
from pertoken.units import NANO_USD
from tests.price_lists import PROVIDERS, all_pages, pages, row, served

TODAY = date(2026, 11, 22)
MARKET = load_market()


@dataclass
class Row:
    provider: str
    instance_name: str
    location: str
    price: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None
    spot: bool = False


P5 = Row("aws", "p5.48xlarge", "us-east-1", 48.0, 8, "H100", 80.0)


def test_an_item_is_an_offer_of_the_whole_instance_with_the_day_of_its_list() -> None:
    (offer,) = convert([P5], {"aws": "20261120-305"}, MARKET, TODAY).offers
    assert offer.nano_usd_per_device_hour == 6 * NANO_USD and offer.accelerator == "H100 SXM5"
    assert (offer.as_of, offer.confidence) == (date(2026, 11, 20), "medium")
    assert offer.source == "gpuhunt list of aws 20261120-305"
    assert convert([P5], {"aws": "v3"}, MARKET, TODAY).offers[0].as_of == TODAY


def test_a_form_factor_that_is_not_named_is_left_out_and_counted() -> None:
    unknown = Row("runpod", "NVIDIA H100", "US", 2.5, 1, "H100", 80.0)
    named = Row("lambdalabs", "gpu_9x_h100_pcie", "us-west-1", 9.0, 9, "H100", 80.0)
    tpu = Row("gcp", "v5p-8", "us-east5-a", 16.8, 4, "v5p", 95.0)
    converted = convert([unknown, named, tpu, Row("vastai", "x", "y", 1, 1, "L4", 24.0)], {}, MARKET, TODAY)
    assert [(offer.provider, offer.accelerator) for offer in converted.offers] == [("lambda", "H100 PCIe")]
    assert converted.left_out == {
        "the accelerator or its form factor is not known": 2,
        "provider vastai is not mapped": 1,
    }


def test_zones_of_a_region_count_by_the_dearest() -> None:
    zones = [
        Row("gcp", "g2-standard-4", f"us-east1-{zone}", usd, 1, "L4", 24.0) for zone, usd in (("b", 0.7), ("c", 0.8))
    ]
    (offer,) = convert(zones, {}, MARKET, TODAY).offers
    assert (offer.region, offer.nano_usd_per_device_hour) == ("us-east1", 800_000_000)


def test_known_wrong_rows_are_refused_by_the_sanity_rules() -> None:
    secure = Row("runpod", "1x_A100_SXM_SECURE", "US", 1.39, 1, "A100", 80.0)
    offers = convert([secure, Row(**{**vars(secure), "spot": True})], {}, MARKET, TODAY).offers
    (fault,) = faults(offers, TODAY, {}, [accelerator.name for accelerator in MARKET.accelerators])
    assert "no discount is offered" in fault.reason


def test_the_package_itself_reads_the_lists_of_a_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gpuhunt")
    assert set(pytest.importorskip("gpuhunt._internal.catalog").OFFLINE_PROVIDERS) == set(PROVIDERS)
    no_gpu = "m7i.large,us-east-1,0.1,2,8.0,0,,,False,,,,x86,{}"
    lists: dict[str, list[str]] = {name: [] for name in PROVIDERS} | {
        "aws": [row("p5.48xlarge", "us-east-1", 48.0, 8, "H100", 80.0), no_gpu]
    }
    with served(pages(lists, "20261120-305")) as url:
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", url)
        converted = fetch(MARKET, TODAY)
    (offer,) = converted.offers
    assert (offer.instance_type, offer.nano_usd_per_device_hour) == ("p5.48xlarge", 6 * NANO_USD)
    assert converted.missing == ()
    assert not caplog.records and socket.getdefaulttimeout() != TIMEOUT_S
    assert not logging.getLogger("gpuhunt").disabled


def test_a_list_that_fails_is_missing_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gpuhunt")
    rows = {"aws": [row("p5.48xlarge", "us-east-1", 48.0, 8, "H100", 80.0)]}
    with served(all_pages(rows, "gcp", "20261120-305")) as url:
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", url)
        converted = fetch(MARKET, TODAY)
    assert [offer.provider for offer in converted.offers] == ["aws"] and converted.missing == ("gcp",)


def test_without_a_network_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("gpuhunt")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(BadInput, match=r"the price lists cannot be fetched .*Connection refused") as caught:
            fetch(MARKET, TODAY)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value) and not caplog.records


def test_without_the_package_the_error_names_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    with pytest.raises(BadInput, match=r"-m pip install .*\[prices\]"):
        fetch(MARKET, TODAY)
