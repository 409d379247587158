"""Each engine's page in our words. Pages not captured from an engine are labelled in tests/captures/README.md."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import EngineIdentity, PageOrigin
from pertoken.agent.rows.counters import advance, reason_totals, word_totals
from pertoken.agent.rows.engines import counted_once
from pertoken.agent.scrape import MetricsPage, parse
from pertoken.metrics import ENGINE_COUNTERS, ENGINE_GAUGES, ENGINE_TIMES, ENGINE_TOKENS, HISTOGRAMS
from tests.agent.engine_pages import CAPTURES, growth, histograms, page, read_page, values

HALVES = ("prefill", "decode")
CLIENTS = {"prompt_tokens": 6780, "generated_tokens": 2560, "requests_finished": 40}


def counted(kind: str, name: str) -> dict[str, int | None]:
    """Return growth by word from an engine's start to a page."""
    return counted_of(values(kind, name).counters)


def counted_of(counters: dict[str, int]) -> dict[str, int | None]:
    deltas = advance({}, counters, owner_id=1, life=9, ts=1, from_zero=True, elapsed_s=60).deltas
    return tokens(word_totals(deltas)) | reason_totals(deltas)


def read(kind: str, text: str) -> Any:
    return read_page(ADAPTERS[kind], parse(text.encode(), ADAPTERS[kind].wanted))


def identity(kind: str, name: str | None, replies: dict[str, object]) -> EngineIdentity:
    return ADAPTERS[kind].identify(replies.get, page(kind, name) if name else MetricsPage({}))


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_adapters_map_to_stored_metrics_and_name_the_source_of_their_names(adapter: Any) -> None:
    assert {counter.name for counter in adapter.counters} <= {*ENGINE_TOKENS, *ENGINE_COUNTERS, *ENGINE_TIMES}
    assert {gauge.name for gauge in adapter.gauges} <= set(ENGINE_GAUGES)
    assert {histogram.name for histogram in adapter.histograms} <= set(HISTOGRAMS)
    assert adapter.at_finish <= {counter.name for counter in adapter.counters} | {"cached_tokens"}
    assert adapter.source and adapter.tested_on in PageOrigin
    assert adapter.counters or adapter.no_tokens
    assert adapter.no_tokens is None or adapter.no_tokens.remedy


def test_only_engines_that_ran_here_are_marked_tested_live() -> None:
    assert [adapter.kind for adapter in ADAPTERS.values() if adapter.tested_on is PageOrigin.LIVE] == [
        "vllm",
        "llama.cpp",
    ]


def test_vllm_drafts_and_estimates_are_counted() -> None:
    deltas = growth("vllm", "vllm-0.32.0-specdecode-mfu-before", "vllm-0.32.0-specdecode-mfu-after")
    assert {word: deltas[word] for word in ENGINE_COUNTERS if word in deltas} == {
        "requests_failed": 0,
        "prefix_queries": 4116,
        "prefix_hits": 3072,
        "media_lookups": 0,
        "transferred_tokens": 0,
        "cached_device_tokens": 3072,
        "cached_host_tokens": 0,
        "cached_disk_tokens": 0,
        "cached_remote_tokens": 0,
        "media_hits": 0,
        "spec_drafts": 402,
        "spec_draft_tokens": 1175,
        "spec_accepted_tokens": 1,
        "gflop_per_gpu": 4,
        "read_mb_per_gpu": 959,
        "write_mb_per_gpu": 55,
    }


def test_vllm_requests_are_counted_by_how_they_ended() -> None:
    after = counted("vllm", "vllm-0.32.0-specdecode-mfu-after")
    assert after['requests_finished{reason="stop"}'] == 3
    assert after['requests_finished{reason="length"}'] == 21
    assert after["requests_finished"] == 24
    assert after['requests_failed{reason="max_num_queued_reqs"}'] == 0


def test_vllm_is_awake_while_one_of_its_ranks_is() -> None:
    line = 'vllm:engine_sleep_state{{engine="{}",sleep_state="{}"}} {}\n'
    ranks = [line.format(rank, state, 1 if state == "awake" else 0) for rank in (0, 1) for state in ("awake", "deep")]
    assert read("vllm", "".join(ranks)).gauges == {"awake": 1}
    assert read("vllm", "".join(ranks).replace("} 1", "} 0")).gauges == {"awake": 0}


def test_sglang_is_read_from_what_its_collector_writes() -> None:
    name = "sglang-0.5.23-collector"
    assert counted("sglang", name) == CLIENTS | {
        "cached_tokens": 5120,
        "cached_device_tokens": 5120,
        "computed_tokens": 1660,
        "prefix_queries": 0,
        "prefix_hits": 0,
        "prefill_ms": 11_800,
    }
    tested_on = values("sglang", name)
    assert tested_on.gauges == {"running": 8, "waiting": 3, "kv_use": 0.42}
    observed = {key.partition("{")[0]: sum(histogram.counts) for key, histogram in histograms("sglang", name).items()}
    assert observed == dict.fromkeys(("ttft_s", "e2e_s", "prompt_len", "generated_len"), 40)
    assert ADAPTERS["sglang"].models(page("sglang", name)) == ("tiny-llama",)


def test_sglang_tensor_parallel_ranks_count_once_and_data_parallel_ranks_add_up() -> None:
    line = '{}{{dp_rank="{}",model_name="m",moe_ep_rank="{}",pp_rank="0",tp_rank="{}"}} {}\n'
    text = ""
    for dp in (0, 1):
        for tp in (0, 1):
            text += line.format("sglang:num_running_reqs", dp, tp, tp, 4 + dp)
            text += line.format("sglang:num_retracted_requests_total", dp, tp, tp, 10 * (dp + 1))
    tested_on = read("sglang", text)
    assert tested_on.gauges == {"running": 9}
    assert counted_of(tested_on.counters)["preemptions"] == 30


ranks = st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=3), max_size=4)


@given(ranks=ranks)
def test_lagging_copies_never_make_a_count_fall_or_count_twice(
    ranks: list[list[tuple[int, int]]],
) -> None:
    line = 'sglang:num_retracted_requests_total{{dp_rank="{}",tp_rank="{}"}} {}\n'
    first = "".join(line.format(dp, tp, at) for dp, copies in enumerate(ranks) for tp, (at, _) in enumerate(copies))
    second = "".join(
        line.format(dp, tp, at + more) for dp, copies in enumerate(ranks) for tp, (at, more) in enumerate(copies)
    )
    known = advance({}, read("sglang", first).counters, owner_id=1, life=5, ts=1, from_zero=False, elapsed_s=60)
    taken = advance(
        known.states, read("sglang", second).counters, owner_id=1, life=5, ts=2, from_zero=False, elapsed_s=60
    )
    assert taken.complete
    expected = sum(max(at + more for at, more in copies) - max(at for at, _ in copies) for copies in ranks)
    assert (word_totals(taken.deltas).get("preemptions") or 0) == expected


def test_sglang_requests_of_each_priority_are_part_of_all_that_wait() -> None:
    line = 'sglang:num_queue_reqs{{priority="{}",tp_rank="0"}} {}\n'
    text = "".join(line.format(priority, count) for priority, count in (("", 5), ("1", 3), ("2", 2)))
    assert read("sglang", text).gauges == {"waiting": 5}


def test_sglang_estimates_the_work_of_one_gpu_and_its_tensor_parallel_copies_repeat_it() -> None:
    names = {"flops": 3e12, "read_bytes": 5e9, "write_bytes": 2e6}
    line = 'sglang:estimated_{}_per_gpu_total{{dp_rank="{}",tp_rank="{}"}} {}\n'
    text = "".join(line.format(name, dp, tp, n) for name, n in names.items() for dp in (0, 1) for tp in (0, 1))
    deltas = counted_of(read("sglang", text).counters)
    assert [deltas[word] for word in ("gflop_per_gpu", "read_mb_per_gpu", "write_mb_per_gpu")] == [6000, 10_000, 4]


def test_sglang_looks_up_all_tokens_of_prompts_and_finds_those_of_every_tier() -> None:
    modes = {"input": 400, "device_hit": 500, "host_hit": 60, "storage_hit": 40}
    line = 'sglang:prefill_effective_tokens_total{{mode="{}",dp_rank="0",tp_rank="{}"}} {}\n'
    text = "".join(line.format(mode, rank, count) for mode, count in modes.items() for rank in (0, 1))
    deltas = counted_of(read("sglang", text).counters)
    assert (deltas["prefix_queries"], deltas["prefix_hits"]) == (1000, 600)


def test_a_request_that_passes_a_prefill_and_a_decode_half_of_sglang_counts_once() -> None:
    captured = (CAPTURES / "sglang-0.5.23-collector.prom").read_text()
    whole = counted_of(read("sglang", captured).counters)
    halves = [counted_of(read("sglang", captured.replace('"unified"', f'"{half}"')).counters) for half in HALVES]
    prefill, decode = halves
    assert (prefill["generated_tokens"], decode["prompt_tokens"], decode["cached_tokens"]) == (0, 0, 0)
    for word in ("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished"):
        assert sum(half[word] or 0 for half in halves) == whole[word], word


def test_sglang_cached_tokens_of_every_source_count_once() -> None:
    series = "sglang:cached_tokens_total"
    text = "".join(f'{series}{{cache_source="{source}"}} 10\n' for source in ("device", "host", "storage_x", "total"))
    assert counted_of(read("sglang", text).counters)["cached_tokens"] == 40


def test_sglang_counters_that_have_not_counted_yet_are_0_on_a_page_with_others() -> None:
    assert read("sglang", "sglang:num_queue_reqs 0\n").counters == {
        "prompt_tokens": 0,
        "cached_tokens": 0,
        "generated_tokens": 0,
    }
    assert read("sglang", "python_info 1\n").counters == {}
    answered = "sglang:num_requests_total 1\nsglang:prompt_tokens_total 9\n"
    assert counted_of(read("sglang", answered).counters)["computed_tokens"] == 9


def test_a_release_that_finished_requests_and_shows_no_tokens_counts_none() -> None:
    older = read("trtllm", 'trtllm_request_success_total{finished_reason="stop"} 5\ntrtllm_num_requests_running 1\n')
    assert counted_of(older.counters)["requests_finished"] == 5
    assert not {"prompt_tokens", "cached_tokens", "generated_tokens"} & set(older.counters)


def test_only_the_resolved_arguments_of_sglang_become_knobs() -> None:
    info = {
        "model_path": "/models/llama",
        "served_model_name": "llama",
        "tp_size": 2,
        "dp_size": 1,
        "dtype": "auto",
        "quantization": "fp8",
        "kv_cache_dtype": "fp8_e4m3",
        "max_running_requests": 64,
        "mem_fraction_static": 0.85,
        "disable_radix_cache": False,
        "disable_cuda_graph": False,
        "api_key": "secret",
        "version": "0.5.23",
    }
    assert identity("sglang", None, {"/server_info": info}) == EngineIdentity(
        served_model="llama",
        version="0.5.23",
        model_path="/models/llama",
        knobs={
            "tp": 2,
            "dp": 1,
            "weight_dtype": "fp8",
            "kv_dtype": "fp8",
            "max_num_seqs": 64,
            "enforce_eager": False,
            "enable_prefix_caching": True,
        },
    )


def test_trtllm_is_read_from_what_its_collector_writes() -> None:
    assert counted("trtllm", "trtllm-collector") == CLIENTS | {
        "cached_tokens": 5120,
        "cached_device_tokens": 3840,
        "cached_host_tokens": 960,
        "cached_disk_tokens": 320,
        "computed_tokens": 1660,
        'requests_finished{reason="stop"}': 3,
        'requests_finished{reason="length"}': 37,
        "requests_failed": 2,
        'requests_failed{reason="400"}': 2,
        "spec_draft_tokens": 920,
        "spec_accepted_tokens": 600,
        "prefill_ms": 2500,
        "decode_ms": 78_750,
    }
    observed = histograms("trtllm", "trtllm-collector")
    assert {key.partition("{")[0] for key in observed} == {"ttft_s", "tpot_s", "e2e_s", "queue_s"}
    assert values("trtllm", "trtllm-collector").gauges == {"running": 8, "waiting": 2, "kv_use": 0.42}
    assert identity("trtllm", "trtllm-collector", {"/version": {"version": "1.3.0"}}) == EngineIdentity(
        served_model=None,
        version="1.3.0",
        model_path="/models/llama-70b",
        knobs={"tp": 4, "pp": 1, "max_model_len": 4096, "weight_dtype": "fp8", "enable_prefix_caching": True},
    )


def halves_of_trtllm() -> tuple[str, str]:
    """Return pages of a prefill and of a decode server, each of which saw all requests of the collector's page."""
    collected = (CAPTURES / "trtllm-collector.prom").read_text()
    prefill = re.sub('.*finished_reason="stop".*', "", collected)
    prefill = re.sub('finished_reason="length"(.*}) .*', r'finished_reason="not_finished"\1 40', prefill)
    prefill = re.sub(r"(trtllm_generation_tokens_total{.*}) .*", r"\1 40", prefill)
    decode = re.sub(r"(?m)^trtllm_prefill_batch_tokens_.*\n", "", collected)
    return prefill, re.sub(r"(trtllm_prompt_cache.*{.*}) .*", r"\1 0", decode)


def test_a_request_that_passes_a_prefill_and_a_decode_server_of_trtllm_counts_once_without_flags_of_either() -> None:
    prefill, decode = (counted_once(counted_of(read("trtllm", half).counters), {}) for half in halves_of_trtllm())
    whole = counted("trtllm", "trtllm-collector")
    assert (decode["transferred_tokens"], decode["prompt_tokens"], decode["cached_tokens"]) == (6780, 0, 0)
    assert (prefill["requests_prefilled"], prefill["requests_finished"], prefill["generated_tokens"]) == (40, 0, 0)
    for word in ("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished"):
        assert (prefill[word] or 0) + (decode[word] or 0) == whole[word], word


def test_requests_that_trtllm_ends_itself_keep_their_tokens_beside_those_it_prefills_for_another() -> None:
    page = "".join(
        f'trtllm_request_success_total{{finished_reason="{reason}"}} {count}\n'
        for reason, count in (("stop", 5), ("not_finished", 3))
    )
    counts = counted_once(counted_of(read("trtllm", page + "trtllm_generation_tokens_total 103\n").counters), {})
    assert (counts["requests_finished"], counts["requests_prefilled"], counts["generated_tokens"]) == (5, 3, 100)


def test_trtllm_without_iteration_statistics_keeps_its_prompts() -> None:
    page = "trtllm_prompt_tokens_total 90\ntrtllm_prompt_cached_tokens_total 30\n"
    counts = counted_of(read("trtllm", page).counters)
    assert (counts["prompt_tokens"], counts["cached_tokens"], counts.get("transferred_tokens")) == (90, 30, None)


@pytest.mark.parametrize(
    ("kind", "series", "counts"),
    [
        (
            "sglang",
            'sglang:cached_tokens_total{{cache_source="{}"}} {}\n',
            {"device": 1, "host": 2, "storage_file": 4, "storage": 8, "storage_mooncake": 16, "total": 32},
        ),
        (
            "vllm",
            'vllm:prompt_tokens_cached_by_source_total{{source="{}"}} {}\n',
            {"device": 1, "host": 2, "disk": 4, "external_unspecified": 24, "p2p": 64},
        ),
        (
            "trtllm",
            'trtllm_prompt_cache_hit_tokens_total{{cache_level="{0}",cache_tier="{0}"}} {1}\n',
            {"gpu": 1, "host": 2, "disk": 4},
        ),
    ],
)
def test_cached_tokens_are_counted_by_the_tier_that_a_page_names(
    kind: str, series: str, counts: dict[str, int]
) -> None:
    deltas = counted_of(read(kind, "".join(series.format(*pair) for pair in counts.items())).counters)
    tiers = {word: deltas.get(f"cached_{word}_tokens") for word in ("device", "host", "disk", "remote")}
    assert tiers == {"device": 1, "host": 2, "disk": 4, "remote": None if kind == "trtllm" else 24}


def test_a_page_without_tiers_leaves_them_unknown() -> None:
    for series in ("vllm:prompt_tokens_cached_total", "sglang:cached_tokens_total"):
        deltas = counted_of(read(series.partition(":")[0], f"{series} 5\n").counters)
        assert (deltas["cached_tokens"], deltas.get("cached_device_tokens")) == (5, None)


def test_external_tokens_of_a_cache_without_tiers_were_cached_outside() -> None:
    page = (
        'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"} 7\nlmcache:num_hit_tokens_total 7\n'
        "vllm:prompt_tokens_total 9\nvllm:prompt_tokens_cached_total 7\n"
    )
    deltas = counted_of(read("vllm", page).counters)
    assert (deltas["cached_remote_tokens"], deltas["cached_tokens"], deltas["prompt_tokens"]) == (7, 7, 9)


@pytest.mark.parametrize(("series", "word"), [("te_embed", "embedding_requests"), ("te_predict", "ranking_requests")])
def test_requests_of_embedding_and_of_ranking_are_counted_with_their_texts(series: str, word: str) -> None:
    page = f'te_request_success{{method="batch"}} 3\nte_request_success{{method="single"}} 8\n{series}_success 20\n'
    deltas = counted_of(read("tei", page).counters)
    assert (deltas[word], deltas["texts"], deltas["requests_finished"]) == (11, 20, 11)
    assert {"embedding_requests", "ranking_requests"} & set(deltas) == {word}


def test_a_frontend_counts_requests_for_embeddings_apart() -> None:
    series = 'dynamo_frontend_requests_total{{endpoint="{}",model="m",request_type="unary",status="{}"}} {}\n'
    rows = (("embeddings", "success", 9), ("embeddings", "error", 2), ("chat_completions", "success", 40))
    deltas = counted_of(read("dynamo-frontend", "".join(series.format(*row) for row in rows)).counters)
    assert deltas["embedding_requests"] == 9


def test_triton_exposes_its_queue_and_reports_that_it_counts_no_tokens() -> None:
    assert values("triton", "triton-written").gauges == {"running": 8, "waiting": 3, "kv_use": 0.25}
    deltas = counted("triton", "triton-written")
    assert (deltas["requests_finished"], deltas["requests_failed"]) == (40, 1)
    assert [deltas[word] for word in ("prompt_tokens", "cached_tokens", "computed_tokens")] == [None, None, None]
    assert ADAPTERS["triton"].no_tokens is not None


def test_tgi_tokens_are_the_sums_of_its_lengths() -> None:
    deltas = counted("tgi", "tgi-written")
    assert {word: deltas[word] for word in CLIENTS} == CLIENTS
    assert (deltas['requests_failed{reason="overloaded"}'], deltas["spec_accepted_tokens"]) == (2, 120)
    assert values("tgi", "tgi-written").gauges == {"running": 8, "waiting": 3}
    info = {"model_id": "org/m", "version": "3.3.7", "model_dtype": "torch.bfloat16", "max_total_tokens": 4096}
    assert identity("tgi", None, {"/info": info}) == EngineIdentity(
        served_model="org/m",
        version="3.3.7",
        model_path="org/m",
        knobs={"weight_dtype": "bf16", "max_model_len": 4096},
    )


def test_tgi_shares_of_prompts_that_were_cached_are_unknown() -> None:
    assert "cached_tokens" not in values("tgi", "tgi-written").counters


def test_lmdeploy_is_read_from_what_its_collector_writes() -> None:
    name = "lmdeploy-0.18.0-collector"
    deltas = counted("lmdeploy", name)
    assert {word for word in deltas if "{" not in word} == {
        *("prompt_tokens", "cached_tokens", "computed_tokens", "generated_tokens", "requests_finished"),
        *("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"),
        *("prefill_ms", "decode_ms"),
    }
    assert set(deltas.values()) == {0}
    assert values("lmdeploy", name).gauges == {"running": 0, "waiting": 0, "kv_use": 0}
    lengths, latencies = {"prompt_len", "generated_len", "step_tokens"}, {"ttft_s", "tpot_s", "e2e_s", "queue_s"}
    assert {key.partition("{")[0] for key in histograms("lmdeploy", name)} == lengths | latencies


def test_nim_of_both_generations_is_read() -> None:
    deltas = counted("nim", "nim-1-written")
    assert {word: deltas[word] for word in CLIENTS} == CLIENTS
    assert deltas["requests_failed"] == 2
    assert values("nim", "nim-1-written").gauges == {"running": 8, "waiting": 3, "kv_use": 0.42}
    assert ADAPTERS["nim"].models(page("nim", "nim-1-written")) == ("meta/llama-3.1-8b-instruct",)
    assert counted("nim", "vllm-0.32.0-metrics-after") == counted("vllm", "vllm-0.32.0-metrics-after")


def test_ray_replicas_of_one_model_add_up_and_several_models_are_distinguished() -> None:
    captured = (CAPTURES / "vllm-0.32.0-metrics-after.prom").read_text()
    renamed = re.sub(r"^vllm:", "ray_vllm_", captured, flags=re.M)
    replicas = [renamed.replace('engine="0"', f'ReplicaId="{name}",engine="0"') for name in "ab"]
    both = counted_of(read("ray", "".join(replicas)).counters)
    assert (both["prompt_tokens"], both["generated_tokens"]) == (2 * 6784, 2 * 2563)
    other = "".join([replicas[0], replicas[1].replace("tiny-llama", "other")])
    assert ADAPTERS["ray"].models(parse(other.encode(), ADAPTERS["ray"].wanted)) == ("other", "tiny-llama")


def test_a_dynamo_worker_counts_what_its_engine_counts() -> None:
    assert counted("dynamo-vllm", "vllm-0.32.0-metrics-after") == counted("vllm", "vllm-0.32.0-metrics-after")
    assert counted("dynamo-sglang", "sglang-0.5.23-collector") == counted("sglang", "sglang-0.5.23-collector")
    older = (CAPTURES / "trtllm-collector.prom").read_text().replace("trtllm_", "trtllm:")
    assert counted_of(read("dynamo-trtllm", older).counters) == counted("trtllm", "trtllm-collector")


def test_a_dynamo_frontend_counts_no_tokens_so_none_counts_twice() -> None:
    tested_on = values("dynamo-frontend", "dynamo-frontend-written")
    assert tested_on.counters == {}
    assert tested_on.gauges == {"running": 8, "waiting": 3}
    observed = histograms("dynamo-frontend", "dynamo-frontend-written")
    assert {key.partition("{")[0] for key in observed} == {"ttft_s", "prompt_len"}
    assert "DYN_SYSTEM_PORT" in (ADAPTERS["dynamo-frontend"].no_tokens or pytest.fail()).remedy  # type: ignore


def test_ollama_reports_the_loaded_models() -> None:
    model = {"name": "llama3.1:8b", "context_length": 8192, "details": {"quantization_level": "Q4_K_M"}}
    version = {"/api/version": {"version": "0.12.0"}}
    assert identity("ollama", None, {"/api/ps": {"models": [model]}, **version}) == EngineIdentity(
        served_model="llama3.1:8b", version="0.12.0", knobs={"weight_dtype": "int4", "max_model_len": 8192}
    )
    both = identity("ollama", None, {"/api/ps": {"models": [model, {"name": "gemma:2b"}]}})
    assert (both.served_model, both.knobs) == ("gemma:2b + llama3.1:8b", {})
    assert identity("ollama", None, {"/api/ps": {"models": []}}).served_model is None
    assert identity("ollama", None, {"/api/ps": ["?"]}).served_model is None


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (
            "nim",
            'prompt_tokens_total 5\ngeneration_tokens_total 2\nrequest_finish_total{finished_reason="stop"} 3\n',
            {"prompt_tokens": 5, "generated_tokens": 2, 'requests_finished{reason="stop"}': 3},
        ),
        (
            "ray",
            'ray_sglang_prompt_tokens_total{model_name="m"} 9\nray_sglang_generation_tokens_total{model_name="m"} 4\n',
            {'prompt_tokens{model_name="m"}': 9, 'generated_tokens{model_name="m"}': 4},
        ),
        (
            "ray",
            'ray_vllm:prompt_tokens_total{model_name="m"} 9\nray_vllm:generation_tokens_total{model_name="m"} 4\n',
            {'prompt_tokens{model_name="m"}': 9, 'generated_tokens{model_name="m"}': 4},
        ),
        (
            "llama.cpp",
            "llamacpp:prompt_tokens_total 9\nllamacpp:tokens_predicted_total 4\n",
            {"prompt_tokens": 9, "computed_tokens": 9, "generated_tokens": 4},
        ),
    ],
)
def test_series_under_other_names_of_a_release_or_a_wrapper_are_read(
    kind: str, text: str, expected: dict[str, int]
) -> None:
    adapter = ADAPTERS[kind]
    assert adapter.marks.search(text)
    assert read_page(adapter, parse(text.encode(), adapter.wanted, eof_required=False)).counters == expected


def test_an_embedding_server_counts_prompt_tokens_and_generates_none() -> None:
    info = {"/info": {"model_id": "org/embed", "version": "1.8.0", "model_dtype": "float16", "max_batch_tokens": 16384}}
    identity = ADAPTERS["tei"].identify(info.get, MetricsPage({}))
    assert (identity.served_model, identity.version) == ("org/embed", "1.8.0")
    assert identity.knobs == {"weight_dtype": "fp16", "max_num_batched_tokens": 16384}


@pytest.mark.parametrize(
    ("parallel", "dp"),
    [
        ({"data_parallel_size": 4}, 4),
        ({"data_parallel_size": 4, "data_parallel_external_lb": True}, 1),
        ({"data_parallel_size": 8, "data_parallel_size_local": 2, "data_parallel_hybrid_lb": True}, 2),
    ],
)
def test_vllm_reports_the_replicas_of_the_server_itself(parallel: dict[str, object], dp: int) -> None:
    document = {"vllm_config": {"parallel_config": parallel}}
    identity = ADAPTERS["vllm"].identify(lambda path: document if "server_info" in path else None, MetricsPage({}))
    assert identity.knobs["dp"] == dp


def test_sglang_reports_attention_replicas_inside_its_tensor_parallel_ranks() -> None:
    info = {"tp_size": 8, "dp_size": 4, "enable_dp_attention": True, "kv_cache_dtype": "fp4_e2m1"}
    identity = ADAPTERS["sglang"].identify(lambda path: info if path == "/server_info" else None, MetricsPage({}))
    assert identity.knobs == {"tp": 2, "dp": 4, "undetermined": "kv_dtype"}
