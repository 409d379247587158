"""Text Generation Inference: tokens are the sums of its length histograms, so they are counted at a request's end.

It has no time to first token, no prefix cache and no KV use to show, and its series appear with the first request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

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
    pick,
    positive,
    runs,
    text,
)
from pertoken.agent.scrape import MetricsPage
from pertoken.catalog.knobs import read_words


def _identify(kind: str, member_by_knob: Mapping[str, str]) -> Callable[[GetJson, MetricsPage], EngineIdentity]:
    def identify(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
        info = get_json("/info")
        knobs: dict[str, object] = dict(read_words(kind, {"weight_dtype": text(pick(info, "model_dtype"))}))
        knobs |= {knob: positive(pick(info, member)) for knob, member in member_by_knob.items()}
        model = text(pick(info, "model_id"))
        return EngineIdentity(
            served_model=model,
            version=text(pick(info, "version")),
            model_path=model,
            knobs={knob: value for knob, value in knobs.items() if value is not None},
        )

    return identify


ADAPTER = Adapter(
    kind="tgi",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of release 3.3, the last (2026-11-21)",
    marks=re.compile(r"^tgi_", re.M),
    identify=_identify(
        "tgi",
        {
            "max_num_seqs": "max_batch_size",
            "max_num_batched_tokens": "max_batch_total_tokens",
            "max_model_len": "max_total_tokens",
        },
    ),
    metrics_off="send it a request: its series appear with the first",
    recognises=runs("text-generation-launcher", "text-generation-router"),
    counters=(
        Counter("prompt_tokens", ("tgi_request_input_length_sum",)),
        Counter("generated_tokens", ("tgi_request_generated_tokens_sum",)),
        # Durations of whole batches, which the router runs one after the other.
        Counter("engine_ms", ("tgi_batch_inference_duration_sum",), unit=MILLISECOND),
        Counter("requests_finished", ("tgi_request_success",)),
        Counter("requests_failed", ("tgi_request_failure",), reason="err"),
        Counter("spec_accepted_tokens", ("tgi_request_skipped_tokens_sum",)),
    ),
    gauges=(
        EngineGauge("running", ("tgi_batch_current_size",)),
        EngineGauge("waiting", ("tgi_queue_size",)),
    ),
    histograms=(
        Metric("tpot_s", ("tgi_request_mean_time_per_token_duration",)),
        Metric("e2e_s", ("tgi_request_duration",)),
        Metric("prompt_len", ("tgi_request_input_length",)),
        Metric("generated_len", ("tgi_request_generated_tokens",)),
        Metric("queue_s", ("tgi_request_queue_duration",)),
        Metric("max_tokens", ("tgi_request_max_new_tokens",)),
    ),
    at_finish=frozenset(TOKENS),
    absent_is_zero=True,
    model_label=None,
)


_EMBEDDED, _RANKED = ("te_embed_success",), ("te_predict_success",)
"""Texts of requests; a server has a model of one kind."""


TEI_ADAPTER = Adapter(
    kind="tei",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of release 1.8 (2026-11-28)",
    marks=re.compile(r"^te_(request|batch|queue|embed|rerank|predict)_", re.M),
    identify=_identify("tei", {"max_num_batched_tokens": "max_batch_tokens", "max_model_len": "max_input_length"}),
    metrics_off="send it a request: its series appear with the first",
    recognises=runs("text-embeddings-router"),
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
    gauges=(EngineGauge("waiting", ("te_queue_size",)),),
    histograms=(
        Metric("e2e_s", ("te_request_duration",)),
        Metric("queue_s", ("te_request_queue_duration",)),
        Metric("step_tokens", ("te_batch_next_tokens",)),
    ),
    never_counted=("generated_tokens",),
    model_label=None,
)
