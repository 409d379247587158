"""LMDeploy 0.18: its metrics are on unless switched off, and their names follow vLLM's."""

import re

from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    Adapter,
    Counter,
    EngineGauge,
    Metric,
    PageOrigin,
    identify_by_models,
    runs,
)

ADAPTER = Adapter(
    kind="lmdeploy",
    tested_on=PageOrigin.COLLECTOR,
    source="wheel 0.18.0 (2026-11-21)",
    marks=re.compile(r"^lmdeploy:", re.M),
    identify=identify_by_models,
    metrics_off="start lmdeploy without --disable-metrics (before 0.18: with --enable-metrics)",
    recognises=runs("lmdeploy", command=("serve", "api_server")),
    metrics_off_status=404,
    counters=(
        Counter("prompt_tokens", ("lmdeploy:prompt_tokens_total",)),
        Counter("cached_tokens", ("lmdeploy:cached_tokens_total",)),
        Counter("generated_tokens", ("lmdeploy:generation_tokens_total",)),
        Counter("requests_finished", ("lmdeploy:request_success_total",), reason="finished_reason"),
        Counter("prefill_ms", ("lmdeploy:request_prefill_time_seconds_sum",), unit=MILLISECOND),
        Counter("decode_ms", ("lmdeploy:request_decode_time_seconds_sum",), unit=MILLISECOND),
        Counter("spec_drafts", ("lmdeploy:spec_decode_num_drafts_total",)),
        Counter("spec_draft_tokens", ("lmdeploy:spec_decode_num_draft_tokens_total",)),
        Counter("spec_accepted_tokens", ("lmdeploy:spec_decode_num_accepted_tokens_total",)),
    ),
    gauges=(
        EngineGauge("running", ("lmdeploy:num_requests_running",)),
        EngineGauge("waiting", ("lmdeploy:num_requests_waiting",)),
        EngineGauge("kv_use", ("lmdeploy:gpu_cache_usage_perc",), combine=max),
    ),
    histograms=(
        Metric("ttft_s", ("lmdeploy:time_to_first_token_seconds",)),
        Metric("tpot_s", ("lmdeploy:iter_token_latency",)),
        Metric("e2e_s", ("lmdeploy:e2e_request_latency_seconds",)),
        Metric("prompt_len", ("lmdeploy:request_prompt_tokens",)),
        Metric("generated_len", ("lmdeploy:request_generation_tokens",)),
        Metric("queue_s", ("lmdeploy:request_queue_time_seconds",)),
        Metric("step_tokens", ("lmdeploy:iteration_tokens_total",)),
    ),
    owned_by="lmdeploy",
)
