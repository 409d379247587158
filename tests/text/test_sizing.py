from dataclasses import asdict, replace
from datetime import date

from pertoken.catalog.market import load_market
from pertoken.savings.size import SizedWorkload, known_model, plain, size
from pertoken.state.service import Slo
from pertoken.text.sizing import sizing_text

MARKET = load_market()
CHAT = SizedWorkload(5, 1000, 250, Slo(ttft_p95_ms=800, tpot_p95_ms=60))
SIZING = size(known_model("Llama-3.1-70B", MARKET), CHAT, MARKET, providers=["lambda", "bedrock"], dtypes=["fp8"])
DAY = date(2026, 11, 22)


def test_no_line_is_wider_than_the_terminal_and_the_price_s_source_is_named() -> None:
    for width in (60, 80, 120):
        text = sizing_text(SIZING, DAY, 90, width, 12)
        assert max(map(len, text.splitlines())) <= width
        assert "stale: listed up to" in " ".join(text.split()) and "skypilot-catalog" in text


def test_an_api_is_shown_however_many_devices_are_cheaper() -> None:
    text = sizing_text(SIZING, DAY, 90, None, 1)
    assert "API, by the token" in text and f"and {len(SIZING.choices) - 2} more expensive ones" in text
    assert "of this load on average, bedrock is cheaper" in " ".join(text.split())


def test_formats_below_16_bits_are_marked_for_evaluation() -> None:
    assert "can alter outputs" in " ".join(sizing_text(SIZING, DAY, 90, 80, 12).split())
    whole = size(SIZING.model, CHAT, MARKET, providers=["lambda"], dtypes=["bf16"])
    assert "can alter outputs" not in " ".join(sizing_text(whole, DAY, 90, 80, 12).split())


def test_more_requests_than_any_number_of_replicas_serves_is_the_miss_that_is_named() -> None:
    sizing = size(SIZING.model, replace(CHAT, requests_per_s=1e5), MARKET, providers=["lambda"], dtypes=["fp8"])
    assert "times their throughput." in " ".join(sizing_text(sizing, DAY, 90, 80, 12).split())


def test_without_a_price_or_a_fit_only_the_reasons_are_shown() -> None:
    nothing = size(SIZING.model, CHAT, MARKET, providers=["bedrock"])
    assert "No device has a price for these options." in sizing_text(nothing, DAY, 90, 80, 12)
    too_long = size(SIZING.model, replace(CHAT, prompt_len=3e6), MARKET, providers=["lambda"], dtypes=["fp8"])
    assert "No deployment on devices can be sized:" in sizing_text(too_long, DAY, 90, 80, 12)


def test_each_choice_on_devices_names_the_tier_of_its_forecast_and_the_cheapest_its_error_and_remedy() -> None:
    text = " ".join(sizing_text(SIZING, DAY, 90, None, 99).split())
    for choice in SIZING.rented:
        assert text.count(f" {choice.tier.name} ") >= sum(row.tier == choice.tier for row in SIZING.rented)
    assert f"{SIZING.rented[0].tier.words}"[:20] in text and "`pertoken probe` at the load in question lifts it" in text
    on_a100 = {row.tier.name for row in SIZING.rented if row.deployment.accelerator == "A100 80GB SXM4"}
    assert on_a100 == {"physics only"}, "its FP8 kernels ran for no public source"
    values = plain(SIZING, DAY, 90)["choices"]
    assert isinstance(values, list)
    rented = [choice["forecast"] for choice in values if choice["kind"] == "rented"]
    assert rented == [asdict(row.tier) for row in SIZING.rented]
