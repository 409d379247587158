"""Adapters of inference engines: one file per engine maps its metric names onto the names of `metrics`."""

from collections.abc import Mapping

from pertoken.agent.engines.adapters.adapter import Adapter
from pertoken.agent.engines.adapters.frontends import ADAPTER as TRITON
from pertoken.agent.engines.adapters.frontends import FRONTEND, WORKERS
from pertoken.agent.engines.adapters.frontends import NIM_ADAPTER as NIM
from pertoken.agent.engines.adapters.frontends import RAY_ADAPTER as RAY
from pertoken.agent.engines.adapters.hugging_face import ADAPTER as TGI
from pertoken.agent.engines.adapters.hugging_face import TEI_ADAPTER as TEI
from pertoken.agent.engines.adapters.llamacpp import ADAPTER as LLAMACPP
from pertoken.agent.engines.adapters.llamacpp import OLLAMA_ADAPTER as OLLAMA
from pertoken.agent.engines.adapters.lmdeploy import ADAPTER as LMDEPLOY
from pertoken.agent.engines.adapters.sglang import ADAPTER as SGLANG
from pertoken.agent.engines.adapters.trtllm import ADAPTER as TRTLLM
from pertoken.agent.engines.adapters.vllm import ADAPTER as VLLM

_IN_ORDER = (*WORKERS, FRONTEND, TRTLLM, NIM, RAY, TRITON, VLLM, SGLANG, LMDEPLOY, TGI, TEI, LLAMACPP, OLLAMA)
ADAPTERS: Mapping[str, Adapter] = {adapter.kind: adapter for adapter in _IN_ORDER}
"""Adapters by kind of engine. An engine with another engine's series on its page comes before that engine."""


def tokens(deltas: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return increases by counter, with a missing one of `prompt_tokens = cached_tokens + computed_tokens` filled in.

    Transferred tokens are neither: the server that computed them counts them. Computed tokens below 0 are unknown: some
    engines count the cached part of a prompt before the prompt.
    """
    prompt, cached, computed = (deltas.get(name) for name in ("prompt_tokens", "cached_tokens", "computed_tokens"))
    if prompt is None and cached is not None and computed is not None:
        prompt = cached + computed
    elif computed is None and prompt is not None and cached is not None:
        computed = prompt - cached if prompt >= cached else None
    counts = {**deltas, "prompt_tokens": prompt, "cached_tokens": cached, "computed_tokens": computed}
    return _without_transferred(counts) if "transferred_tokens" in deltas else counts


def _without_transferred(counts: dict[str, int | None]) -> dict[str, int | None]:
    """Return the counts with transferred tokens taken off the prompt and the cached tokens.

    No more counts as transferred than either increased by: sources need not add up, and a series that appears late
    counts from 0. Where either the transferred or the prompt tokens are unknown, so are the others.
    """
    words = ("transferred_tokens", "prompt_tokens", "cached_tokens")
    transferred, prompt, cached = (counts.get(word) for word in words)
    if transferred is None or prompt is None:
        return counts | dict.fromkeys(words)
    transferred = min(transferred, prompt if cached is None else min(prompt, cached))
    cached = cached - transferred if cached is not None else 0 if transferred == prompt else None
    if transferred == prompt and counts.get("computed_tokens") is None:
        counts["computed_tokens"] = 0
    return counts | dict(zip(words, (transferred, prompt - transferred, cached), strict=True))
