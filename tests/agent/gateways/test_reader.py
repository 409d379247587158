"""One gateway's page: whose tokens it counts, or why it cannot be used."""

import pytest

from pertoken.access import Access
from pertoken.agent.gateways import GatewayWatch, read_gateway
from pertoken.agent.readings import GatewayReading
from pertoken.agent.scrape import RequestLimits, ScrapeError
from pertoken.settings.fleet import GatewaySettings
from tests.agent.engine_pages import CAPTURES
from tests.agent.servers import answering, pages
from tests.recorded import until

LITELLM = (CAPTURES / "litellm-1.106.2.prom").read_bytes()
SMG = b"""\
smg_router_tokens_total{router_type="grpc",model="llama",token_type="input"} 90
smg_router_tokens_total{router_type="grpc",model="llama",token_type="output"} 40
smg_router_requests_total{router_type="grpc",model="llama"} 3
"""
EPP = b"""\
inference_objective_input_tokens_sum{model_name="search-llama",target_model_name="llama"} 70
inference_objective_output_tokens_sum{model_name="search-llama",target_model_name="llama"} 30
inference_objective_prompt_cached_tokens_sum{model_name="search-llama",target_model_name="llama"} 40
"""


def by_metric(reading: GatewayReading) -> dict[str, int]:
    counts: dict[str, int] = {}
    for series, value in reading.counters.items():
        counts[reading.metric_of[series]] = counts.get(reading.metric_of[series], 0) + value
    return counts


def test_a_captured_page_of_litellm_counts_two_keys_by_team_and_served_model() -> None:
    with answering(pages({"/metrics/": LITELLM})) as url:
        reading = read_gateway(GatewaySettings(url), RequestLimits())
    assert reading.kind == "litellm"
    assert reading.life_ms == 1_795_374_298_160
    assert by_metric(reading) == {
        'tenant_prompt_tokens{key="alpha-prod",model="tiny-llama",team="alpha"}': 7,
        'tenant_prompt_tokens{key="beta-prod",model="tiny-llama",team="beta"}': 14,
        'tenant_generated_tokens{key="alpha-prod",model="tiny-llama",team="alpha"}': 5,
        'tenant_generated_tokens{key="beta-prod",model="tiny-llama",team="beta"}': 10,
    }


def test_cached_reasoning_and_audio_tokens_of_litellm_are_counted_by_key_and_team() -> None:
    counts = {
        "input": 90,
        "input_cached": 60,
        "input_audio": 4,
        "output": 30,
        "output_reasoning": 20,
        "output_audio": 1,
    }
    labels = '{api_key_alias="agents-prod",model="gpt-oss",team_alias="agents"}'
    body = "".join(f"litellm_{name}_tokens_metric_total{labels} {n}\n" for name, n in counts.items()).encode()
    with answering(pages({"/metrics/": body})) as url:
        counted = by_metric(read_gateway(GatewaySettings(url), RequestLimits()))
    tenant = '{key="agents-prod",model="gpt-oss",team="agents"}'
    assert {name.removesuffix(tenant): count for name, count in counted.items()} == {
        "tenant_prompt_tokens": 90,
        "tenant_cached_tokens": 60,
        "tenant_prompt_audio_tokens": 4,
        "tenant_generated_tokens": 30,
        "tenant_reasoning_tokens": 20,
        "tenant_audio_tokens": 1,
    }


def test_images_and_seconds_of_video_of_litellm_are_counted_in_units_of_their_own() -> None:
    labels = '{api_key_alias="art",model="flux",team_alias="art"}'
    body = f"litellm_images_generated_metric_total{labels} 3\n"
    body += f"litellm_video_duration_seconds_metric_total{labels} 7.5\nlitellm_input_tokens_metric_total{labels} 5\n"
    with answering(pages({"/metrics/": body.encode()})) as url:
        counted = by_metric(read_gateway(GatewaySettings(url), RequestLimits()))
    tenant = '{key="art",model="flux",team="art"}'
    assert {name.removesuffix(tenant): count for name, count in counted.items()} == {
        "tenant_images": 3,
        "tenant_video_ms": 7500,
        "tenant_prompt_tokens": 5,
    }


def test_end_users_are_kept_apart_only_where_that_is_set_and_models_take_their_served_names() -> None:
    page = b'litellm_input_tokens_metric_total{end_user="%s",model="gpt-oss",team="a"} 5\n'
    body = page % b"u1" + page % b"u2"
    with answering(pages({"/metrics/": body})) as url:
        together = read_gateway(GatewaySettings(url, models={"gpt-oss": "openai/gpt-oss-120b"}), RequestLimits())
        apart = read_gateway(GatewaySettings(url, users=True), RequestLimits())
    assert by_metric(together) == {'tenant_prompt_tokens{model="openai/gpt-oss-120b",team="a"}': 10}
    assert len(by_metric(apart)) == 2


@pytest.mark.parametrize(
    ("body", "metrics"),
    [
        (SMG, {'tenant_prompt_tokens{model="llama"}': 90, 'tenant_generated_tokens{model="llama"}': 40}),
        (
            EPP,
            {
                'tenant_prompt_tokens{key="search-llama",model="llama"}': 70,
                'tenant_generated_tokens{key="search-llama",model="llama"}': 30,
                'tenant_cached_tokens{key="search-llama",model="llama"}': 40,
            },
        ),
    ],
    ids=["sgl-router", "llm-d"],
)
def test_the_kind_is_known_by_the_page(body: bytes, metrics: dict[str, int]) -> None:
    with answering(pages({"/metrics": body})) as url:
        assert by_metric(read_gateway(GatewaySettings(url), RequestLimits())) == metrics


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        ({"/metrics": b"vllm:prompt_tokens_total 1\n"}, "http"),
        ({"/metrics/": (401, b"")}, "access"),
        ({"/metrics/": b"litellm_input_tokens_metric_total -1\n"}, "malformed"),
        ({"/metrics/": LITELLM[:-40]}, "malformed"),
    ],
)
def test_a_page_that_cannot_be_used_is_refused(replies: dict[str, bytes | tuple[int, bytes]], kind: str) -> None:
    with answering(pages(replies)) as url, pytest.raises(ScrapeError) as refused:
        read_gateway(GatewaySettings(url, "litellm" if kind != "http" else None), RequestLimits())
    assert refused.value.kind == kind


def test_the_watch_reads_beside_the_ticks_and_reports_what_it_cannot_read() -> None:
    with answering(pages({"/metrics/": LITELLM})) as url, answering(pages({})) as broken:
        limits = RequestLimits(access=(Access(broken, token_env="NO_SUCH_VARIABLE"),))
        watch = GatewayWatch([GatewaySettings(url), GatewaySettings(broken)], limits)
        try:
            assert watch.take() == ()
            watch.start_read()
            until(lambda: watch.unavailable, "the fault")
            (missing,) = watch.unavailable
            assert missing.metric == f"gateway {broken}"
            assert "agent.access" in (missing.remedy or "")
            taken: list[GatewayReading] = []

            def arrived() -> bool:
                taken.extend(watch.take())
                return bool(taken)

            until(arrived, "the page")
            assert [reading.base_url for reading in taken] == [url]
            assert watch.take() == ()
        finally:
            watch.close()
