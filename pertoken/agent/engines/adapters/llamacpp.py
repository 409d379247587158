"""llama.cpp's server, as a program or as a library in another process.

Its prompt tokens exclude cached ones, so they are *computed* in our words; generated tokens are counted when a
slot is released, in one jump. It has no labels, no histograms and no count of finished requests. Sources: pages
captured from two builds of 2026; `kv_cache_usage_ratio` is of builds before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from pertoken.agent.engines.adapters.adapter import (
    MILLISECOND,
    Adapter,
    Counter,
    EngineGauge,
    EngineIdentity,
    GetJson,
    PageOrigin,
    invocation,
    pick,
    positive,
    runs,
    text,
)
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape import MetricsPage
from pertoken.catalog.knobs import read_word


def _identify(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    props, models = get_json("/props"), get_json("/v1/models")
    path = text(pick(props, "model_path"))
    file_type = text(pick(props, "model_ftype")) or text(pick(models, "data", 0, "meta", "ftype")) or ""
    knobs = {
        "max_num_seqs": positive(pick(props, "total_slots")),
        "max_model_len": positive(pick(props, "default_generation_settings", "n_ctx")),
        "weight_dtype": read_word("llama.cpp", "weight_dtype", file_type.removesuffix(" (guessed)")),
    }
    params = positive(pick(models, "data", 0, "meta", "n_params"))
    return EngineIdentity(
        served_model=text(pick(models, "data", 0, "id"))
        or text(pick(props, "model_alias"))
        or (PurePath(path).name if path else None),
        version=text(pick(props, "build_info")),
        model_path=path,
        model_facts={} if params is None else {"params_total": params},
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    return program == "llama-server" or (
        program in ("llama", "llama-cli") and arguments[:1] in (("serve",), ("server",))
    )


ADAPTER = Adapter(
    kind="llama.cpp",
    tested_on=PageOrigin.LIVE,
    source="pages captured from two builds of 2026 (2026-11-21)",
    marks=re.compile(r"^llamacpp:", re.M),
    identify=_identify,
    metrics_off="start llama-server with --metrics (xllamacpp: endpoint_metrics = True)",
    recognises=_recognises,
    metrics_off_status=501,
    router_status=400,
    # Since a build between b9760 and b11549 (pull request 27376 of August 2026) the page neither wakes nor delays it.
    asleep=("/props", "is_sleeping", re.compile(r"b?(1154[9]|115[5-9]\d|11[6-9]\d\d|1[2-9]\d{3}|[2-9]\d{4})\b")),
    counters=(
        Counter("computed_tokens", ("llamacpp:prompt_tokens_total",)),
        Counter("cached_tokens", ("llamacpp:prompt_tokens_cached_total",)),
        Counter("prompt_tokens", ("llamacpp:prompt_tokens_total",), unless=("llamacpp:prompt_tokens_cached_total",)),
        Counter("generated_tokens", ("llamacpp:tokens_predicted_total",)),
        Counter("prefill_ms", ("llamacpp:prompt_seconds_total",), unit=MILLISECOND),
        Counter("decode_ms", ("llamacpp:tokens_predicted_seconds_total",), unit=MILLISECOND),
        Counter("steps", ("llamacpp:n_decode_total",)),
        Counter("spec_drafts", ("llamacpp:spec_decode_num_drafts_total",)),
        Counter("spec_draft_tokens", ("llamacpp:spec_decode_num_draft_tokens_total",)),
        Counter("spec_accepted_tokens", ("llamacpp:spec_decode_num_accepted_tokens_total",)),
    ),
    gauges=(
        EngineGauge("running", ("llamacpp:requests_processing",)),
        EngineGauge("waiting", ("llamacpp:requests_deferred",)),
        EngineGauge("kv_use", ("llamacpp:kv_cache_usage_ratio",), combine=max),
        EngineGauge("requests_per_step", ("llamacpp:n_busy_slots_per_decode",)),
    ),
    at_finish=frozenset({"generated_tokens"}),
    limits=(
        "Builds without `llamacpp:prompt_tokens_cached_total` count no cached tokens: "
        "their prompt is what they computed. Before a change of August 2026 (b11549 has it) a read of the page "
        "keeps the model from sleeping or wakes it: with `--sleep-idle-seconds` an idle server is asked by `/props` "
        "alone whether it sleeps, and its page is read once it may have fallen asleep and has not: tokens of its last "
        "seconds awake are read when it wakes. A router has no page of its own: its models' servers have."
    ),
    model_label=None,
    owned_by="llamacpp",
    library=re.compile(r"/xllamacpp[^/]*\.so$|/libllama\.so[.0-9]*$"),
)


def _identify_loaded(get_json: GetJson, page: MetricsPage) -> EngineIdentity:
    loaded = pick(get_json("/api/ps"), "models")
    models = loaded if isinstance(loaded, list) else []
    names = sorted(name for model in models if (name := text(pick(model, "name"))))
    only = models[0] if len(models) == 1 else None
    knobs = {
        "weight_dtype": read_word("ollama", "weight_dtype", text(pick(only, "details", "quantization_level")) or ""),
        "max_model_len": positive(pick(only, "context_length")),
    }
    return EngineIdentity(
        # Models that share the devices share their cost, and nothing reports the shares.
        served_model=" + ".join(names) or None,
        version=text(pick(get_json("/api/version"), "version")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


OLLAMA_ADAPTER = Adapter(
    kind="ollama",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of its API; issue 3144 of ollama/ollama on metrics (2026-11-21)",
    marks=re.compile(r"(?!)"),
    identify=_identify_loaded,
    metrics_off="",
    recognises=runs("ollama", command=("serve",)),
    metrics_path=None,
    no_tokens=Unavailable(
        "tokens",
        "missing",
        "Ollama counts no tokens; only its replies report them, and pertoken puts nothing between it and its clients",
        "serve the same GGUF file with llama-server --metrics, or the model with vLLM",
    ),
    model_label=None,
    # Of a model that is not from its library the owner is another one, and without models there is none.
    owned_by="library",
    greeting=("/", re.compile("Ollama is running")),
)
