"""SGLang, started with --enable-metrics.

Token counters grow only when a request finishes, and are not on the page before they first grow. Series of the
scheduler carry the rank: tensor-, pipeline- and expert-parallel ranks repeat the same numbers, data-parallel
ranks add up. Cached tokens are split by where they lay; a request without a known split counts as source
`total`, so all sources together count each request once.

Where prefill and decode are servers of their own, a request passes both and both count all of it: its prompt is
taken from the prefill half, what is generated and how it ends from the decode half.
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
    positive,
    text,
)
from pertoken.agent.scrape import MetricsPage
from pertoken.catalog.knobs import read_words

_PREFILL_HALF, _DECODE_HALF = (("engine_type", "prefill"),), (("engine_type", "decode"),)
_CACHED, _FILES = "sglang:cached_tokens_total", "storage_file"
_ARGS: Mapping[str, str] = {
    "tp": "tp_size",
    "pp": "pp_size",
    "dp": "dp_size",
    "max_num_seqs": "max_running_requests",
    "max_model_len": "context_length",
    "max_num_batched_tokens": "chunked_prefill_size",
}
"""Where `/server_info` keeps a whole number. It may hold keys: nothing else of it is read."""


def _identify(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    info, model = get_json("/server_info"), get_json("/model_info")
    weights = text(pick(info, "quantization")) or text(pick(info, "dtype"))
    eager, no_cache = pick(info, "disable_cuda_graph"), pick(info, "disable_radix_cache")
    knobs: dict[str, object] = {knob: positive(pick(info, name)) for knob, name in _ARGS.items()}
    if pick(info, "enable_dp_attention") is True:  # the replicas of attention are inside the tensor-parallel ranks
        tp, dp = positive(knobs["tp"]), positive(knobs["dp"]) or 1
        knobs["tp"] = tp // dp if tp is not None and tp % dp == 0 else None
    words = {"kv_dtype": "kv_cache_dtype", "attention_backend": "attention_backend"}
    reported = {knob: text(pick(info, name)) for knob, name in words.items()}
    knobs |= read_words("sglang", {"weight_dtype": weights, **reported})
    knobs["enforce_eager"] = eager if isinstance(eager, bool) else None
    knobs["enable_prefix_caching"] = not no_cache if isinstance(no_cache, bool) else None
    return EngineIdentity(
        served_model=text(pick(info, "served_model_name")) or text(pick(model, "served_model_name")),
        version=text(pick(info, "version")),
        model_path=text(pick(info, "model_path")) or text(pick(model, "model_path")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    programs = ("sglang.launch_server", "sglang_router.launch_server")
    return program in programs or (program == "sglang" and arguments[:1] == ("serve",))


ADAPTER = Adapter(
    kind="sglang",
    tested_on=PageOrigin.COLLECTOR,
    source="wheel 0.5.23 and its changes since 0.4.4, its documents of production metrics (2026-11-21)",
    marks=re.compile(r"^sglang:", re.M),
    identify=_identify,
    metrics_off="start sglang with --enable-metrics",
    recognises=_recognises,
    metrics_off_status=404,
    counters=(
        Counter("prompt_tokens", ("sglang:prompt_tokens_total",), elsewhere=_DECODE_HALF),
        Counter("cached_tokens", (_CACHED,), elsewhere=_DECODE_HALF),
        *(
            Counter(f"cached_{tier}_tokens", (_CACHED,), where=(("cache_source", source),), elsewhere=_DECODE_HALF)
            for tier, source in (("device", "device"), ("host", "host"), ("disk", _FILES))
        ),
        Counter(
            "cached_remote_tokens",
            (_CACHED,),
            where=(("cache_source", "storage*"),),
            elsewhere=(*_DECODE_HALF, ("cache_source", _FILES)),
        ),
        Counter("generated_tokens", ("sglang:generation_tokens_total",), elsewhere=_PREFILL_HALF),
        Counter(
            "engine_ms",
            ("sglang:forward_execution_seconds_total", "sglang:gpu_execution_seconds_total"),
            unit=MILLISECOND,
        ),
        Counter("prefill_ms", ("sglang:time_to_first_token_seconds_sum",), unit=MILLISECOND),
        Counter(
            "decode_ms",
            ("sglang:inter_token_latency_seconds_sum", "sglang:time_per_output_token_seconds_sum"),
            unit=MILLISECOND,
        ),
        Counter("requests_finished", ("sglang:num_requests_total",), elsewhere=_PREFILL_HALF),
        Counter("requests_failed", ("sglang:num_aborted_requests_total", "sglang:num_aborted_requests")),
        Counter("preemptions", ("sglang:num_retracted_requests_total",)),
        # By its own words: hits over the sum of all modes is the hit rate.
        Counter("prefix_queries", ("sglang:prefill_effective_tokens_total",)),
        *(
            Counter("prefix_hits", ("sglang:prefill_effective_tokens_total",), where=(("mode", f"{tier}_hit"),))
            for tier in ("device", "host", "storage")
        ),
        # With --enable-mfu-metrics.
        Counter("gflop_per_gpu", ("sglang:estimated_flops_per_gpu_total",), unit=1e9),
        Counter("read_mb_per_gpu", ("sglang:estimated_read_bytes_per_gpu_total",), unit=1e6),
        Counter("write_mb_per_gpu", ("sglang:estimated_write_bytes_per_gpu_total",), unit=1e6),
    ),
    gauges=(
        EngineGauge("running", ("sglang:num_running_reqs",), parts="priority"),
        EngineGauge("waiting", ("sglang:num_queue_reqs",), parts="priority"),
        EngineGauge("kv_use", ("sglang:token_usage",), combine=max),
    ),
    histograms=(
        Metric("ttft_s", ("sglang:time_to_first_token_seconds",)),
        Metric("tpot_s", ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")),
        Metric("e2e_s", ("sglang:e2e_request_latency_seconds",)),
        Metric("prompt_len", ("sglang:prompt_tokens_histogram",)),
        Metric("generated_len", ("sglang:generation_tokens_histogram",)),
        Metric("queue_s", ("sglang:queue_time_seconds",)),
    ),
    at_finish=frozenset(TOKENS),
    absent_is_zero=True,
    copies=frozenset({"tp_rank", "pp_rank", "moe_ep_rank"}),
    owned_by="sglang",
)
