import tomllib
from datetime import date
from importlib.resources import files

import pytest

from pertoken.catalog.coverage import (
    CPU,
    Unpriced,
    priced_names,
    unpriced,
    unpriced_offers,
    unsupported,
)
from pertoken.catalog.instances import interruption_rates
from pertoken.catalog.market import load_market
from pertoken.catalog.offers import PURCHASES, newest

MARKET = load_market()
ACCELERATORS = {accelerator.name for accelerator in MARKET.accelerators}
TABLES = tomllib.loads(files("pertoken.catalog").joinpath("coverage.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [row for rows in TABLES.values() for row in rows], ids=lambda row: row["why"][:40])
def test_each_limit_states_its_reason_and_its_date(row: dict[str, str]) -> None:
    assert row["why"].strip() and date.fromisoformat(str(row["as_of"])) <= date(2026, 11, 28)
    assert row.get("ask", row.get("source", "")).strip(), "where a person finds the figure"


def test_an_accelerator_with_prices_alone_has_offers_and_no_rule_sees_it() -> None:
    for device in unsupported():
        assert MARKET.offers(device.name, "on_demand") or MARKET.offers(device.name, "spot"), device.name
        assert MARKET.accelerator(device.name) is None and device.name not in ACCELERATORS


def test_hosts_without_accelerators_are_priced_as_cpus_with_their_processor() -> None:
    offers = MARKET.offers(CPU)
    assert {"aws", "azure", "gcp"} == {offer.provider for offer in offers}
    assert all(offer.n_devices == 1 and "vCPU" in offer.note for offer in offers)
    assert any("Graviton4" in offer.note for offer in offers)


def test_the_names_of_offers_are_accelerators_priced_ones_and_cpus() -> None:
    names = priced_names(ACCELERATORS)
    assert {"H100 SXM5", "TPU v6e", "Inferentia2", CPU} <= names and "H100" not in names


def test_no_offer_of_the_catalog_is_called_unpriced() -> None:
    for offer in newest(MARKET.all_offers):
        entry = unpriced(offer.provider, offer.accelerator, offer.purchase)
        assert entry is None, (offer, entry)


def test_unpriced_offers_name_accelerators_and_purchases_that_exist() -> None:
    for entry in unpriced_offers():
        assert set(entry.accelerators) <= priced_names(ACCELERATORS) and set(entry.purchases) <= set(PURCHASES)


@pytest.mark.parametrize(
    ("offer", "ask"),
    [
        (("azure", "A100 80GB PCIe", "spot"), "prices.azure.com"),
        (("gcp", "H200 SXM", "reserved_1y"), "gpus-pricing"),
        (("coreweave", "GB300 NVL72", "on_demand"), "sales desk"),
        (("aws", "H100 SXM5", "reserved_3y"), "savingsplans"),
        (("lambda", "H100 SXM5", "spot"), None),
        (("azure", "H100 SXM5", "on_demand"), None),
    ],
)
def test_a_missing_price_names_who_states_it(offer: tuple[str, str, str], ask: str | None) -> None:
    entry = unpriced(*offer)
    assert (entry is None) is (ask is None)
    assert entry is None or (ask or "") in entry.text


def test_an_unknown_part_of_an_offer_stands_for_any() -> None:
    entry = Unpriced("no list", "the desk", date(2026, 1, 1), "gcp", ("H200 SXM",), ("spot",))
    assert entry.covers(None, None, None) and entry.covers("gcp", None, "spot")
    assert not entry.covers("aws", "H200 SXM", "spot") and not entry.covers("gcp", "L4", None)
    assert not entry.covers("gcp", "H200 SXM", "on_demand")


def test_a_cloud_without_published_interruptions_has_no_rate() -> None:
    stated = {rate.provider for rate in interruption_rates()}
    assert not stated & {row["provider"] for row in TABLES["interruptions"]}


def test_an_api_without_a_row_is_one_of_a_catalog_model() -> None:
    for row in TABLES["tokens"]:
        for name in row.get("models", ()):
            model = MARKET.model(name)
            assert model is not None
            assert row["provider"] not in {offer.provider for offer in MARKET.token_offers(model)}
