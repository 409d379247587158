"""Claims are checked with the catalog and the forecast: ten rows by hand, and what changes with a price or a rate."""

import csv
import json
import math
import re
from dataclasses import asdict, replace
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from pertoken.catalog.claims import Claim, claims
from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import Offer
from pertoken.claims import Case, CheckedClaim, checked, claims_table, claims_text, claims_values, number, value
from pertoken.forecast import served, serving
from pertoken.forecast.efficiency import efficiency
from pertoken.forecast.terms import TERMS
from pertoken.forecast.tiers import tiers
from pertoken.units import NANO_USD

MARKET: Market = load_market()
DOCS = Path(__file__).parents[2] / "docs"
BY_ID = {claim.id: claim for claim in claims()}


@cache
def row_of(claim_id: str) -> CheckedClaim:
    return checked(BY_ID[claim_id], MARKET)


def figures(claim_id: str, market: Market = MARKET) -> list[float]:
    """Return the likely figure of each case."""
    row = row_of(claim_id) if market is MARKET else checked(BY_ID[claim_id], market)
    return [case.figure[1] for case in row.cases if case.figure is not None]


@pytest.mark.parametrize(
    ("claim_id", "by_hand", "verdict"),
    [
        # $55.04 an hour, $98.32 before: 1 - 0.5598
        ("aws-cut", [0.4402], "holds here"),
        # 143,771 MiB * 1,048,576 * 0.9 = 135.7e9 bytes, over 141.2e9 of 16-bit weights, and over 70.6e9 of 8-bit ones
        ("h200-70b-fits", [0.961, 1.922], "holds under: FP8"),
        # 8,000 GB/s / 3,350; 10,000 TFLOP/s in FP4 / 1,979 in FP8; 15,000 / 1,979
        ("blackwell-30", [2.388, 5.053, 7.580], "does not hold: it is less"),
        # 3,350 / 2,039
        ("h100-a100-bandwidth", [1.643], "holds here"),
        # 2 bytes * 68.98e9; 4 bytes * 68.98e9
        ("llama2-70b-bytes", [137.96, 275.9], "holds under: FP16"),
        # 4 bits of 32; 4 of 16; 4.25 of 16
        ("gptq-bytes", [0.875, 0.75, 0.7344], "holds under: against FP32"),
        # 64 query heads on 8; on 1
        ("mqa", [8, 64], "holds under: Llama 3.3 70B, grouped"),
        # 0.85 / 0.5; 0.85 / 0.4
        ("edge-use", [1.7, 2.125], "holds here"),
        # 1e9 tokens * $0.001 * 365
        ("billion-tokens", [365e6], "holds here"),
        # $18,000 / 24 h / ($27.447 / 8) for a device-hour
        ("spotify-a100s", [218.6], "does not hold: it is more"),
        # 200 bytes * 1e6 tokens = 0.2 GB * $0.09 = $0.018, over $0.72
        ("egress", [0.025], "does not hold: it is less"),
        # 0.96 / 0.382; 0.96 / 0.204; both times 64 query heads on 8
        ("ten-times-users", [2.513, 4.706, 20.1, 37.65], None),
        # (1.56 - 1.1) * 0.7 kW * $0.08 over $6.88 an hour; 1.56 * 0.7 kW * $0.08 over the same
        ("central-25", [0.00374, 0.0127], "does not hold: it is less"),
        # 1 - 3,350e9 / 989e12; 1 - 2,039e9 / 312e12
        ("idle-products", [0.9966, 0.9935], "does not hold: it is more"),
    ],
)
def test_a_row_gives_what_a_calculator_gives(claim_id: str, by_hand: list[float], verdict: str | None) -> None:
    """`verdict`: None where it depends on each of the cases."""
    row = row_of(claim_id)
    assert figures(claim_id) == pytest.approx(by_hand, rel=2e-3)
    assert row.verdict == verdict or (verdict is None and row.verdict.startswith("depends on: "))


@pytest.mark.parametrize(
    ("claim_id", "by_hand"),
    [
        # 32 requests at once for about one step of one: at most 1 - 1/32, less what caches and prefill add
        ("batch-32-cost", [(0.93, 0.969), (0.93, 0.969)]),
        # 138 / 70.6 GB of bytes are 0.51 of the time at best; the cache and overheads remain
        ("quantize-75-fp8", [(0.13, 0.45), (0.05, 0.42)]),
        # 4.25 bits of 16 are 0.27 of the reading; saturated, unpacking costs more than it saves
        ("quantize-75-int4", [(0.17, 0.57), (-0.54, 0.24)]),
        # bandwidth 3,350 / 2,039 = 1.64 at best alone; GEMMs 989 / 312 = 3.17 at best saturated
        ("h100-a100-speed", [(1.1, 1.65), (1.3, 3.17), (1.1, 1.65), (1.3, 3.17)]),
        # 16 times the tokens, and attention with a square: 16 < x < 256, nearer to the first
        ("128k-prefill", [(25, 80), (25, 80)]),
        # the cache is linear: 8,193 / 131,073
        ("128k-sequences", [(0.0624, 0.0626), (0.0624, 0.0626)]),
        # 1 + 0.7 + 0.49 + 0.343 = 2.53 tokens for a step that verifies four
        ("speculation", [(1.4, 2.53), (0.5, 1.25)]),
        # price 7.91 / 6.88 of half as many devices: 0.575 over a rate of 0.65 to 0.92
        ("h200-cost", [(0.1, 0.38), (0.1, 0.38)]),
        # one device for four: 70.6 / 8.03 = 8.8 times the bytes of a fourth as many devices each, little to exchange
        ("size-step", [(0.5, 1.3), (0.5, 1.3)]),
        # 2e9 / 86,400 / 1,400 = 16.5 requests/s: one to three p5.48xlarge at $55.04 * 720 h
        ("shopify-bill", [(0.5 * 39_629, 3 * 39_629), (0.1 * 39_629, 39_629)]),
    ],
)
def test_a_forecast_lies_where_arithmetic_by_hand_puts_it(claim_id: str, by_hand: list[tuple[float, float]]) -> None:
    computed = figures(claim_id)
    assert len(computed) == len(by_hand)
    for likely, (low, high) in zip(computed, by_hand, strict=True):
        assert low <= likely <= high, claim_id


def test_arithmetic_over_forecasts_has_their_interval_and_tier_and_the_catalog_has_none() -> None:
    for claim in claims():
        for case in row_of(claim.id).cases if claim.check == "arithmetic" else ():
            assert case.figure is not None
            low, likely, high = case.figure
            uncertain = any(name in claim.cases[case.words] for name in ("tok_s(", "rented_usd", "accuracy_lost"))
            assert (low < high) == uncertain and low <= likely <= high, claim.id
            assert (case.tier is not None) == (uncertain and "accuracy_lost" not in claim.cases[case.words]), claim.id


def test_errors_of_two_forecasts_add_in_quadrature_and_one_forecast_named_twice_is_one() -> None:
    alone, busy = (f'tok_s("meta-llama/Llama-3.1-8B", "H100 SXM5", 1, "bf16", {running})' for running in (1, 64))
    low, likely, high = value(alone, MARKET).range
    other = value(busy, MARKET).range
    assert value(f"{alone} + {busy}", MARKET).range[2] == pytest.approx(
        likely + other[1] + math.hypot(high - likely, other[2] - other[1])
    )
    assert value(f"{alone} / {alone}", MARKET).range == (1, 1, 1)
    assert value(f"10 - {alone}", MARKET).range == pytest.approx((10 - high, 10 - likely, 10 - low))


def test_every_claim_that_is_checkable_has_a_figure_and_the_rest_a_reason() -> None:
    without_figure = {claim.id for claim in claims() if claim.check != "not checkable" and not figures(claim.id)}
    assert without_figure <= {"azure-spot", "gcp-committed-h200"}, "their lists have no such price"


def test_each_statement_of_the_two_articles_is_a_row_of_the_table() -> None:
    """Each of 81 statements of one article and 27 of the other has a row, with a verdict or a reason why not."""
    with (Path(__file__).parent / "statements.csv").open(newline="", encoding="utf-8") as file:
        statements = list(csv.DictReader(file))
    for article, count in (("introl", 81), ("datacamp", 27)):
        numbers = [int(row["statement"]) for row in statements if row["article"] == article]
        assert numbers == list(range(1, count + 1))
    named = [(claim_id, row["article"]) for row in statements for claim_id in row["claims"].split()]
    assert {claim_id for claim_id, _ in named} == set(BY_ID) - {"flash-attention"}
    for claim_id, article in named:
        assert BY_ID[claim_id].source.casefold().startswith(article), claim_id
        row = row_of(claim_id)
        assert row.verdict != "not checkable" or row.claim.why, claim_id


def test_a_changed_constant_of_the_forecast_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step whose weights take twice as long changes each figure of a forecast; one of data sheets stays."""
    rows = [BY_ID[name] for name in ("batch-32-latency", "quantize-75-fp8", "size-step", "gptq-bytes")]
    before = [claims_table([checked(claim, MARKET)]) for claim in rows]
    slower = replace(
        efficiency(), base=efficiency().base + math.log(2) * (np.arange(len(TERMS)) == TERMS.index("weights"))
    )
    for module in (serving, served):
        monkeypatch.setattr(module, "efficiency", lambda: slower)
    after = [claims_table([checked(claim, MARKET)]) for claim in rows]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True, True, False]


def test_a_changed_price_changes_the_page() -> None:
    dearer = tuple(
        replace(offer, nano_usd_per_device_hour=2 * offer.nano_usd_per_device_hour) for offer in MARKET.all_offers
    )
    for name in ("h100-rent", "aws-cut", "graviton4", "own-saves-75", "spotify-a100s", "central-25"):
        tables = {
            claims_table([checked(BY_ID[name], market)]) for market in (MARKET, replace(MARKET, all_offers=dearer))
        }
        assert len(tables) == 2, name


def test_a_changed_price_changes_the_verdict() -> None:
    ratio = checked(BY_ID["h100-a100-price"], MARKET).verdict
    h100, a100 = (
        Offer("lambda", f"test-{name}", name, 1, "any", "on_demand", usd * NANO_USD, date(2026, 11, 1), "test")
        for name, usd in (("H100 SXM5", 25), ("A100 80GB SXM4", 10))
    )
    alone = replace(MARKET, all_offers=(h100, a100))
    assert ratio == "holds under: gcp"
    assert checked(BY_ID["h100-a100-price"], alone).verdict == "holds here"


def test_a_cost_is_the_price_ratio_over_the_rate_ratio() -> None:
    """An H100 that costs as much as an A100 saves what it is faster by."""
    equal = tuple(
        Offer("lambda", name, name, 1, "any", "on_demand", NANO_USD, date(2026, 11, 1), "test")
        for name in ("H100 SXM5", "A100 80GB SXM4")
    )
    speeds = figures("h100-a100-speed")[:2]
    costs = figures("h100-a100-cost", replace(MARKET, all_offers=equal))[:2]
    assert costs == pytest.approx([1 - 1 / speed for speed in speeds])


def test_a_device_without_an_offer_is_not_compared_by_price() -> None:
    result = checked(BY_ID["mi300x-cost"], replace(MARKET, all_offers=()))
    assert result.verdict == "not checkable"
    assert {case.missing for case in result.cases} == {"no provider lists both H100 SXM5 and MI300X"}


CLAIM: Claim = replace(BY_ID["edge-use"], claimed=(2.0, 3.0))


@pytest.mark.parametrize(
    ("likely", "verdict"),
    [
        ((2.5, 2.9), "holds here"),
        ((2.5, 9.0), "holds under: a"),
        ((1.0, 9.0), "depends on: a; b"),
        ((1.0, 1.1), "does not hold: it is less"),
        ((8.0, 9.0), "does not hold: it is more"),
    ],
)
def test_a_verdict_follows_from_the_cases(likely: tuple[float, float], verdict: str) -> None:
    cases = tuple(Case(words, (size, size, size)) for words, size in zip("ab", likely, strict=True))
    assert CheckedClaim(CLAIM, cases).verdict == verdict


def test_a_wide_interval_does_not_make_a_claim_hold_that_is_far_from_the_likely_figure() -> None:
    assert not Case("a", (1.0, 5.0, 9.0)).meets((8.5, 8.5))
    assert Case("a", (1.0, 5.0, 9.0)).meets((6.5, 6.5))


def test_a_bound_is_met_without_rounding() -> None:
    assert not Case("a", (0.97, 0.97, 0.97)).meets((1, math.inf))


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "params.x", "[1]", "(lambda: 1)()", "memory('no such device')"]
)
def test_an_expression_is_nothing_but_arithmetic_over_the_catalog(expression: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        value(expression, MARKET)


def test_text_and_json_have_the_verdict_the_figure_and_the_source() -> None:
    rows = [(checked(BY_ID["batch-32-cost"], MARKET), ())]
    text, (values,) = claims_text(rows), json.loads(json.dumps(claims_values(rows)))
    assert "does not hold: it is more. Weights are read once" in text and "Introl" in text and "% less" in text
    assert values["verdict"] == "does not hold: it is more" and values["cases"][0]["tier"] == "stated"
    stated = tiers()["stated"]
    assert values["cases"][0]["forecast"] == asdict(stated)
    assert " ".join(text.split()).endswith(stated.words) and stated.lifted_by == "pertoken probe"
    assert "lifts it" not in claims_text([(checked(BY_ID["mi300x-memory"], MARKET), ())])


def test_json_has_no_infinity() -> None:
    (values,) = claims_values([(checked(BY_ID["7b-fits"], MARKET), ())])
    assert values["claimed"] == [1, None]
    json.dumps(values, allow_nan=False)


def test_a_cost_that_rises_is_shown_as_more() -> None:
    assert (number(0.284, "less"), number(-0.2, "less"), number(1.437, "times")) == ("28 % less", "20 % more", "1.44")


def test_the_page_has_every_claim() -> None:
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert [claim.id for claim in claims() if f"| {claim.text} |" not in page] == []


def test_the_page_is_made_of_the_present_verdicts() -> None:
    table = claims_table(row_of(claim.id) for claim in claims())
    assert table in (DOCS / "claims.md").read_text(encoding="utf-8")
    no_prices = replace(MARKET, all_offers=())
    assert claims_table(checked(BY_ID[name], no_prices) for name in ("mi300x-cost", "h100-rent")).count("|  |") == 1


def test_a_claim_of_the_questions_page_is_one_that_does_not_hold_as_stated() -> None:
    questions = (DOCS / "faq.md").read_text(encoding="utf-8").split("## Claims")[1]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", questions, re.M)[1:]
    assert len(rows) >= 8
    for row in rows:
        matches = [claim for claim in claims() if claim.text.startswith(row)]
        assert matches and all(row_of(claim.id).verdict != "holds here" for claim in matches), row


def test_a_model_is_compared_with_itself_or_not_at_all() -> None:
    """A price per token is that of the model whose cost stands beside it."""
    for claim in claims():
        for expression in claim.cases.values():
            priced = re.findall(r'usd_per_mtok\("\w+", "([^"]+)"\)', expression)
            served = re.findall(r'(?:tok_s|rented_usd_per_hour)\("(?:[\w-]+/)?([^"]+)"', expression)
            assert not served or set(priced) <= set(served), claim.id
    for about in ("bedrock-llama2", "gaudi3-cost"):
        assert checked(BY_ID[about], MARKET).verdict == "not checkable"
