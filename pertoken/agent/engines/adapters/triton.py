"""NVIDIA Triton with the TensorRT-LLM or the vLLM backend: its metrics port, 8002. Each model is an engine to us.

The TensorRT-LLM backend has a queue and a KV cache to show, but counts no tokens. Requests are those of the backend's
own model, by its usual name: the ensemble around it and its pre- and postprocessing count the same requests again. The
vLLM backend shows some of vLLM's series, under Triton's labels.
"""

import re
from collections.abc import Sequence

from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    Adapter,
    Counter,
    Gauge,
    GetJson,
    Identity,
    Metric,
    PageOrigin,
    invocation,
    text,
)
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape.page import Page

_BACKEND = ("model", "tensorrt_llm")
_REQUESTS = "nv_inference_request_success"


def _identify(get_json: GetJson, page: Page) -> Identity:
    """Return the names of all models that served requests, for a page on which no backend is known."""
    names = {text(dict(labels).get("model")) for labels in page.samples.get(_REQUESTS, {})}
    return Identity(served_model=" + ".join(sorted(name for name in names if name is not None)) or None)


def _recognises(argv: Sequence[str]) -> bool:
    return invocation(argv)[0] == "tritonserver"


ADAPTER = Adapter(
    kind="triton",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of Triton's metrics and of its TensorRT-LLM and vLLM backends (2026-11-28)",
    marks=re.compile(r"^nv_(inference|trt_llm)_", re.M),
    identify=_identify,
    metrics_off="start tritonserver without --allow-metrics=false, with a TensorRT-LLM or vLLM model",
    recognises=_recognises,
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
        Gauge("running", ("nv_trt_llm_request_metrics",), where=(("request_type", "scheduled"),)),
        Gauge("waiting", ("nv_trt_llm_request_metrics",), where=(("request_type", "waiting"),)),
        Gauge(
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
