import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import Identity, invocation
from pertoken.agent.rows.counters import advance, bucket_totals, bucket_values, word_totals
from pertoken.agent.scrape.page import PageError, parse
from tests.agent.engine_pages import growth, histograms, identity, values

VLLM, LLAMA = ADAPTERS["vllm"], ADAPTERS["llama.cpp"]


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
        "gflop_per_gpu": 0,
        "read_mb_per_gpu": 0,
        "write_mb_per_gpu": 0,
        "prefill_ms": 851,
        "decode_ms": 14_524,
        "steps": 327,
    }


def test_vllm_tokens_of_data_parallel_ranks_add_up() -> None:
    grown = growth("vllm", "vllm-0.32.0-dp2-api2-before", "vllm-0.32.0-dp2-api2-after")
    assert (grown["prompt_tokens"], grown["generated_tokens"], grown["cached_tokens"]) == (4116, 1094, 2944)
    assert grown["requests_finished"] == 24


def test_vllm_prompts_computed_again_after_preemption_are_not_counted_again() -> None:
    grown = growth("vllm", "vllm-0.32.0-preempt-before", "vllm-0.32.0-preempt-after")
    assert (grown["prompt_tokens"], grown["preemptions"]) == (10110 + 144, 80)


def test_vllm_gauges_are_read_while_it_is_busy() -> None:
    assert values("vllm", "vllm-0.32.0-metrics-during").gauges["running"] == 8
    assert values("vllm", "vllm-0.32.0-metrics-during").gauges["waiting"] == 8
    assert values("vllm", "vllm-0.32.0-preempt-during").gauges["kv_use"] == 1.0


def test_ranks_are_series_of_their_own() -> None:
    counters = values("vllm", "vllm-0.32.0-dp2-api2-after").counters
    assert counters['generated_tokens{engine="0",model_name="tiny-llama"}'] == 572
    assert counters['generated_tokens{engine="1",model_name="tiny-llama"}'] == 522


def test_vllm_histograms_count_each_request_once() -> None:
    before, after = (histograms("vllm", f"vllm-0.32.0-metrics-{when}") for when in ("before", "after"))
    states = advance({}, bucket_values(before), owner_id=1, life=5, ts=1, from_zero=False, elapsed_s=60).states
    taken = advance(states, bucket_values(after), owner_id=1, life=5, ts=2, from_zero=False, elapsed_s=60)
    observed = {word: sum(counts) for (word, _), counts in bucket_totals(after, taken.deltas).items()}
    assert observed == {"ttft_s": 41, "tpot_s": 2522, "e2e_s": 40, "prompt_len": 40, "generated_len": 40}


def test_older_names_of_vllm_mean_the_same() -> None:
    old = values("vllm", "vllm-0.9-older-names")
    grown = advance({}, old.counters, owner_id=1, life=9, ts=1, from_zero=True, elapsed_s=60).deltas
    assert tokens(word_totals(grown)) == {
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


def test_of_a_current_and_an_older_name_on_one_page_only_the_current_counts() -> None:
    body = b"vllm:prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_hits_total 5\n"
    assert VLLM.read(parse(body, VLLM.wanted)).counters == {"cached_tokens": 5, "prefix_hits": 5}


def test_llama_cpp_tokens_are_computed_cached_and_generated() -> None:
    assert growth("llama.cpp", "llamacpp-metrics-before", "llamacpp-metrics-after") == {
        "prompt_tokens": 8283 + 49879,
        "cached_tokens": 49879,
        "computed_tokens": 8283,
        "generated_tokens": 86695,
        "prefill_ms": 698,
        "decode_ms": 82_790,
        "steps": 21_979,
        **dict.fromkeys(("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"), 0),
    }
    assert growth("llama.cpp", "llama-server-0.5.0dev-ngram-before", "llama-server-0.5.0dev-ngram-after") == {
        "prompt_tokens": 2867 + 14229,
        "cached_tokens": 14229,
        "computed_tokens": 2867,
        "generated_tokens": 18855,
        "prefill_ms": 144,
        "decode_ms": 14_300,
        "steps": 5_289,
        **dict.fromkeys(("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"), 0),
    }
    assert values("llama.cpp", "llamacpp-metrics-during").gauges == {
        "running": 4,
        "waiting": 12,
        "requests_per_step": 3.76382,
    }


def test_a_counter_that_is_not_a_number_refuses_the_whole_page() -> None:
    body = b'vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} NaN\n'
    with pytest.raises(PageError):
        VLLM.read(parse(body, VLLM.wanted))


def test_a_time_that_is_not_a_number_leaves_the_tokens_alone() -> None:
    body = b"vllm:generation_tokens_total 5\nvllm:inter_token_latency_seconds_sum NaN\n"
    assert VLLM.read(parse(body, VLLM.wanted)).counters == {"generated_tokens": 5}


def test_vllm_tells_its_model_its_version_and_what_its_command_line_left_to_it() -> None:
    told = identity(
        "vllm",
        "vllm-0.32.0-metrics-after",
        {"/v1/models": "vllm-0.32.0-v1-models.json", "/version": "vllm-0.32.0-version.json"},
    )
    assert told == Identity(
        served_model="tiny-llama",
        version="0.32.0",
        model_path="/models/tiny-llama",
        knobs={"max_model_len": 1024, "gpu_memory_utilization": 0.92, "enable_prefix_caching": True},
    )


def test_vllm_in_development_mode_tells_every_knob_and_nothing_else() -> None:
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


def test_llama_cpp_tells_its_slots_their_context_and_its_parameters() -> None:
    replies = {"/props": "llamacpp-props.json", "/v1/models": "llamacpp-v1-models.json"}
    assert identity("llama.cpp", "llamacpp-metrics-after", replies) == Identity(
        served_model="tiny-llama",
        version="b0-unknown",
        model_path="tiny.gguf",
        model_facts={"params_total": 373120},
        knobs={"max_num_seqs": 4, "max_model_len": 1024, "weight_dtype": "fp32"},
    )


def test_a_reply_of_another_shape_tells_nothing() -> None:
    def ask(path: str) -> object:
        return {"data": "no", "total_slots": "four", "vllm_config": ["tp"], "version": 3}

    page = parse(b"", frozenset())
    assert VLLM.identify(ask, page) == LLAMA.identify(ask, page) == Identity(served_model=None)


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ("vllm serve m", "vllm"),
        ("/opt/venv/bin/python3.12 /opt/venv/bin/vllm serve m", "vllm"),
        ("python -u -X dev -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python3 -m vllm.entrypoints.cli.main serve m", "vllm"),
        ("/usr/local/bin/llama-server -m m.gguf", "llama.cpp"),
        ("python3 -m sglang.launch_server --model-path m --tp 2", "sglang"),
        ("sglang serve --model-path m", "sglang"),
        ("python3 /usr/local/bin/trtllm-serve m --tp_size 2", "trtllm"),
        ("/opt/tritonserver/bin/tritonserver --model-repository=/models", "triton"),
        ("text-generation-launcher --model-id m", "tgi"),
        ("text-generation-router --port 80", "tgi"),
        ("python3 /opt/lmdeploy/bin/lmdeploy serve api_server m --tp 2", "lmdeploy"),
        ("python3 -m vllm_nvext.entrypoints.openai.api_server", "nim"),
        ("python3 -m dynamo.frontend --http-port 8000", "dynamo-frontend"),
        ("python3 -m dynamo.vllm --model m", "dynamo-vllm"),
        ("python3 -m dynamo.sglang --model-path m", "dynamo-sglang"),
        ("python3 -m dynamo.trtllm --model-path m", "dynamo-trtllm"),
        ("/site-packages/ray/core/src/ray/raylet/raylet --metrics_export_port=8080", "ray"),
        ("/usr/local/bin/ollama serve", "ollama"),
        ("ollama run m", None),
        ("lmdeploy chat m", None),
        ("trtllm-bench m", None),
        ("vllm bench serve", None),
        ("vllm", None),
        ("uv run vllm serve m", None),
        ("python -m", None),
        ("grep vllm serve", None),
        ("vim llama-server", None),
    ],
)
def test_servers_are_recognised_by_what_they_run(argv: str, kind: str | None) -> None:
    assert next((each.kind for each in ADAPTERS.values() if each.recognises(argv.split())), None) == kind


def test_no_command_line_runs_nothing() -> None:
    assert invocation(()) == ("", ())


counts = st.one_of(st.none(), st.integers(0, 1000))


@given(prompt=counts, cached=counts, computed=counts)
def test_tokens_add_up_and_are_never_negative(prompt: int | None, cached: int | None, computed: int | None) -> None:
    if prompt is not None and computed is not None:
        computed = None  # no engine counts both
    filled = tokens({"prompt_tokens": prompt, "cached_tokens": cached, "computed_tokens": computed})
    known = [filled[word] for word in ("prompt_tokens", "cached_tokens", "computed_tokens")]
    assert all(value is None or value >= 0 for value in known)
    if None not in known:
        assert filled["prompt_tokens"] == (filled["cached_tokens"] or 0) + (filled["computed_tokens"] or 0)
    if prompt is not None and cached is not None and cached > prompt:
        assert filled["computed_tokens"] is None


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
