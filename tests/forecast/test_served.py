"""Deployments resolved: images of their requests, and what a host, a mixture and an old engine add to a step."""

from dataclasses import replace

import numpy as np
import pytest

from pertoken.forecast.efficiency import efficiency, steady, tag_names
from pertoken.forecast.served import image_flops, images_tag, resolve
from pertoken.forecast.serving import forecast
from pertoken.forecast.terms import TERMS, seconds
from pertoken.state.deployment import Placement
from tests.forecast.builders import CHAT, LLAMA_8B, LLAMA_70B, MARKET, MOE, at, model, ratio

SEEING = replace(LLAMA_8B, model=model("Qwen/Qwen3-VL-8B"))
PICTURES = replace(CHAT, images=1.0)


def request_factor(images: float) -> float:
    """Time of a request over that of one without images."""
    one = efficiency().by_tag[tag_names().index("images"), TERMS.index("requests")]
    return float(np.exp(one * images_tag(images)))


def test_each_image_adds_as_much_time_to_a_request() -> None:
    assert request_factor(0.5) - 1 == pytest.approx((request_factor(1) - 1) / 2)
    assert request_factor(3) - 1 == pytest.approx(3 * (request_factor(1) - 1))
    assert images_tag(1.0) == pytest.approx(1.0)


def test_images_slow_a_deployment_down() -> None:
    plain, seen = (at(SEEING, load).saturated for load in (CHAT, PICTURES))
    assert plain is not None and seen is not None and seen.tok_s[1] < 0.9 * plain.tok_s[1]


def test_narrow_weights_gain_less_where_requests_have_images() -> None:
    busy = replace(CHAT, running=32)
    plain, seen = (ratio(SEEING, SEEING.but(weight_dtype="fp8"), load) for load in (busy, replace(busy, images=1.0)))
    assert 1 < seen[1] < plain[1]


def test_an_unknown_encoder_is_taken_as_a_typical_one_and_named_as_an_assumption() -> None:
    typical = image_flops("meta-llama/Llama-3.1-8B", PICTURES)
    assert image_flops("pixtral-12b", PICTURES) / 3 < typical < 3 * image_flops("Qwen3-VL-8B", PICTURES)
    assert image_flops("Qwen/Qwen3-VL-8B-Instruct", CHAT) == 0
    assert resolve([LLAMA_8B], [PICTURES], MARKET).tags[0, tag_names().index("images")] > 0
    (named,) = [text for text in at(LLAMA_8B, PICTURES).assumptions if "median of known encoders" in text]
    assert f"takes {typical / 1e12:.2g} TFLOP" in named
    for known in (at(SEEING, PICTURES), at(LLAMA_8B, CHAT)):
        assert not any("encoders" in text for text in known.assumptions)


def test_weights_in_8_bits_gain_less_beside_images_of_an_unknown_encoder() -> None:
    busy = replace(CHAT, running=32)
    plain, seen = (
        ratio(LLAMA_8B, LLAMA_8B.but(weight_dtype="fp8"), load) for load in (busy, replace(busy, images=1.0))
    )
    assert 1 < seen[1] < plain[1]


def test_a_larger_image_takes_more_than_its_share_of_work() -> None:
    small, large = (image_flops("Qwen3-VL-8B", replace(PICTURES, image_size=(side, side))) for side in (1024, 2048))
    assert large > 4 * small


@pytest.mark.parametrize(
    ("version", "faster"), [("0.13.2", False), ("0.14.0", True), ("0.32.1rc1", True), ("v1.0.0", True), (None, False)]
)
def test_a_vllm_that_schedules_beside_the_device_takes_less_time_for_each_layer(
    version: str | None, faster: bool
) -> None:
    usual, versioned = (
        forecast(replace(LLAMA_8B, engine_version=named), replace(CHAT, running=8), MARKET).running
        for named in ("0.9.1", version)
    )
    assert usual is not None and versioned is not None
    assert (versioned.tok_s[1] > 1.05 * usual.tok_s[1]) is faster


def test_hidden_states_between_pipeline_stages_take_link_time() -> None:
    split = replace(LLAMA_70B, tp=1, pp=8)
    links = []
    for placement in ("A100 80GB SXM4", "L40S"):
        c = resolve([split.on(Placement(accelerator=placement))], [replace(CHAT, running=64)], MARKET)
        links.append(seconds(c, np.array([64.0]))[0, TERMS.index("all_reduce_bytes")])
    assert 0 < links[0] < links[1]


def test_the_host_and_not_the_device_limits_a_small_model_alone() -> None:
    small = replace(LLAMA_8B, model=model("Qwen2.5-0.5B"))
    state = steady(resolve([small], [CHAT], MARKET), efficiency(), np.array([1.0]))
    launches = state.shares[0, [TERMS.index(name) for name in ("step", "layers")]].sum()
    assert small.model.n_layers == 24 and launches > 0.6


def test_prompts_of_a_mixture_take_longer_than_their_products_would() -> None:
    load = replace(CHAT, prompt_len=8000)
    slowness = {}
    for deployment in (LLAMA_8B, MOE):
        c = resolve([deployment], [load], MARKET)
        listed, reached = seconds(c, np.array([64.0])), steady(c, efficiency(), np.array([64.0])).term_s
        place = TERMS.index("prefill_flops")
        slowness[deployment.model.name] = reached[0, place] / listed[0, place]
    dense, mixture = slowness.values()
    assert 1.3 < mixture / dense < 2


def test_an_old_vllm_reads_its_cache_slower() -> None:
    busy = replace(CHAT, running=64)
    old, new = (
        forecast(replace(LLAMA_8B, engine_version=version), busy, MARKET).running for version in ("0.7.3", "0.9.1")
    )
    assert old is not None and new is not None and old.tok_s[1] < 0.98 * new.tok_s[1]
