"""Inference engines: one file for each maps its metric names onto our words."""

from collections.abc import Mapping

from pertoken.agent.engines.adapters import (
    dynamo,
    llamacpp,
    lmdeploy,
    nim,
    ollama,
    ray,
    sglang,
    tgi,
    triton,
    trtllm,
    vllm,
)
from pertoken.agent.engines.adapters.adapter import Adapter

_MODULES = (trtllm, nim, ray, vllm, sglang, lmdeploy, tgi, triton, llamacpp, ollama)
ADAPTERS: Mapping[str, Adapter] = {
    adapter.kind: adapter for adapter in (*dynamo.WORKERS, dynamo.FRONTEND, *(module.ADAPTER for module in _MODULES))
}
"""All engines that can be read, by kind. Those whose page also holds another engine's series come before it."""


def tokens(deltas: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return growth by word with `prompt_tokens = cached_tokens + computed_tokens` filled in where two of them are
    known.

    Computed tokens below 0 (an engine that counts the cached part of a prompt before the prompt) are unknown.
    """
    prompt, cached, computed = (deltas.get(word) for word in ("prompt_tokens", "cached_tokens", "computed_tokens"))
    if prompt is None and cached is not None and computed is not None:
        prompt = cached + computed
    elif computed is None and prompt is not None and cached is not None:
        computed = prompt - cached if prompt >= cached else None
    return {**deltas, "prompt_tokens": prompt, "cached_tokens": cached, "computed_tokens": computed}
