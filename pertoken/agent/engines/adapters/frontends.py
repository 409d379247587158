"""Programs around other engines: NVIDIA Dynamo, NIM, Ray Serve and Triton.

A Dynamo worker shows its engine's own series on its system port, so it is that engine at another address. The
frontend before it sees the same tokens again: it gives latencies and the queue, and counts no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pertoken.agent.engines.adapters import sglang, trtllm, vllm
from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    Adapter,
    Counter,
    EngineGauge,
    EngineIdentity,
    GetJson,
    Metric,
    PageOrigin,
    identify_by_models,
    invocation,
    renamed,
    runs,
    text,
)
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape import MetricsPage

_SOURCE = "documents of Dynamo 0.7 and newer (2026-11-21)"
_REMEDY = "start the workers with DYN_SYSTEM_PORT set (for example 8081): their metrics port is off by default"


def _worker(engine: Adapter, mark: str) -> Adapter:
    return replace(
        engine,
        kind=f"dynamo-{engine.kind}",
        tested_on=PageOrigin.DOCUMENTS,
        source=f"{_SOURCE}; the series are those of {engine.kind}",
        # Anchored: a lookahead that is tried at every character of a page takes seconds.
        marks=re.compile(rf"(?ms)\A(?=.*^dynamo_component_)(?=.*^{mark})"),
        metrics_off=_REMEDY,
        recognises=runs(f"dynamo.{engine.kind}"),
        metrics_path="/metrics",
        metrics_off_status=None,
        never_read=None,
        owned_by=None,
    )


_OLDER_TRTLLM = renamed(trtllm.ADAPTER, lambda name: (name, name.replace("trtllm_", "trtllm:", 1)))
WORKERS = (
    _worker(vllm.ADAPTER, "vllm:"),
    _worker(sglang.ADAPTER, "sglang:"),
    _worker(_OLDER_TRTLLM, "trtllm[:_]"),
)
FRONTEND = Adapter(
    kind="dynamo-frontend",
    tested_on=PageOrigin.DOCUMENTS,
    source=_SOURCE,
    marks=re.compile(r"^dynamo_frontend_", re.M),
    identify=identify_by_models,
    metrics_off="send it a request: its series appear with the first",
    recognises=runs("dynamo.frontend"),
    counters=(
        Counter(
            "embedding_requests",
            ("dynamo_frontend_requests_total",),
            where=(("endpoint", "embeddings"), ("status", "success")),
        ),
    ),
    gauges=(
        EngineGauge("running", ("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests")),
        EngineGauge("waiting", ("dynamo_frontend_queued_requests",)),
    ),
    histograms=(
        Metric("ttft_s", ("dynamo_frontend_time_to_first_token_seconds",)),
        Metric("tpot_s", ("dynamo_frontend_inter_token_latency_seconds",)),
        Metric("e2e_s", ("dynamo_frontend_request_duration_seconds",)),
        Metric("prompt_len", ("dynamo_frontend_input_sequence_tokens",)),
        Metric("generated_len", ("dynamo_frontend_output_sequence_tokens",)),
    ),
    no_tokens=Unavailable("tokens", "missing", "a Dynamo frontend's tokens are counted at its workers", _REMEDY),
    model_label="model",
    several=True,
)


def _runs_nim(argv: Sequence[str]) -> bool:
    program, _ = invocation(argv)
    return program == "nim-serve" or program.startswith("vllm_nvext.")


def _with_reasons(counter: Counter) -> Counter:
    """Return a counter with the name under which 1.x has the reasons of finished requests."""
    if counter.name != "requests_finished":
        return counter
    return replace(
        counter, engine_names=("vllm:request_success_total", "request_finish_total", "request_success_total")
    )


_VLLM = renamed(vllm.ADAPTER, lambda name: (name, name.removeprefix("vllm:")))
NIM_ADAPTER: Adapter = replace(
    _VLLM,
    kind="nim",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of NIM 1.x and 2.x (2026-11-21)",
    marks=re.compile(r"^(vllm:|num_request_max|prompt_tokens_total|request_finish_total)", re.M),
    metrics_off="look at the metrics page that the documents of this NIM name: not every model's container has one",
    recognises=_runs_nim,
    metrics_path="/v1/metrics",
    counters=(
        *(_with_reasons(counter) for counter in _VLLM.counters),
        Counter("requests_failed", ("request_failure_total",)),
    ),
    owned_by=None,
)


def _names(name: str) -> tuple[str, ...]:
    return f"ray_{name.replace(':', '_')}", f"ray_{name}"


_RAY_VLLM, _SGLANG = renamed(vllm.ADAPTER, _names), renamed(sglang.ADAPTER, _names)
RAY_ADAPTER: Adapter = replace(
    _RAY_VLLM,
    counters=(*_RAY_VLLM.counters, *_SGLANG.counters),
    gauges=(*_RAY_VLLM.gauges, *_SGLANG.gauges),
    histograms=(*_RAY_VLLM.histograms, *_SGLANG.histograms),
    copies=_SGLANG.copies,
    kind="ray",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents and sources of Ray 2.51 (2026-11-21)",
    marks=re.compile(r"^ray_(vllm|sglang)[_:]", re.M),
    metrics_off="serve with Ray 2.51 or newer, or set log_engine_metrics; its series appear with the first request",
    recognises=runs("raylet"),
    owned_by=None,
    shared=True,
    several=True,
)


_BACKEND = ("model", "tensorrt_llm")
_REQUESTS = "nv_inference_request_success"


def _identify_by_requests(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    """Return the names of all models that served requests, for a page without a known backend."""
    names = {text(dict(labels).get("model")) for labels in page.samples.get(_REQUESTS, {})}
    return EngineIdentity(served_model=" + ".join(sorted(name for name in names if name is not None)) or None)


ADAPTER = Adapter(
    kind="triton",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of Triton's metrics and of its TensorRT-LLM and vLLM backends (2026-11-28)",
    marks=re.compile(r"^nv_(inference|trt_llm)_", re.M),
    identify=_identify_by_requests,
    metrics_off="start tritonserver without --allow-metrics=false, with a TensorRT-LLM or vLLM model",
    recognises=runs("tritonserver"),
    counters=(
        Counter("prompt_tokens", ("vllm:prompt_tokens_total",)),
        Counter("generated_tokens", ("vllm:generation_tokens_total",)),
        Counter("prefill_ms", ("vllm:time_to_first_token_seconds_sum",), unit=MILLISECOND),
        Counter("decode_ms", ("vllm:time_per_output_token_seconds_sum",), unit=MILLISECOND),
        Counter("requests_finished", ("vllm:e2e_request_latency_seconds_count",)),
        # Summed over requests, both phases in one; requests that run together overlap.
        Counter("decode_ms", ("nv_inference_compute_infer_duration_us",), where=(_BACKEND,), unit=1000),
        Counter("requests_finished", (_REQUESTS,), where=(_BACKEND,)),
        Counter("requests_failed", ("nv_inference_request_failure",), where=(_BACKEND,), reason="reason"),
    ),
    gauges=(
        EngineGauge("running", ("nv_trt_llm_request_metrics",), where=(("request_type", "scheduled"),)),
        EngineGauge("waiting", ("nv_trt_llm_request_metrics",), where=(("request_type", "waiting"),)),
        EngineGauge(
            "kv_use",
            ("nv_trt_llm_kv_cache_block_metrics",),
            where=(("kv_cache_block_type", "fraction"),),
            combine=max,
        ),
    ),
    histograms=(
        Metric("ttft_s", ("vllm:time_to_first_token_seconds",)),
        Metric("tpot_s", ("vllm:time_per_output_token_seconds",)),
        Metric("e2e_s", ("vllm:e2e_request_latency_seconds",)),
        Metric("prompt_len", ("vllm:request_prompt_tokens",)),
        Metric("generated_len", ("vllm:request_generation_tokens",)),
    ),
    no_tokens=Unavailable(
        "tokens",
        "missing",
        "of Triton's backends only vLLM's counts tokens",
        "serve the model with trtllm-serve, with `return_perf_metrics: true` in its --config file",
    ),
    model_label="model",
    several=True,
)
