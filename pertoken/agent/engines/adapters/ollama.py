"""Ollama: it has no metrics. `/api/ps` names the loaded model; tokens are reported to its clients alone."""

import re
from collections.abc import Sequence

from pertoken.agent.engines.adapters.adapter import (
    Adapter,
    GetJson,
    Identity,
    PageOrigin,
    invocation,
    pick,
    positive,
    text,
)
from pertoken.agent.readings import Unavailable
from pertoken.agent.scrape.page import Page
from pertoken.catalog.knobs import read_word


def _identify(get_json: GetJson, page: Page) -> Identity:
    loaded = pick(get_json("/api/ps"), "models")
    models = loaded if isinstance(loaded, list) else []
    names = sorted(name for model in models if (name := text(pick(model, "name"))))
    only = models[0] if len(models) == 1 else None
    knobs = {
        "weight_dtype": read_word("ollama", "weight_dtype", text(pick(only, "details", "quantization_level")) or ""),
        "max_model_len": positive(pick(only, "context_length")),
    }
    return Identity(
        # Models that share the devices share their cost, and nothing reports the shares.
        served_model=" + ".join(names) or None,
        version=text(pick(get_json("/api/version"), "version")),
        knobs={knob: value for knob, value in knobs.items() if value is not None},
    )


def _recognises(argv: Sequence[str]) -> bool:
    program, arguments = invocation(argv)
    return program == "ollama" and arguments[:1] == ("serve",)


ADAPTER = Adapter(
    kind="ollama",
    tested_on=PageOrigin.DOCUMENTS,
    source="documents of its API; issue 3144 of ollama/ollama on metrics (2026-11-21)",
    marks=re.compile(r"(?!)"),
    identify=_identify,
    metrics_off="",
    recognises=_recognises,
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
