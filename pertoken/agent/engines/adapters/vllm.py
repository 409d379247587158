"""vLLM: its names of today (0.32) and of the releases since 0.8, and its exposed configuration.

Series carry `engine` (the data-parallel rank: their sum is the deployment, whatever the number of API servers) and
`model_name` (the first served name). `prompt_tokens` include cached ones. An aborted request is not counted as
finished, its tokens are. Speculative counters are there where a draft is configured; FLOPs and bytes stay at 0
without --enable-mfu-metrics.
"""

import re
from collections.abc import Mapping, Sequence

from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    Adapter,
    Counter,
    EngineGauge,
    EngineIdentity,
    GetJson,
    Metric,
    PageOrigin,
    adapters_of,
    invocation,
    pick,
    positive,
    text,
)
from pertoken.agent.scrape import MetricsPage
from pertoken.catalog.knobs import merged, read_words
from pertoken.store.schema.shared import CONNECTOR

_CACHE_CONFIG = "vllm:cache_config_info"
_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
"""Prompt tokens by where they came from, counted together with the prompt."""
_EXTERNAL = (("source", "external_kv_transfer"),)
_BY_TIER = "vllm:prompt_tokens_cached_by_source_total"
"""Cached prompt tokens by the tier that supplied them: `p2p` is another vLLM server.

Counted at admission, up to some readings before the prompt, so that these only limit the count of a source."""
_CACHED = "vllm:prompt_tokens_cached_total"
_EXTERNAL_HITS = "vllm:external_prefix_cache_hits_total"
"""Prompt tokens that a connector supplied, beside the hits of the server's own prefix cache."""
_NIXL = "vllm:nixl_bytes_transferred_sum"
"""On pages of servers that receive KV caches from prefill servers by NIXL."""
_OTHER_CACHES = (
    "lmcache:num_hit_tokens_total",
    "vllm:kv_offload_total_bytes_total",
    "vllm:kv_offload_load_bytes_total",
)
"""On pages of servers with external tokens from a cache: LMCache, or memory of the host."""
_CONFIG: Mapping[str, tuple[str, str]] = {
    "tp": ("parallel_config", "tensor_parallel_size"),
    "pp": ("parallel_config", "pipeline_parallel_size"),
    "dp": ("parallel_config", "data_parallel_size"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max_model_len": ("model_config", "max_model_len"),
    "enable_chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "gpu_memory_utilization": ("cache_config", "gpu_memory_utilization"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
}
"""Where `/server_info` keeps a knob. Nothing else of it is read: it holds the environment, secrets included."""


def _identify(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    models = get_json("/v1/models")
    config = pick(get_json("/server_info?config_format=json"), "vllm_config")
    reported: dict[str, object] = {
        **_from_cache_config(page),
        "max_model_len": positive(pick(models, "data", 0, "max_model_len")),
        "lora_adapters": adapters_of(models),
    }
    knobs = merged(reported, _from_server_info(config))
    if _NIXL in page.samples:
        knobs[CONNECTOR] = "NixlConnector"
    return EngineIdentity(
        served_model=text(pick(models, "data", 0, "id")),
        version=text(pick(get_json("/version"), "version")),
        model_path=text(pick(models, "data", 0, "root")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _from_cache_config(page: MetricsPage) -> dict[str, object]:
    labels = next((dict(labels) for labels in page.samples.get(_CACHE_CONFIG, {})), {})
    share = labels.get("gpu_memory_utilization", "")
    return {
        **read_words("vllm", {"kv_dtype": labels.get("cache_dtype")}),
        "gpu_memory_utilization": float(share) if share.replace(".", "", 1).isdecimal() else None,
        "enable_prefix_caching": {"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
    }


def _from_server_info(config: object) -> dict[str, object]:
    knobs = {knob: pick(config, *path) for knob, path in _CONFIG.items()}
    # Quantized weights keep the dtype of their activations beside them, which does not describe the weights.
    weights = text(pick(config, "model_config", "quantization")) or text(pick(config, "model_config", "dtype"))
    knobs["dp"] = _own_replicas(pick(config, "parallel_config"), knobs["dp"])
    scalars = {knob: value for knob, value in knobs.items() if isinstance(value, bool | int | float | str)}
    attention = text(pick(config, "attention_config", "backend"))
    return scalars | read_words("vllm", {"weight_dtype": weights, "attention_backend": attention})


def _own_replicas(parallel: object, replicas: object) -> object:
    """Return the data-parallel replicas of this server, of all that a load balancer outside of it has."""
    if pick(parallel, "data_parallel_external_lb") is True:
        return 1
    return pick(parallel, "data_parallel_size_local") if pick(parallel, "data_parallel_hybrid_lb") is True else replicas


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    if program in ("vllm", "vllm.entrypoints.cli.main"):
        return arguments[:1] == ("serve",)
    # KServe's server runs vLLM in itself and takes its flags.
    servers = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "huggingfaceserver")
    return program in servers


ADAPTER = Adapter(
    kind="vllm",
    tested_on=PageOrigin.LIVE,
    source="wheels 0.8.5 to 0.32.0, pages captured from 0.32.0 (2026-11-21)",
    marks=re.compile(r"^vllm:", re.M),
    identify=_identify,
    metrics_off="start vllm without --disable-log-stats",
    recognises=_recognises,
    counters=(
        Counter("prompt_tokens", ("vllm:prompt_tokens_total",)),
        Counter("cached_tokens", (_CACHED,)),
        Counter(
            "cached_tokens",
            ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            unless=(_CACHED,),
            plus=(_EXTERNAL_HITS,),
        ),
        Counter("transferred_tokens", (_BY_SOURCE,), where=_EXTERNAL, unless=(_BY_TIER, *_OTHER_CACHES)),
        Counter(
            "transferred_tokens",
            (_BY_SOURCE,),
            where=_EXTERNAL,
            only_with=(_BY_TIER,),
            at_most=(
                Counter("transferred_tokens", (_BY_TIER,), where=(("source", "p2p"),)),
                # A connector that does not name its tier, beside NIXL's transfers between servers.
                Counter(
                    "transferred_tokens", (_BY_TIER,), where=(("source", "external_unspecified"),), only_with=(_NIXL,)
                ),
            ),
        ),
        Counter("transferred_tokens", (_BY_TIER,), where=(("source", "p2p"),), unless=(_BY_SOURCE,)),
        Counter(
            "transferred_tokens",
            (_EXTERNAL_HITS,),
            only_with=(_NIXL,),
            unless=(_BY_SOURCE, _BY_TIER, *_OTHER_CACHES),
        ),
        *(
            Counter(f"cached_{tier}_tokens", (_BY_TIER,), where=(("source", tier),))
            for tier in ("device", "host", "disk")
        ),
        Counter("cached_remote_tokens", (_BY_TIER,), where=(("source", "external_unspecified"),), unless=(_NIXL,)),
        Counter("cached_remote_tokens", (_BY_SOURCE,), where=_EXTERNAL, only_with=_OTHER_CACHES, unless=(_BY_TIER,)),
        Counter("generated_tokens", ("vllm:generation_tokens_total",)),
        Counter("requests_finished", ("vllm:request_success_total",), reason="finished_reason"),
        Counter("requests_failed", ("vllm:admission_rejections_total",), reason="reason"),
        Counter("preemptions", ("vllm:num_preemptions_total",)),
        Counter("prefix_queries", ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")),
        Counter("prefix_hits", ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")),
        Counter("media_lookups", ("vllm:mm_cache_queries_total",)),
        Counter("media_hits", ("vllm:mm_cache_hits_total",)),
        Counter(
            "prefill_ms",
            ("vllm:request_prefill_time_seconds_sum", "vllm:time_to_first_token_seconds_sum"),
            unit=MILLISECOND,
        ),
        Counter(
            "decode_ms",
            ("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
            unit=MILLISECOND,
        ),
        Counter("steps", ("vllm:iteration_tokens_total_count",)),
        Counter("spec_drafts", ("vllm:spec_decode_num_drafts_total",)),
        Counter("spec_draft_tokens", ("vllm:spec_decode_num_draft_tokens_total",)),
        Counter("spec_accepted_tokens", ("vllm:spec_decode_num_accepted_tokens_total",)),
        # 64 bits hold the FLOPs of a large GPU for hours only, and its bytes for days.
        Counter("gflop_per_gpu", ("vllm:estimated_flops_per_gpu_total",), unit=1e9),
        Counter("read_mb_per_gpu", ("vllm:estimated_read_bytes_per_gpu_total",), unit=1e6),
        Counter("write_mb_per_gpu", ("vllm:estimated_write_bytes_per_gpu_total",), unit=1e6),
    ),
    gauges=(
        EngineGauge("running", ("vllm:num_requests_running",)),
        EngineGauge("waiting", ("vllm:num_requests_waiting",)),
        EngineGauge("kv_use", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), combine=max),
        EngineGauge("awake", ("vllm:engine_sleep_state",), where=(("sleep_state", "awake"),), combine=max),
    ),
    histograms=(
        Metric("ttft_s", ("vllm:time_to_first_token_seconds",)),
        Metric("tpot_s", ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")),
        Metric("e2e_s", ("vllm:e2e_request_latency_seconds",)),
        Metric("prompt_len", ("vllm:request_prompt_tokens",)),
        Metric("generated_len", ("vllm:request_generation_tokens",)),
        Metric("queue_s", ("vllm:request_queue_time_seconds",)),
        Metric("max_tokens", ("vllm:request_params_max_tokens",)),
        Metric("step_tokens", ("vllm:iteration_tokens_total",)),
        # With --kv-cache-metrics, of sampled blocks.
        Metric("kv_reuse_gap_s", ("vllm:kv_block_reuse_gap_seconds",)),
    ),
    limits=(
        "Where one server prefills for another, both count the prompt. Tokens that the second one received are no part "
        "of its prompt or cached tokens and count as transferred: by the tier `p2p` where cached tokens have tiers "
        "(0.32), before that, since 0.17, all external tokens of a page without series of another cache; of older "
        "servers the hits of NIXL's connector, or all prompt tokens of a server whose command line makes it a KV "
        "consumer. What a prefill server generates, a token for each request, and the ends of its requests count at "
        "the decode server. Of vLLM-Omni's stages the first one counts the tokens and requests. A request for several "
        "samples (`n` above 1) is a request of its own for each sample, "
        "as the engine counts it: its prompt counts once per sample, all but the first mostly as cached tokens."
    ),
    # Of vLLM-Omni, whose stages are engines that hand one request on.
    stages=("stage", "stage_id"),
    staged=("vllm:omni_num_requests_running", "vllm_omni:num_requests_running"),
    owned_by="vllm",
    info=(_CACHE_CONFIG,),
)
