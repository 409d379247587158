"""NVIDIA Dynamo: workers, which run an engine and count its tokens, and the frontend before them, which never does.

A worker shows its engine's own series on its system port, so it is that engine at another address. The frontend
sees the same tokens again: it gives latencies and the queue, and tokens only at the workers, so that no sum over
both can count one twice.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from pertoken.agent.engines.adapters import sglang, trtllm, vllm
from pertoken.agent.engines.adapters.adapter import (
    Adapter,
    Counter,
    Gauge,
    GetJson,
    Identity,
    Metric,
    PageOrigin,
    invocation,
    pick,
    renamed,
    text,
)
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape.page import Page

_SOURCE = "documents of Dynamo 0.7 and newer (2026-11-21)"
_REMEDY = "start the workers with DYN_SYSTEM_PORT set (for example 8081): their metrics port is off by default"


def _runs(module: str) -> Callable[[Sequence[str]], bool]:
    return lambda argv: invocation(argv)[0] == module


def _worker(engine: Adapter, mark: str) -> Adapter:
    return replace(
        engine,
        kind=f"dynamo-{engine.kind}",
        tested_on=PageOrigin.DOCUMENTS,
        source=f"{_SOURCE}; the series are those of {engine.kind}",
        # Anchored: a lookahead that is tried at every character of a page takes seconds.
        marks=re.compile(rf"(?ms)\A(?=.*^dynamo_component_)(?=.*^{mark})"),
        metrics_off=_REMEDY,
        recognises=_runs(f"dynamo.{engine.kind}"),
        metrics_path="/metrics",
        metrics_off_status=None,
        never_read=None,
        owned_by=None,
    )


def _identify(get_json: GetJson, page: Page) -> Identity:
    return Identity(served_model=text(pick(get_json("/v1/models"), "data", 0, "id")))


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
    identify=_identify,
    metrics_off="send it a request: its series appear with the first",
    recognises=_runs("dynamo.frontend"),
    counters=(
        Counter(
            "embedding_requests",
            ("dynamo_frontend_requests_total",),
            where=(("endpoint", "embeddings"), ("status", "success")),
        ),
    ),
    gauges=(
        Gauge("running", ("dynamo_frontend_active_requests", "dynamo_frontend_inflight_requests")),
        Gauge("waiting", ("dynamo_frontend_queued_requests",)),
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
