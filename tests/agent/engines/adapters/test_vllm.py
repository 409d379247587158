"""Pages, API and command line of vLLM, read into our metrics."""

from collections.abc import Mapping

import pytest

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import EngineIdentity, adapters_of
from pertoken.agent.rows.counters import advance, bucket_totals, bucket_values, word_totals
from pertoken.agent.scrape import parse
from pertoken.store.schema.rows import CounterState
from tests.agent.engine_pages import CAPTURES, growth, histograms, identity, read_page, values


def test_vllm_tokens_between_two_pages_are_those_its_clients_sent_and_got() -> None:
    assert growth("vllm", "vllm-0.32.0-metrics-before", "vllm-0.32.0-metrics-after") == {
        "prompt_tokens": 6640 + 144,
        "cached_tokens": 5120,
        "computed_tokens": 1664,
        "generated_tokens": 2560 + 3,
        "requests_finished": 40,
        "requests_failed": 0,
        "preemptions": 0,
        "prefix_queries": 6784,
        "prefix_hits": 5120,
        "media_lookups": 0,
        "transferred_tokens": 0,
        "cached_device_tokens": 5120,
        "cached_host_tokens": 0,
        "cached_disk_tokens": 0,
        "cached_remote_tokens": 0,
        "media_hits": 0,
        "gflop_per_gpu": 0,
        "read_mb_per_gpu": 0,
        "write_mb_per_gpu": 0,
        "prefill_ms": 851,
        "decode_ms": 14_524,
        "steps": 327,
    }


def test_vllm_images_of_requests_are_counted_with_those_found_in_its_cache() -> None:
    text = (CAPTURES / "vllm-0.32.0-metrics-after.prom").read_text()
    for series, value in (("queries", 60), ("hits", 12)):
        line = f'vllm:mm_cache_{series}_total{{engine="0",model_name="tiny-llama"}}'
        assert f"{line} 0.0" in text
        text = text.replace(f"{line} 0.0", f"{line} {value}.0")
    counted = word_totals(read_page(ADAPTERS["vllm"], parse(text.encode(), ADAPTERS["vllm"].wanted)).counters)
    assert (counted["media_lookups"], counted["media_hits"]) == (60, 12)


def test_vllm_tokens_of_data_parallel_ranks_add_up() -> None:
    deltas = growth("vllm", "vllm-0.32.0-dp2-api2-before", "vllm-0.32.0-dp2-api2-after")
    assert (deltas["prompt_tokens"], deltas["generated_tokens"], deltas["cached_tokens"]) == (4116, 1094, 2944)
    assert deltas["requests_finished"] == 24


def test_vllm_prompts_computed_again_after_preemption_are_not_counted_again() -> None:
    deltas = growth("vllm", "vllm-0.32.0-preempt-before", "vllm-0.32.0-preempt-after")
    assert (deltas["prompt_tokens"], deltas["preemptions"]) == (10110 + 144, 80)


def test_vllm_gauges_are_read_while_it_is_busy() -> None:
    assert values("vllm", "vllm-0.32.0-metrics-during").gauges["running"] == 8
    assert values("vllm", "vllm-0.32.0-metrics-during").gauges["waiting"] == 8
    assert values("vllm", "vllm-0.32.0-preempt-during").gauges["kv_use"] == 1.0


def test_vllm_histograms_count_each_request_once() -> None:
    before, after = (histograms("vllm", f"vllm-0.32.0-metrics-{when}") for when in ("before", "after"))
    states = advance({}, bucket_values(before), owner_id=1, life=5, ts=1, from_zero=False, elapsed_s=60).states
    taken = advance(states, bucket_values(after), owner_id=1, life=5, ts=2, from_zero=False, elapsed_s=60)
    observed = {word: sum(counts) for (word, _), counts in bucket_totals(after, taken.deltas).items()}
    per_request = dict.fromkeys(("e2e_s", "prompt_len", "generated_len", "queue_s", "max_tokens"), 40)
    assert observed == {"ttft_s": 41, "tpot_s": 2522, "step_tokens": 327, **per_request}


def test_vllm_gaps_between_uses_of_kv_blocks_are_read_where_it_samples_them() -> None:
    text = (CAPTURES / "vllm-0.32.0-metrics-after.prom").read_text()
    series = "vllm:kv_block_reuse_gap_seconds"
    text += f"# TYPE {series} histogram\n" + "".join(
        f'{series}_{name}{{engine="0",{label}model_name="tiny-llama"}} {value}\n'
        for name, label, value in (
            ("bucket", 'le="1.0",', 3.0),
            ("bucket", 'le="+Inf",', 4.0),
            ("count", "", 4.0),
            ("sum", "", 9.0),
        )
    )
    read = ADAPTERS["vllm"].histograms_of(parse(text.encode(), ADAPTERS["vllm"].wanted))
    assert read['kv_reuse_gap_s{engine="0",model_name="tiny-llama"}'].counts == (3, 1)
    assert not any(key.startswith("kv_reuse_gap_s") for key in histograms("vllm", "vllm-0.32.0-metrics-after"))


def test_older_names_of_vllm_mean_the_same() -> None:
    old = values("vllm", "vllm-0.9-older-names")
    deltas = advance({}, old.counters, owner_id=1, life=9, ts=1, from_zero=True, elapsed_s=60).deltas
    assert tokens(word_totals(deltas)) == {
        "prompt_tokens": 700,
        "cached_tokens": 200,
        "computed_tokens": 500,
        "generated_tokens": 90,
        "requests_finished": 7,
        "preemptions": 0,
        "prefix_queries": 700,
        "prefix_hits": 200,
        "decode_ms": 800,
    }
    assert old.gauges == {"running": 3, "waiting": 1, "kv_use": 0.25}
    tpot = histograms("vllm", "vllm-0.9-older-names")['tpot_s{engine="0",model_name="tiny-llama"}']
    assert tpot.counts == (60, 23, 0)


def test_vllm_reports_its_model_its_version_and_the_defaults_that_it_chose() -> None:
    reported = identity(
        "vllm",
        "vllm-0.32.0-metrics-after",
        {"/v1/models": "vllm-0.32.0-v1-models.json", "/version": "vllm-0.32.0-version.json"},
    )
    assert reported == EngineIdentity(
        served_model="tiny-llama",
        version="0.32.0",
        model_path="/models/tiny-llama",
        knobs={
            "max_model_len": 1024,
            "gpu_memory_utilization": 0.92,
            "enable_prefix_caching": True,
            "lora_adapters": [],
        },
    )


def test_vllm_in_development_mode_reports_every_knob_and_nothing_else() -> None:
    replies = {"/server_info?config_format=json": "vllm-0.32.0-server-info.json"}
    assert identity("vllm", "vllm-0.32.0-dp2-api2-after", replies).knobs == {
        "tp": 1,
        "pp": 1,
        "dp": 2,
        "weight_dtype": "fp32",
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "enable_chunked_prefill": True,
        "max_model_len": 1024,
        "gpu_memory_utilization": 0.92,
        "enforce_eager": True,
        "enable_prefix_caching": True,
    }


def test_vllm_counts_the_prompt_of_each_sample_of_a_request_and_so_do_we() -> None:
    """A prompt of 40 tokens with `n=4` is four requests to the engine, three of which find it in the prefix cache."""
    page = """# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{{model_name="m"}} {prompt}
vllm:prompt_tokens_cached_total{{model_name="m"}} {cached}
vllm:generation_tokens_total{{model_name="m"}} {generated}
vllm:request_success_total{{model_name="m",finished_reason="stop"}} {requests}
"""
    adapter = ADAPTERS["vllm"]
    first, second = (
        read_page(adapter, parse(page.format(**counts).encode(), adapter.wanted)).counters
        for counts in (
            {"prompt": 100, "cached": 0, "generated": 10, "requests": 1},
            {"prompt": 100 + 4 * 40, "cached": 3 * 32, "generated": 10 + 4 * 5, "requests": 1 + 4},
        )
    )
    states = advance({}, first, owner_id=1, life=5, ts=1, from_zero=False, elapsed_s=60).states
    taken = advance(states, second, owner_id=1, life=5, ts=2, from_zero=False, elapsed_s=60)
    assert tokens(word_totals(taken.deltas)) == {
        "prompt_tokens": 160,
        "cached_tokens": 96,
        "computed_tokens": 64,
        "generated_tokens": 20,
        "requests_finished": 4,
    }
    assert "once per sample" in (adapter.limits or "")


def test_vllm_lists_its_lora_adapters_as_models_with_a_parent() -> None:
    named = [
        {"id": "llama", "root": "/models/llama", "parent": None},
        {"id": "llama-alias", "root": "/models/llama", "parent": None},
        {"id": "support", "root": "/adapters/support", "parent": "llama"},
        {"id": "legal", "root": "/adapters/legal", "parent": "llama"},
    ]
    assert adapters_of({"data": named}) == ["legal", "support"]
    assert adapters_of({"data": named[:1]}) == []
    assert adapters_of(None) is None


PD_PAGE = """\
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {prompt}
vllm:prompt_tokens_cached_total{{engine="0",model_name="m"}} {cached}
vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="local_compute"}} {computed}
vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="external_kv_transfer"}} {external}
vllm:generation_tokens_total{{engine="0",model_name="m"}} 400
{more}"""
TIERS = """\
vllm:prompt_tokens_cached_by_source_total{{engine="0",model_name="m",source="device"}} 0
vllm:prompt_tokens_cached_by_source_total{{engine="0",model_name="m",source="host"}} {host}
vllm:prompt_tokens_cached_by_source_total{{engine="0",model_name="m",source="p2p"}} {p2p}
vllm:prompt_tokens_cached_by_source_total{{engine="0",model_name="m",source="external_unspecified"}} {unspecified}
"""
NIXL = 'vllm:nixl_bytes_transferred_sum{engine="0",model_name="m"} 9\n'


def counted(prompt: int, external: int, more: str = "") -> dict[str, int | None]:
    """Return the tokens of a server that got all cached prompt tokens from outside."""
    body = PD_PAGE.format(prompt=prompt, cached=external, computed=prompt - external, external=external, more=more)
    return tokens(word_totals(read_page(ADAPTERS["vllm"], parse(body.encode(), ADAPTERS["vllm"].wanted)).counters))


@pytest.mark.parametrize(
    "more",
    [
        TIERS.format(host=0, p2p=3_999_000, unspecified=0),
        TIERS.format(host=0, p2p=0, unspecified=3_999_000) + NIXL,
        NIXL,
        "",
    ],
)
def test_a_prompt_that_one_server_prefills_for_another_counts_once(more: str) -> None:
    prefill, decode = counted(4_000_000, 0), counted(4_000_000, 3_999_000, more)
    assert prefill["prompt_tokens"] == 4_000_000 and not prefill.get("transferred_tokens")
    assert (decode["prompt_tokens"], decode["cached_tokens"], decode["computed_tokens"]) == (1000, 0, 1000)
    assert decode["transferred_tokens"] == 3_999_000


@pytest.mark.parametrize(
    "more", ["lmcache:num_hit_tokens_total 5\n", TIERS.format(host=3_999_000, p2p=0, unspecified=0)]
)
def test_prompt_tokens_of_a_cache_outside_the_server_stay_cached(more: str) -> None:
    shared = counted(4_000_000, 3_999_000, more)
    assert (shared["prompt_tokens"], shared["cached_tokens"], shared["computed_tokens"]) == (4_000_000, 3_999_000, 1000)
    assert not shared.get("transferred_tokens")


def test_sources_that_do_not_add_up_make_no_count_negative() -> None:
    excess = tokens({"prompt_tokens": 100, "cached_tokens": 60, "transferred_tokens": 500})
    assert (excess["prompt_tokens"], excess["cached_tokens"], excess["computed_tokens"]) == (40, 0, 40)
    unknown = tokens({"prompt_tokens": None, "cached_tokens": None, "transferred_tokens": 5})
    assert unknown["prompt_tokens"] is None and unknown["cached_tokens"] is None


TIER_NAMES = ("device", "host", "p2p", "disk", "external_unspecified")


def sourced_page(prompt: int, cached: int, external: int | None = None, tiers: Mapping[str, int] | None = None) -> str:
    """Return a page with the tokens of prompts by source, and the cached ones by tier where it has them."""
    series = {"prompt_tokens_total": prompt, "prompt_tokens_cached_total": cached}
    lines = [f'vllm:{name}{{engine="0",model_name="m"}} {count}' for name, count in series.items()]
    if external is not None:
        counts = {
            "local_compute": prompt - cached,
            "local_cache_hit": max(0, cached - external),
            "external_kv_transfer": external,
        }
        lines += [sourced_line("by_source", source, count) for source, count in counts.items()]
    if tiers is not None:
        lines += [sourced_line("cached_by_source", tier, tiers.get(tier, 0)) for tier in TIER_NAMES]
    return "\n".join(lines) + "\n"


def sourced_line(series: str, source: str, count: int) -> str:
    return f'vllm:prompt_tokens_{series}_total{{engine="0",model_name="m",source="{source}"}} {count}'


def prompts_between(*pages: str, kind: str = "vllm", lives: tuple[int, ...] = (5, 5)) -> tuple[int | None, ...]:
    """Return prompt, cached, computed and transferred tokens between the last two pages."""
    adapter = ADAPTERS[kind]
    states: Mapping[str, CounterState] = {}
    deltas: Mapping[str, int | None] = {}
    for n, (text, life) in enumerate(zip(pages, lives, strict=True)):
        counters = read_page(adapter, parse(text.encode(), adapter.wanted)).counters
        taken = advance(states, counters, owner_id=1, life=life, ts=n, from_zero=False, elapsed_s=60)
        states, deltas = taken.states, tokens(word_totals(taken.deltas))
    names = ("prompt_tokens", "cached_tokens", "computed_tokens", "transferred_tokens")
    return tuple(deltas.get(name) for name in names)


BEGINNING = sourced_page(1000, 900, 800, {"device": 100, "p2p": 800})


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 1600}), (200, 150, 50, 800)),
        (sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 1900}), (200, 150, 50, 800)),
        (sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 800, "host": 800}), (1000, 950, 50, 0)),
        (sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 800, "external_unspecified": 800}), (1000, 950, 50, 0)),
        (sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 1000, "disk": 600}), (800, 750, 50, 200)),
    ],
    ids=["transfer", "admitted ahead of their prompts", "offloaded", "external cache", "transfer and disk"],
)
def test_vllm_tokens_from_another_server_are_transferred_and_those_of_an_external_cache_are_cached(
    page: str, expected: tuple[int, ...]
) -> None:
    assert prompts_between(BEGINNING, page) == expected


def test_vllm_without_sources_counts_prompts_as_it_exposes_them() -> None:
    assert prompts_between(sourced_page(1000, 900), sourced_page(2000, 1850)) == (1000, 950, 50, None)


def test_ray_and_nim_read_transferred_tokens_by_their_own_names_of_the_series() -> None:
    pages = BEGINNING, sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 1000, "disk": 600})
    for kind, prefix in (("ray", "ray_vllm_"), ("nim", "")):
        renamed = (page.replace("vllm:", prefix) for page in pages)
        assert prompts_between(*renamed, kind=kind) == (800, 750, 50, 200)


def test_transferred_tokens_count_from_0_after_a_restart_as_the_prompt_does() -> None:
    second = sourced_page(500, 450, 400, {"device": 50, "p2p": 400})
    assert prompts_between(BEGINNING, second, lives=(5, 6)) == (100, 50, 50, 400)


def test_tokens_admitted_before_their_prompts_count_with_the_prompts() -> None:
    admitted = sourced_page(1000, 900, 800, {"device": 250, "p2p": 1600})
    counted_after = sourced_page(2000, 1850, 1600, {"device": 250, "p2p": 1600})
    assert prompts_between(BEGINNING, admitted) == (0, 0, 0, 0)
    assert prompts_between(BEGINNING, admitted, counted_after, lives=(5, 5, 5)) == (200, 150, 50, 800)


def test_sources_that_appear_late_take_off_no_more_than_the_prompt_increased_by() -> None:
    first, second = sourced_page(1000, 900), sourced_page(1100, 1000, 900, {"p2p": 900})
    third = sourced_page(2100, 1950, 1700, {"p2p": 1700})
    assert prompts_between(first, second) == (0, 0, 0, 100)
    assert prompts_between(first, second, third, lives=(5, 5, 5)) == (200, 150, 50, 800)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (sourced_page(1500, 1400, 1900, {"p2p": 1900}), (0, 0, 0, 500)),
        (sourced_page(2000, 950, 1600, {"p2p": 1600}), (950, 0, 950, 50)),
        (sourced_page(2000, 1900, 700, {"p2p": 700}), (None, None, 0, None)),
    ],
    ids=["more than prompts", "more than cached", "fell"],
)
def test_transferred_tokens_beyond_the_prompt_count_no_token_twice_or_below_0(
    page: str, expected: tuple[int | None, ...]
) -> None:
    assert prompts_between(BEGINNING, page) == expected


def test_tiers_alone_name_the_transferred_tokens_too() -> None:
    body = "\n".join(
        line
        for line in PD_PAGE.format(
            prompt=1000, cached=700, computed=300, external=700, more=TIERS.format(host=0, p2p=700, unspecified=0)
        ).splitlines()
        if "prompt_tokens_by_source" not in line
    )
    page = parse(f"{body}\n".encode(), ADAPTERS["vllm"].wanted)
    alone = tokens(word_totals(read_page(ADAPTERS["vllm"], page).counters))
    assert (alone["prompt_tokens"], alone["cached_tokens"], alone["transferred_tokens"]) == (300, 0, 700)


def read(text: str) -> dict[str, int]:
    """Return sums of the counters of a page by name, over its series."""
    sums: dict[str, int] = {}
    for series, count in read_page(
        ADAPTERS["vllm"], parse(text.encode(), ADAPTERS["vllm"].wanted, eof_required=False)
    ).counters.items():
        name = series.partition("{")[0]
        sums[name] = sums.get(name, 0) + count
    return sums


OLDER = (
    'vllm:prompt_tokens_total{engine="0",model_name="m"} 100\n'
    'vllm:generation_tokens_total{engine="0",model_name="m"} 5\n'
    'vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40\n'
    'vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 30\n'
)
NIXL_SERIES = 'vllm:nixl_bytes_transferred_sum{engine="0",model_name="m"} 9\n'


def test_hits_of_a_connector_are_cached_tokens_beside_those_of_the_servers_own_cache() -> None:
    assert read(OLDER)["cached_tokens"] == 70
    newer = OLDER + 'vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 66\n'
    assert read(newer)["cached_tokens"] == 66


def test_hits_of_a_connector_between_servers_are_transferred_tokens_of_older_releases() -> None:
    assert tokens(dict(read(OLDER + NIXL_SERIES))) == {
        "prefix_hits": 40,
        "prompt_tokens": 70,
        "cached_tokens": 40,
        "computed_tokens": 30,
        "transferred_tokens": 30,
        "generated_tokens": 5,
    }
    with_another_cache = OLDER + NIXL_SERIES + 'vllm:kv_offload_total_bytes_total{engine="0",model_name="m"} 9\n'
    assert "transferred_tokens" not in read(with_another_cache)


@pytest.mark.parametrize(
    ("labels", "beside"),
    [
        (('stage="0",replica="0"', 'stage="1",replica="0"', 'stage="2",replica="0"'), ""),
        (('stage="thinker"', 'stage="talker"', 'stage="code2wav"'), ""),
        (('stage="stage_1"', 'stage="stage_2"', 'stage="stage_10"'), ""),
        (('stage_id="0",engine="0"', 'stage_id="1",engine="1"', 'stage_id="2",engine="2"'), ""),
        (('engine="0"', 'engine="1"', 'engine="2"'), 'vllm:omni_num_requests_running{model_name="m"} 0\n'),
        (('engine="0"', 'engine="1"', 'engine="2"'), 'vllm_omni:num_requests_running{model_name="m"} 0\n'),
    ],
)
def test_stages_of_one_request_count_it_once(labels: tuple[str, ...], beside: str) -> None:
    page = beside
    for label, prompt, generated in zip(labels, (1000, 4000, 1500), (500, 3000, 1000), strict=True):
        series = f'{{{label},model_name="m"}}'
        page += f"vllm:prompt_tokens_total{series} {prompt}\nvllm:generation_tokens_total{series} {generated}\n"
        page += f'vllm:request_success_total{{{label},finished_reason="stop",model_name="m"}} 10\n'
        page += f"vllm:iteration_tokens_total_count{series} 7\n"
    counts = read(page)
    assert (counts["prompt_tokens"], counts["generated_tokens"], counts["requests_finished"]) == (1000, 500, 10)
    assert counts["steps"] == 21


def test_replicas_of_the_first_stage_add_up() -> None:
    page = "".join(
        f'vllm:prompt_tokens_total{{stage="{stage}",replica="{replica}",model_name="m"}} 10\n'
        for stage in (0, 1)
        for replica in (0, 1)
    )
    assert read(page)["prompt_tokens"] == 20
