import pytest
from hypothesis import given

from pertoken.agent.engines.adapters import ADAPTERS, tokens
from pertoken.agent.engines.adapters.adapter import EngineIdentity, invocation
from pertoken.agent.scrape import PageError, parse
from tests.agent.engine_pages import values
from tests.agent.engines.adapters.builders import counts

VLLM, LLAMA = ADAPTERS["vllm"], ADAPTERS["llama.cpp"]


def test_ranks_are_series_of_their_own() -> None:
    counters = values("vllm", "vllm-0.32.0-dp2-api2-after").counters
    assert counters['generated_tokens{engine="0",model_name="tiny-llama"}'] == 572
    assert counters['generated_tokens{engine="1",model_name="tiny-llama"}'] == 522


def test_of_a_current_and_an_older_name_on_one_page_only_the_current_counts() -> None:
    body = b"vllm:prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_hits_total 5\n"
    assert VLLM.counters_of(parse(body, VLLM.wanted)) == {"cached_tokens": 5, "prefix_hits": 5}


def test_a_counter_that_is_not_a_number_refuses_the_whole_page() -> None:
    body = b'vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} NaN\n'
    with pytest.raises(PageError):
        VLLM.counters_of(parse(body, VLLM.wanted))


def test_a_time_that_is_not_a_number_leaves_the_tokens_alone() -> None:
    body = b"vllm:generation_tokens_total 5\nvllm:inter_token_latency_seconds_sum NaN\n"
    assert VLLM.counters_of(parse(body, VLLM.wanted)) == {"generated_tokens": 5}


def test_a_reply_of_another_shape_gives_no_identity() -> None:
    def ask(path: str) -> object:
        return {"data": "no", "total_slots": "four", "vllm_config": ["tp"], "version": 3}

    page = parse(b"", frozenset())
    assert VLLM.identify(ask, page) == LLAMA.identify(ask, page) == EngineIdentity(served_model=None)


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
    assert next((adapter.kind for adapter in ADAPTERS.values() if adapter.recognises(argv.split())), None) == kind


def test_no_command_line_runs_nothing() -> None:
    assert invocation(()) == ("", ())


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
