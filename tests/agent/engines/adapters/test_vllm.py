"""Pages, API and command line of vLLM, read into our metrics."""

import pytest

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import Identity, adapters_of
from pertoken.agent.rows.counting.counters import advance, bucket_totals, bucket_values, word_totals
from pertoken.agent.scrape.page import parse
from tests.agent.engine_pages import CAPTURES, growth, histograms, identity, values


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
    counted = word_totals(ADAPTERS["vllm"].read(parse(text.encode(), ADAPTERS["vllm"].wanted)).counters)
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
    assert reported == Identity(
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
        adapter.read(parse(page.format(**counts).encode(), adapter.wanted)).counters
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
    return tokens(word_totals(ADAPTERS["vllm"].read(parse(body.encode(), ADAPTERS["vllm"].wanted)).counters))


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
