"""NVIDIA Triton with the TensorRT-LLM backend: its metrics port, 8002.

It has a queue and a KV cache to show, but counts no tokens. Requests are those of the backend's own model, by its
usual name: the ensemble around it and its pre- and postprocessing count the same requests again.
"""

import re
from collections.abc import Sequence

from pertoken.agent.engines.adapters.adapter import Adapter, Counter, Gauge, GetJson, Identity, PageOrigin, invocation
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape.page import Page

_BACKEND = ("model", "tensorrt_llm")


def _identify(get_json: GetJson, page: Page) -> Identity:
    return Identity(served_model=None)


def _recognises(argv: Sequence[str]) -> bool:
    return invocation(argv)[0] == "tritonserver"


ADAPTER = Adapter(
    kind="triton",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of Triton's metrics and of its TensorRT-LLM backend (2026-11-21)",
    marks=re.compile(r"^nv_(inference|trt_llm)_", re.M),
    identify=_identify,
    metrics_off="start tritonserver without --allow-metrics=false, with a TensorRT-LLM model",
    recognises=_recognises,
    counters=(
        # Summed over requests, both phases in one; requests that run together overlap.
        Counter("decode_ms", ("nv_inference_compute_infer_duration_us",), where=(_BACKEND,), unit=1000),
        Counter("requests_finished", ("nv_inference_request_success",), where=(_BACKEND,)),
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
    no_tokens=Unavailable(
        "tokens",
        "missing",
        "Triton's TensorRT-LLM backend counts no tokens",
        "serve the model with trtllm-serve, with `return_perf_metrics: true` in its --config file",
    ),
    model_label="model",
)
