import csv
from datetime import date
from importlib.resources import files
from pathlib import Path
from statistics import median

import pytest

from pertoken.catalog.coverage import CPU, priced_names
from pertoken.catalog.market import load_market
from pertoken.catalog.offers import PURCHASES, RESERVED_YEARS, newest
from pertoken.state.deployment import Model
from pertoken.units import NANO_USD

MARKET = load_market()


def rows(name: str) -> list[dict[str, str]]:
    with files("pertoken.catalog").joinpath(name).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("name", ["accelerators.csv", "prices.csv", "models.csv"])
def test_every_row_names_its_source_and_a_date_that_is_not_ahead(name: str) -> None:
    for row in rows(name):
        assert row["source"].strip(), row
        assert date(2020, 1, 1) <= date.fromisoformat(row["as_of"]) <= date(2026, 11, 28), row


def test_no_row_has_more_or_fewer_cells_than_columns() -> None:
    for name in ("accelerators.csv", "prices.csv", "models.csv"):
        assert all(None not in row and None not in row.values() for row in rows(name))


def test_every_offer_is_of_a_listed_accelerator_and_none_is_listed_twice() -> None:
    names = priced_names(accelerator.name for accelerator in MARKET.accelerators)
    keys = [(*offer.key, offer.as_of) for offer in MARKET.all_offers]
    assert {offer.accelerator for offer in MARKET.all_offers} <= names
    assert len(keys) == len(set(keys))


def test_prices_are_per_device_hour_and_in_a_plausible_range() -> None:
    assert all(NANO_USD // 20 < o.nano_usd_per_device_hour < 35 * NANO_USD for o in MARKET.all_offers)
    assert {o.purchase for o in MARKET.all_offers} == set(PURCHASES)


def test_spot_and_commitments_are_below_on_demand_wherever_both_are_listed_for_one_instance() -> None:
    prices = {offer.key: offer for offer in newest(MARKET.all_offers)}
    below = ("spot", *RESERVED_YEARS)
    both = [key for key in prices if key[3] in below and (*key[:3], "on_demand") in prices]
    assert len(both) > 150
    for key in both:
        on_demand = prices[*key[:3], "on_demand"]
        assert prices[key].nano_usd_per_device_hour < on_demand.nano_usd_per_device_hour, key


def test_accelerators_have_units_that_make_sense() -> None:
    for accelerator in MARKET.accelerators:
        assert 14e9 < accelerator.memory_bytes < 320e9, accelerator.name
        assert 2e11 <= accelerator.memory_bytes_per_s <= 8e12, accelerator.name
        assert 6e13 < accelerator.fp16_flops < 3e15, accelerator.name
        assert accelerator.fp8_flops is None or accelerator.fp8_flops >= accelerator.fp16_flops, accelerator.name
        assert accelerator.fp4_flops is None or (accelerator.fp8_flops or 0) < accelerator.fp4_flops, accelerator.name


def test_no_two_accelerators_are_reported_under_one_name() -> None:
    names = [name.casefold() for accelerator in MARKET.accelerators for name in accelerator.reported_names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM4"),
        ("AMD_Instinct_MI300X_OAM", "MI300X"),
        ("H200 SXM", "H200 SXM"),
    ],
)
def test_an_accelerator_is_found_by_what_its_driver_reports(reported: str, name: str) -> None:
    accelerator = MARKET.accelerator(reported)
    assert accelerator is not None and accelerator.name == name


@pytest.mark.parametrize("reported", [None, "", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA Quadro 9000"])
def test_a_slice_or_an_unlisted_device_is_not_taken_for_a_whole_one(reported: str | None) -> None:
    assert MARKET.accelerator(reported) is None


def test_the_driver_s_memory_is_used_and_not_the_one_it_is_sold_with() -> None:
    h100 = MARKET.accelerator("NVIDIA H100 80GB HBM3")
    assert h100 is not None and h100.memory_bytes == 81_559 * 2**20


@pytest.mark.parametrize(
    ("served", "name"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B"),
        ("/models/Meta-Llama-3.1-8B-Instruct-FP8/", "meta-llama/Llama-3.1-8B"),
        ("/srv/Qwen2.5-7B-Instruct-Q4_K_M.gguf", "Qwen/Qwen2.5-7B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
    ],
)
def test_a_model_is_found_by_name_alias_path_and_quantized_copy(served: str, name: str) -> None:
    model = MARKET.model(served)
    assert model is not None and model.name == name and model.known


def test_an_unknown_model_has_no_shape() -> None:
    assert MARKET.model("acme/secret-70B") is None


def test_mixture_models_carry_their_experts_and_dense_ones_do_not() -> None:
    for row in rows("models.csv"):
        model = MARKET.model(row["name"])
        assert model is not None and model.known
        assert (model.params_active != model.params_total) == (model.n_experts is not None), row["name"]


def test_each_model_of_the_catalog_is_listed_once_with_its_family() -> None:
    names = [model.name for model in MARKET.models]
    assert names == sorted(set(names)) and "Qwen/Qwen3-30B-A3B" in names
    llama = MARKET.model("Llama-3.3-70B")
    assert llama is not None and MARKET.family(llama) == "Llama 3"
    assert MARKET.family(Model("secret")) is None


def test_smaller_models_are_of_the_same_family() -> None:
    llama, qwen = MARKET.model("Llama-3.3-70B"), MARKET.model("Qwen/Qwen3-0.6B")
    assert llama is not None and qwen is not None
    assert [smaller_model.name for smaller_model in MARKET.smaller_models(llama)][:1] == ["meta-llama/Llama-3.1-8B"]
    assert MARKET.smaller_models(qwen) == ()


def test_offers_can_be_limited_to_a_provider_and_region() -> None:
    market = load_market(provider="AWS", region="us-east-1")
    assert {(o.provider, o.region) for o in market.all_offers} == {("aws", "us-east-1")}
    assert load_market(provider="lambda", region="us-east-1").offers("H100 SXM5")


def test_offers_are_cheapest_first() -> None:
    offers = MARKET.offers("H100 SXM5")
    assert [o.nano_usd_per_device_hour for o in offers] == sorted(o.nano_usd_per_device_hour for o in offers)


def test_an_offer_knows_its_age() -> None:
    offer = MARKET.offers("L40S")[0]
    assert offer.age_days(offer.as_of) == 0
    assert offer.age_days(date(2026, 11, 21)) > MARKET.stale_after_days


def test_on_demand_prices_of_one_accelerator_at_one_provider_are_of_one_order() -> None:
    by_accelerator: dict[tuple[str, str], list[int]] = {}
    for offer in newest(MARKET.all_offers):
        if offer.purchase == "on_demand" and offer.accelerator != CPU:
            by_accelerator.setdefault((offer.provider, offer.accelerator), []).append(offer.nano_usd_per_device_hour)
    for accelerator, prices in by_accelerator.items():
        assert median(prices) / 5 < min(prices) and max(prices) < 5 * median(prices), accelerator


def test_a_commitment_and_its_on_demand_price_are_of_one_instance_and_region() -> None:
    offers = newest(MARKET.all_offers)
    on_demand = {offer.key[:3] for offer in offers if offer.purchase == "on_demand"}
    committed = [offer for offer in offers if offer.provider == "gcp" and offer.purchase in RESERVED_YEARS]
    both = {offer.accelerator for offer in committed if offer.key[:3] in on_demand}
    assert both == {"H100 SXM5", "A100 40GB SXM4"}


def test_each_family_that_was_missing_spot_prices_has_them_in_three_regions() -> None:
    spot = {offer.key[1:3] for offer in MARKET.all_offers if offer.purchase == "spot" and offer.provider == "aws"}
    for family in ("g5", "g6", "g6e"):
        for region in ("us-east-1", "us-east-2", "us-west-2"):
            assert {(f"{family}.xlarge", region), (f"{family}.48xlarge", region)} <= spot


def test_the_page_of_prices_names_every_list_that_a_row_comes_from() -> None:
    page = (Path(__file__).parents[2] / "docs" / "prices.md").read_text()
    lists = {row["source"] for name in ("prices.csv", "token_prices.csv") for row in rows(name)}
    for source in lists:
        name = source.partition(" (")[0].partition(" of ")[0].partition(" in ")[0].split("@")[0]
        repository = next(iter(name.split()))
        assert name in page or repository in page or f"skypilot-org/{repository}" in page, source


def test_ranks_are_tried_from_the_fewest_that_hold_the_weights_to_a_whole_server() -> None:
    market = load_market()
    h100, llama = market.accelerator("H100 SXM5"), market.model("Llama-3.3-70B")
    assert h100 is not None and llama is not None
    assert market.ranks(llama, "fp8", h100) == (1, 2, 4, 8)
    assert market.ranks(llama, "bf16", h100)[0] == market.fewest_ranks(llama, "bf16", h100)
    assert market.ranks(llama, None, h100) == ()
