"""Sizing before deployment: the serving model, list prices and whole instances, without any host."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pertoken.catalog.market import Market, load_market
from pertoken.catalog.offers import Offer
from pertoken.errors import BadInput
from pertoken.forecast.latency import Latency, latencies
from pertoken.savings.size import (
    NO_MEMORY,
    Rented,
    SizedWorkload,
    Sizing,
    at,
    cheapest,
    ends,
    fewest_replicas,
    figures,
    formats,
    known_model,
    layouts,
    plain,
    size,
)
from pertoken.state.deployment import Deployment, Model
from pertoken.state.service import Slo

MARKET = load_market()
LLAMA_8B, LLAMA_70B = (known_model(name, MARKET) for name in ("Llama-3.1-8B", "Llama-3.1-70B"))
CHAT = SizedWorkload(5, 1000, 250, Slo(ttft_p95_ms=800, tpot_p95_ms=60))
PROVIDERS = ("aws", "lambda", "bedrock")


def written(sizing: Sizing, today: date, stale_after_days: int) -> Any:
    return json.loads(json.dumps(plain(sizing, today, stale_after_days)))


@pytest.fixture(scope="module")
def sizing() -> Sizing:
    return size(LLAMA_70B, CHAT, MARKET, providers=PROVIDERS)


def one(model: Model, accelerator: str, tp: int, dtype: str, workload: SizedWorkload = CHAT) -> Deployment:
    device = MARKET.accelerator(accelerator)
    assert device is not None
    return next(layout for layout in layouts(model, [dtype], [device], workload, MARKET) if layout.tp == tp)


def offer(n_devices: int, usd: float, instance_type: str = "box") -> Offer:
    nano = round(usd * 1e9 / n_devices)
    return Offer("p", instance_type, "H100 SXM5", n_devices, "any", "on_demand", nano, date(2026, 11, 1), "list")


def in_four_bits(choice: Rented) -> bool:
    return choice.deployment.weight_dtype in ("int4", "fp4")


def test_four_bits_rank_before_eight_only_where_they_are_cheaper_by_more_than_15_percent() -> None:
    rented = size(LLAMA_8B, replace(CHAT, requests_per_s=0.5), MARKET).rented
    price = {choice: choice.nano_usd_per_mtok(CHAT)[1] for choice in rented}
    pairs = [
        (a, b) for place, a in enumerate(rented) for b in rented[place:] if in_four_bits(a) and not in_four_bits(b)
    ]
    assert pairs and all(price[b] >= 1.15 * price[a] * (1 - 1e-9) for a, b in pairs)


def test_choices_are_ranked_by_dollars_per_mtok_with_apis_among_them(sizing: Sizing) -> None:
    likely = [
        choice.nano_usd_per_mtok(CHAT)[1] * (1.15 if isinstance(choice, Rented) and in_four_bits(choice) else 1)
        for choice in sizing.choices
    ]
    assert likely == sorted(likely) and sizing.rented and sizing.serverless and sizing.nearest_miss is None
    assert {choice.offer.provider for choice in sizing.choices} <= set(PROVIDERS)


def test_dollars_per_mtok_are_whole_instances_over_all_tokens_by_hand(sizing: Sizing) -> None:
    assert CHAT.mtok_per_hour == pytest.approx(5 * 1250 * 3600 / 1e6)
    for rented in sizing.rented:
        count = rented.offer.instances_for(rented.replicas[1], rented.deployment.tp or 1)
        assert rented.nano_usd_per_mtok(CHAT)[1] == pytest.approx(count * rented.offer.nano_usd_per_hour / 22.5)
        assert rented.devices <= count * rented.offer.n_devices


def test_an_api_costs_its_mix_of_tokens_and_its_cache_the_low_end(sizing: Sizing) -> None:
    bedrock = sizing.serverless[0]
    assert bedrock.offer.provider == "bedrock"
    assert bedrock.nano_usd_per_mtok(CHAT) == (0.72e9, 0.72e9, 0.72e9)
    cached = replace(CHAT, cached_share=0.5)
    offered = replace(bedrock, offer=replace(bedrock.offer, input=1000, cached_input=100, output=4000))
    low, likely, high = offered.nano_usd_per_mtok(cached)
    assert (low, likely, high) == ((500 * 1000 + 500 * 100 + 250 * 4000) / 1250, 1600, 1600)


def test_three_replicas_of_one_device_take_one_instance_of_eight() -> None:
    deployment = one(LLAMA_8B, "H100 SXM5", 1, "bf16")
    assert offer(8, 80).instances_for(3, 1) == 1 and offer(8, 80).instances_for(9, 1) == 2
    assert offer(8, 80).instances_for(3, 4) == 2
    single, eight = offer(1, 20, "one"), offer(8, 80, "eight")
    assert cheapest(deployment, 3, [single, eight]) == single and cheapest(deployment, 5, [single, eight]) == eight
    assert cheapest(one(LLAMA_70B, "H100 SXM5", 4, "bf16"), 1, [single]) is None


def test_the_interval_of_dollars_is_of_the_replicas_at_both_ends(sizing: Sizing) -> None:
    for rented in sizing.rented:
        low, likely, high = rented.nano_usd_per_mtok(CHAT)
        assert (low or 0) <= likely <= (high or likely)
        assert rented.sure == (rented.replicas[2] == rented.replicas[1])
    assert any(rented.nano_usd_per_mtok(CHAT)[2] is None for rented in sizing.rented), (
        "of some the slow end holds nothing"
    )


def test_replicas_that_are_sure_hold_the_slo_at_the_slow_end_and_others_do_not(sizing: Sizing) -> None:
    for rented in sizing.rented:
        ttft, tpot = rented.figures.ttft_p95_ms, rented.figures.tpot_p95_ms
        # The count holds shares of requests, and the figure is a quantile between two of its points: a small margin.
        assert ttft[1] <= 800 * 1.05 and tpot[1] <= 60 * 1.05
        if rented.sure:
            assert ttft[2] is not None and tpot[2] is not None and ttft[2] <= 800 * 1.05 and tpot[2] <= 60 * 1.05
        else:
            assert ttft[2] is None or tpot[2] is None or ttft[2] > 800 * 0.95 or tpot[2] > 60 * 0.95


def test_likely_latency_is_that_of_the_serving_model_and_an_idle_device_s_ends_are_its_published_error() -> None:
    deployment = one(LLAMA_8B, "H100 SXM5", 1, "bf16")
    (predicted,) = figures([(deployment, 1)], CHAT, MARKET)
    (plainly,) = latencies([at(CHAT, deployment, 1)], MARKET)
    assert predicted is not None and isinstance(plainly, Latency) and plainly.ttft_p95_ms is not None
    assert predicted.ttft_p95_ms[1] == plainly.ttft_p95_ms[1]
    idle = replace(CHAT, requests_per_s=1e-6)
    (alone,) = figures([(deployment, 1)], idle, MARKET)
    fast, likely, slow = ends()
    assert alone is not None and alone.ttft_p95_ms[2] is not None
    assert alone.ttft_p95_ms[2] / alone.ttft_p95_ms[1] == pytest.approx(slow.latency, rel=1e-3)
    assert fast.time * slow.time == pytest.approx(1) and likely.time == 1 and slow.latency > slow.time > 1


def test_more_requests_never_take_fewer_replicas_and_a_tighter_slo_never_either() -> None:
    some = [one(LLAMA_8B, "H100 SXM5", 1, "bf16"), one(LLAMA_8B, "L40S", 1, "fp8")]
    busier, tighter = replace(CHAT, requests_per_s=40), replace(CHAT, slo=Slo(ttft_p95_ms=400, tpot_p95_ms=30))
    for now, busy, tight in zip(
        *(fewest_replicas(some, workload, MARKET) for workload in (CHAT, busier, tighter)), strict=True
    ):
        for n, m, k in zip(now, busy, tight, strict=True):
            assert n is not None and (m is None or m >= n) and (k is None or k >= n)


def test_nothing_that_holds_the_slo_leaves_the_nearest_miss() -> None:
    sizing = size(LLAMA_70B, replace(CHAT, slo=Slo(ttft_p95_ms=5)), MARKET, providers=["lambda"])
    assert not sizing.rented and sizing.nearest_miss is not None and sizing.nearest_miss.over > 1
    assert sizing.nearest_miss.figures is not None
    assert sizing.nearest_miss.figures.ttft_p95_ms[1] == pytest.approx(5 * sizing.nearest_miss.over)
    dearer = size(LLAMA_70B, replace(CHAT, slo=Slo(ttft_p95_ms=5)), MARKET, providers=["bedrock"])
    assert dearer.serverless and not dearer.rented and dearer.nearest_miss is None


def test_more_requests_than_the_most_replicas_serve_leave_the_one_that_serves_most() -> None:
    sizing = size(LLAMA_8B, replace(CHAT, requests_per_s=1e5), MARKET, providers=["lambda"], dtypes=["fp8"])
    assert sizing.nearest_miss is not None and sizing.nearest_miss.figures is None and sizing.nearest_miss.over > 1
    assert written(sizing, date(2026, 11, 22), 90)["nearest_miss"]["ttft_p95_ms"] is None


def test_layouts_begin_where_the_weights_fit_and_formats_are_those_the_device_computes_in() -> None:
    h100, a100, v100 = (MARKET.accelerator(name) for name in ("H100 SXM5", "A100 80GB SXM4", "V100 SXM2 32GB"))
    assert h100 is not None and a100 is not None and v100 is not None
    assert formats(h100) == ("bf16", "fp8", "int4") and formats(a100) == ("bf16", "int8", "int4")
    assert formats(v100)[0] == "fp16"
    assert [layout.tp for layout in layouts(LLAMA_70B, ["bf16"], [h100], CHAT, MARKET)] == [2, 4, 8]
    tight = size(LLAMA_70B, replace(CHAT, prompt_len=60_000), MARKET, providers=["lambda"], dtypes=["fp8"])
    assert tight.left_out[NO_MEMORY] > 0


def test_a_format_that_the_engine_does_not_run_on_a_device_is_left_out_with_its_reason() -> None:
    volta = [device.name for device in MARKET.accelerators if device.arch == "Volta"]
    for dtypes in (None, ["int4"]):
        sizing = size(LLAMA_8B, CHAT, MARKET, dtypes=dtypes)
        assert not [choice for choice in sizing.rented if choice.deployment.accelerator in volta]
        assert sizing.left_out["no source lists that vllm runs int4 weights on Volta"] > 0
        combinations = [choice.deployment for choice in sizing.rented]
        assert all(MARKET.not_run(now.engine, now.weight_dtype, now.accelerator) is None for now in combinations)


def test_below_the_break_even_share_the_api_costs_as_much_as_the_devices(sizing: Sizing) -> None:
    share = sizing.break_even
    assert share is not None
    (_, devices, _), (_, api, _) = (
        rented.nano_usd_per_mtok(CHAT) for rented in (sizing.rented[0], sizing.serverless[0])
    )
    assert devices / share == pytest.approx(api)
    assert size(LLAMA_70B, CHAT, MARKET, providers=["lambda"], dtypes=["fp8"]).break_even is None


def test_a_model_that_is_not_known_is_refused_with_near_names_and_how_to_describe_it() -> None:
    with pytest.raises(BadInput, match=r"near: meta-llama/Llama-3\.1-8B.*config\.json"):
        known_model("acme/llama-3.1-8", MARKET)
    with pytest.raises(BadInput, match=r"catalog of models\. For another"):
        known_model("zzz", MARKET)


def test_json_has_every_choice_with_the_source_of_its_price(sizing: Sizing) -> None:
    values = written(sizing, date(2026, 11, 22), 90)
    assert len(values["choices"]) == len(sizing.choices) and values["holds_slo"]
    assert all(choice["price"]["source"] and choice["price"]["as_of"] for choice in values["choices"])
    best = next(choice for choice in values["choices"] if choice["kind"] == "rented")
    first = next(choice for choice in sizing.choices if isinstance(choice, Rented))
    assert best["usd_per_mtok"]["likely"] == first.nano_usd_per_mtok(CHAT)[1] / 1e9
    assert best["slo"] in ("sure", "likely") and best["replicas"]["likely"] == first.replicas[1]
    missed = written(
        size(LLAMA_70B, replace(CHAT, slo=Slo(ttft_p95_ms=5)), MARKET, providers=["lambda"]), date.today(), 90
    )
    assert not missed["holds_slo"] and missed["nearest_miss"]["over"] > 1


def test_an_empty_market_has_nothing_to_rent() -> None:
    nothing: Market = replace(MARKET, all_offers=())
    sizing = size(LLAMA_70B, CHAT, nothing, providers=["aws"])
    assert (sizing.choices, sizing.nearest_miss, sizing.left_out, sizing.break_even) == ((), None, {}, None)
