"""TensorRT-LLM's own server, trtllm-serve, since it counts tokens (2026-03).

Its `/metrics` is a queue of iteration statistics that is empty after whoever reads it, so it is never asked; the
counters are at `/prometheus/metrics` where they are switched on. Tokens are counted when a request finishes.
"""

import re
from collections.abc import Mapping, Sequence

from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    TOKENS,
    Adapter,
    Counter,
    EngineGauge,
    EngineIdentity,
    GetJson,
    Metric,
    PageOrigin,
    invocation,
    pick,
    text,
)
from pertoken.agent.scrape import MetricsPage
from pertoken.catalog.knobs import read_words

_INFO = (
    "trtllm_model_config_info",
    "trtllm_parallel_config_info",
    "trtllm_kv_cache_config_info",
    "trtllm_cache_config_info",
)
_PROMPT, _CACHED = "trtllm_prompt_tokens_total", "trtllm_prompt_cached_tokens_total"
_ENDED = "trtllm_request_success_total"
_PREFILL_ONLY = (("finished_reason", "not_finished"),)
"""Label of requests that a server computed the prompt of, and handed on to a decode server."""
_CONTEXT_TOKENS, _PREFILLED = "trtllm_total_context_tokens", "trtllm_prefill_batch_tokens_sum"
"""Tokens that the last iteration prefilled, and that all iterations did: on a page from the first one on."""
_WHOLE: Mapping[str, str] = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "max_model_len": "max_model_len",
}


def _identify(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    labels = {name: value for info in _INFO for series in page.samples.get(info, {}) for name, value in series}
    quantized = labels.get("quantization", "none").lower()
    weights = labels.get("dtype") if quantized in ("none", "") else quantized
    knobs: dict[str, object] = {
        knob: int(labels[name])
        for knob, name in _WHOLE.items()
        if re.fullmatch("[1-9][0-9]{0,17}", labels.get(name, ""))
    }
    knobs |= read_words("trtllm", {"weight_dtype": weights})
    knobs["enable_prefix_caching"] = {"true": True, "false": False}.get(labels.get("enable_block_reuse", "").lower())
    return EngineIdentity(
        served_model=text(pick(get_json("/v1/models"), "data", 0, "id")),
        version=text(pick(get_json("/version"), "version")),
        model_path=text(labels.get("model")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    return program in ("trtllm-serve", "tensorrt_llm.commands.serve") and arguments[:1] not in (
        ("disaggregated",),
        ("disaggregated_mpi_worker",),
    )


ADAPTER = Adapter(
    kind="trtllm",
    tested_on=PageOrigin.COLLECTOR,
    source="the metrics collector in its repository (2026-11-28)",
    marks=re.compile(r"^trtllm_", re.M),
    identify=_identify,
    metrics_off="give trtllm-serve a --config file with `return_perf_metrics: true` and `enable_iter_perf_stats: true`",
    recognises=_recognises,
    metrics_path="/prometheus/metrics",
    metrics_off_status=404,
    never_read="/metrics",
    counters=(
        Counter("prompt_tokens", (_PROMPT,)),
        Counter("cached_tokens", (_CACHED,), only_with=(_PREFILLED,)),
        Counter("cached_tokens", (_CACHED,), unless=(_CONTEXT_TOKENS,)),
        *(
            Counter(f"cached_{tier}_tokens", ("trtllm_prompt_cache_hit_tokens_total",), where=(("cache_tier", name),))
            for tier, name in (("device", "gpu"), ("host", "host"), ("disk", "disk"))
        ),
        # With iteration statistics and no prefill among them, other servers computed all prompts.
        Counter("transferred_tokens", (_PROMPT,), only_with=(_CONTEXT_TOKENS,), unless=(_PREFILLED,)),
        Counter("generated_tokens", ("trtllm_generation_tokens_total",)),
        Counter("prefill_ms", ("trtllm_request_prefill_time_seconds_sum",), unit=MILLISECOND),
        Counter("decode_ms", ("trtllm_request_decode_time_seconds_sum",), unit=MILLISECOND),
        Counter("requests_finished", (_ENDED,), reason="finished_reason", elsewhere=_PREFILL_ONLY),
        Counter("requests_prefilled", (_ENDED,), where=_PREFILL_ONLY),
        Counter("requests_failed", ("trtllm_request_error_total",), reason="http_code"),
        Counter("spec_draft_tokens", ("trtllm_spec_decode_num_draft_tokens_total",)),
        Counter("spec_accepted_tokens", ("trtllm_spec_decode_num_accepted_tokens_total",)),
    ),
    gauges=(
        EngineGauge("running", ("trtllm_num_requests_running",)),
        EngineGauge("waiting", ("trtllm_num_requests_waiting",)),
        EngineGauge("kv_use", ("trtllm_kv_cache_utilization",), combine=max),
    ),
    histograms=(
        Metric("ttft_s", ("trtllm_time_to_first_token_seconds",)),
        Metric("tpot_s", ("trtllm_time_per_output_token_seconds",)),
        Metric("e2e_s", ("trtllm_e2e_request_latency_seconds",)),
        Metric("queue_s", ("trtllm_request_queue_time_seconds",)),
    ),
    limits=(
        "Where one server prefills for another, both count the prompt. A server whose page has iteration statistics, "
        "and no prefill among them, received all its prompts: their tokens count as transferred. Requests that end as "
        "`not_finished` end at the decode server, which counts their first token. Without `enable_iter_perf_stats` a "
        "decode server is known by --server_role alone."
    ),
    at_finish=frozenset(TOKENS),
    absent_is_zero=True,
    owned_by="tensorrt_llm",
    info=_INFO,
)
