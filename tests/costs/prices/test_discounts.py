from dataclasses import replace
from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from pertoken.catalog.offers import Offer
from pertoken.costs.prices.book import WHOLE, Discount, Discounts, Price
from pertoken.units import NANO_USD

HALF = Discount("aws", 500_000, from_ts=100, until_ts=200, note="contract 7", seq=1)
FIFTH = Discount("aws", 200_000, from_ts=0, seq=2)
LIST = Price("GPU-0", 10 * NANO_USD, from_ts=50, note="list price", listed=True)
OFFER = Offer("aws", "p5.48xlarge", "H100 SXM5", 8, "us-east-1", "on_demand", 10 * NANO_USD, date(2026, 7, 20), "list")


def test_a_discount_is_in_force_from_its_start_up_to_its_end() -> None:
    known = Discounts([HALF])
    assert [known.at("aws", ts) for ts in (99, 100, 199, 200)] == [None, HALF, HALF, None]
    assert known.at("gcp", 150) is None


def test_after_a_discount_with_an_end_the_one_before_it_applies_again() -> None:
    known = Discounts([HALF, FIFTH])
    assert [known.at("aws", ts) for ts in (99, 150, 200)] == [FIFTH, HALF, FIFTH]


def test_a_withdrawn_discount_is_none_and_the_one_set_last_counts() -> None:
    withdrawn = Discount("aws", None, from_ts=150, seq=3)
    known = Discounts([FIFTH, withdrawn])
    assert known.at("aws", 149) == FIFTH and known.at("aws", 150) is None
    assert Discounts([FIFTH, replace(FIFTH, millionths=1, seq=9)]).at("aws", 0) == replace(FIFTH, millionths=1, seq=9)


def test_list_prices_change_at_each_start_and_end_and_name_the_discount() -> None:
    prices = Discounts([HALF]).on_prices("aws", [LIST, replace(LIST, from_ts=150, nano_usd_per_device_hour=NANO_USD)])
    dollars = [(price.from_ts, (price.nano_usd_per_device_hour or 0) / NANO_USD) for price in prices]
    assert dollars == [(50, 10), (100, 5), (150, 0.5), (200, 1)]
    assert "less 50 % negotiated with aws (contract 7)" in (prices[1].note or "") and prices[3].note == "list price"
    assert Discounts([HALF]).on_prices("gcp", [LIST]) == (LIST,)


def test_a_discount_from_before_the_list_price_applies_from_its_first_day() -> None:
    (price,) = Discounts([FIFTH]).on_prices("aws", [LIST])
    assert (price.from_ts, price.nano_usd_per_device_hour) == (50, 8 * NANO_USD)
    assert Discounts([FIFTH]).on_prices("aws", []) == ()


def test_offers_of_the_provider_alone_are_discounted() -> None:
    elsewhere = replace(OFFER, provider="gcp")
    aws, gcp = Discounts([HALF]).on_offers([OFFER, elsewhere], 150)
    assert aws.nano_usd_per_device_hour == 5 * NANO_USD and "negotiated" in aws.note
    assert gcp == elsewhere and Discounts([HALF]).on_offers([OFFER], 200) == (OFFER,)


@given(nano=st.integers(0, 100 * NANO_USD), part=st.integers(1, WHOLE), ts=st.integers(0, 300))
def test_a_discounted_price_is_never_negative_nor_above_the_list(nano: int, part: int, ts: int) -> None:
    known = Discounts([replace(HALF, millionths=part)])
    (price,) = {price for price in known.on_prices("aws", [replace(LIST, from_ts=ts, nano_usd_per_device_hour=nano)])
                if price.from_ts == ts}  # fmt: skip
    paid = price.nano_usd_per_device_hour
    assert paid is not None and 0 <= paid <= nano
    assert (paid == nano) or known.at("aws", ts) is not None
