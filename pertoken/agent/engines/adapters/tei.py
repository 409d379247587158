"""Text Embeddings Inference: prompt tokens are the sum of its batches' lengths; it generates none.

A request is one of embedding, reranking or classification. Its series appear with the first request.
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
    pick,
    positive,
    text,
)
from pertoken.agent.scrape.page import Page
from pertoken.catalog.knobs import read_words

_EMBEDDED, _RANKED = ("te_embed_success",), ("te_predict_success",)
"""Texts of requests; a server has a model of one kind."""


def _identify(get_json: GetJson, page: Page) -> Identity:
    info = get_json("/info")
    model = text(pick(info, "model_id"))
    knobs = {
        **read_words("tei", {"weight_dtype": text(pick(info, "model_dtype"))}),
        "max_num_batched_tokens": positive(pick(info, "max_batch_tokens")),
        "max_model_len": positive(pick(info, "max_input_length")),
    }
    return Identity(
        served_model=model,
        version=text(pick(info, "version")),
        model_path=model,
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _recognises(argv: Sequence[str]) -> bool:
    return invocation(argv)[0] == "text-embeddings-router"


ADAPTER = Adapter(
    kind="tei",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of release 1.8 (2026-11-28)",
    marks=re.compile(r"^te_(request|batch|queue|embed|rerank|predict)_", re.M),
    identify=_identify,
    metrics_off="send it a request: its series appear with the first",
    recognises=_recognises,
    counters=(
        Counter("prompt_tokens", ("te_batch_next_tokens_sum",)),
        # Of requests, of which many share a batch.
        Counter("prefill_ms", ("te_request_inference_duration_sum",), unit=MILLISECOND),
        Counter("requests_finished", ("te_request_success",)),
        *(
            Counter(name, ("te_request_success",), only_with=texts)
            for name, texts in (("embedding_requests", _EMBEDDED), ("ranking_requests", _RANKED))
        ),
        Counter("texts", (*_EMBEDDED, *_RANKED)),
        Counter("requests_failed", ("te_request_failure",), reason="err"),
    ),
    gauges=(Gauge("waiting", ("te_queue_size",)),),
    histograms=(
        Metric("e2e_s", ("te_request_duration",)),
        Metric("queue_s", ("te_request_queue_duration",)),
        Metric("step_tokens", ("te_batch_next_tokens",)),
    ),
    never_counted=("generated_tokens",),
    model_label=None,
)
