"""Prices by each headline: of one deployment, and of several whose parts are known."""

import pytest

from pertoken.costs.ledger import NOTHING, ServedCost, together
from pertoken.metrics import FIGURES, HEADLINES
from pertoken.settings import fleet

CHAT = ServedCost(2_000_000_000, 900_000, 100_000, 500, 0.5)


@pytest.mark.parametrize(
    ("headline", "nano_usd"),
    [("blended", 2e9), ("generated", 20e9), ("per_request", 4e9), ("good", 4e9)],
)
def test_each_headline_divides_the_same_dollars(headline: str, nano_usd: float) -> None:
    assert CHAT.price(headline) == nano_usd
    assert together([CHAT, CHAT]).price(headline) == nano_usd
    assert NOTHING.price(headline) is None
    assert CHAT._replace(nano_usd=None).price(headline) is None


def test_a_price_whose_parts_are_unknown_or_nought_is_unknown() -> None:
    bare = ServedCost(1, 10, 0, 0, 0.0)
    assert [bare.price(name) for name in ("generated", "per_request", "good")] == [None] * 3
    assert CHAT._replace(requests=None).price("per_request") is None
    assert CHAT._replace(good_share=None).price("good") is None
    assert CHAT._replace(prompt_tokens=None).price("good") is None


def test_several_have_requests_and_good_ones_only_if_each_counts_them() -> None:
    both = together([CHAT, CHAT._replace(requests=None, good_share=None)])
    assert both == ServedCost(4_000_000_000, 1_800_000, 200_000, None, None)
    mixed = together([CHAT, CHAT._replace(good_share=1.0)])
    assert mixed.good_share == 0.75 and mixed.requests == 1000


def test_encoders_are_left_out_beside_models_that_generate() -> None:
    encoder = ServedCost(5, 10, 0, 3)
    assert together([CHAT, encoder]) == CHAT
    assert together([encoder, encoder]) == ServedCost(10, 20, 0, 6)
    assert together([CHAT, CHAT._replace(nano_usd=None)]) == CHAT
    assert together([]) == NOTHING


def test_the_settings_know_every_headline_and_each_is_a_figure_of_gates() -> None:
    assert tuple(HEADLINES) == fleet.HEADLINES
    assert {spec.figure for spec in HEADLINES.values()} <= set(FIGURES)
