from dataclasses import replace
from datetime import date, timedelta

import pytest

from pertoken.catalog.market import load_market
from pertoken.catalog.offers import (
    REFRESH_AFTER_DAYS,
    Offer,
    ages,
    listed_token_offers,
    marks,
    newest,
    outdated,
    rows,
)
from pertoken.units import NANO_USD

DAY = date(2026, 11, 22)
OFFER = Offer("aws", "p5.48xlarge", "H100 SXM5", 8, "us-east-1", "on_demand", 5 * NANO_USD, DAY, "a feed")


def test_of_one_offer_the_newest_is_in_force_and_all_are_kept() -> None:
    old, new = replace(OFFER, as_of=date(2026, 1, 1)), replace(OFFER, nano_usd_per_device_hour=4 * NANO_USD)
    assert newest([new, old]) == (new,) and newest([OFFER, new]) == (new,)
    market = load_market("aws").having([new])
    assert market.offers_at(_at("us-east-1"))[0] == new
    kept = [offer for offer in market.all_offers if offer.key == OFFER.key]
    assert new in kept and len({offer.as_of for offer in kept}) == len(kept) > 2


def test_a_limited_market_stays_limited() -> None:
    elsewhere = replace(OFFER, provider="lambda")
    assert load_market("aws", "us-east-1").having([elsewhere, replace(OFFER, region="us-west-2")]).all_offers == (
        load_market("aws", "us-east-1").all_offers
    )


def test_offers_at_a_placement_are_of_its_region_or_of_any() -> None:
    assert {offer.region for offer in load_market().offers_at(_at("us-east-1"))} == {"us-east-1"}
    flat = load_market().offers_at(replace(_at("us-west-1"), provider="lambda"))
    assert {offer.region for offer in flat} == {"any"}


def _at(region: str):  # type: ignore[no-untyped-def]
    from pertoken.state.deployment import Placement

    return Placement("aws", region, accelerator="H100 SXM5")


def test_age_and_low_confidence_are_marked() -> None:
    assert marks([OFFER], DAY, 30) == ()
    stale, low = replace(OFFER, as_of=date(2026, 10, 1)), replace(OFFER, confidence="low")
    assert marks([OFFER, stale, low], DAY, 30) == (
        "stale: listed up to 52 days ago, check before acting",
        "low confidence: check the price with the provider",
    )


@pytest.mark.parametrize("row", rows("token_prices.csv"), ids=lambda row: f"{row['provider']} {row['model']}")
def test_each_token_price_has_its_source_its_date_and_a_model_of_the_catalog(row: dict[str, str]) -> None:
    assert row["source"].strip() and date.fromisoformat(row["as_of"]) <= DAY
    model = load_market().model(row["model"])
    assert model is not None and model.name == row["model"]


def test_token_prices_are_plausible_and_none_is_listed_twice() -> None:
    offers = listed_token_offers()
    assert len({(offer.provider, offer.model) for offer in offers}) == len(offers)
    for offer in offers:
        assert 0.01 * NANO_USD <= offer.input <= offer.output <= 100 * NANO_USD, offer
        assert offer.cached_input is None or offer.cached_input < offer.input, offer


def test_the_ages_of_the_offers_used_name_the_youngest_and_the_oldest() -> None:
    old = replace(OFFER, as_of=date(2025, 11, 22))
    known = ages([OFFER, old], DAY)
    assert known is not None and (known.youngest, known.oldest, known.count) == (0, 365, 2)
    assert not known.outdated and outdated([OFFER, old], DAY) is None, "one recent price is enough"
    assert ages([], DAY) is None and outdated([], DAY) is None


def test_prices_of_which_none_is_recent_name_the_command_that_fetches_newer_ones() -> None:
    edge, old = (replace(OFFER, as_of=DAY - timedelta(days=days)) for days in (REFRESH_AFTER_DAYS, 400))
    assert outdated([edge, old], DAY) == (
        "all 2 list prices used are 90 to 400 days old: `pertoken prices update` fetches newer ones"
    )
    assert outdated([old], DAY) == "the list price used is 400 days old: `pertoken prices update` fetches newer ones"
    assert outdated([replace(edge, as_of=edge.as_of + timedelta(days=1))], DAY) is None
    assert outdated(listed_token_offers()[:1], date(2030, 1, 1)) is not None, "token prices have an age, too"
