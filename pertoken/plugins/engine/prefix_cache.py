"""Rule: turn the prefix cache on, or arrange prompts so that it is used."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, encoder_refusal, hardly_busy, tenants_apart
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip, to

ENGINES = ("vllm", "dynamo-vllm", "sglang", "dynamo-sglang", "llama.cpp", "trtllm")
"""Engines with a switch for their prefix cache."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 5)."""

    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)
    min_prompt_tokens: float = option(
        2.0, "computed prompt tokens per generated token below which decode dominates, not prefill", low=0
    )
    low_hits: float = option(
        0.2, "share of prompt tokens that hit the cache, at or above which it is well used", low=0, high=1
    )
    shared_share: float | None = option(
        None,
        "share of prompt tokens that could hit: from a sample of your prompts; a supplied share is priced",
        low=0,
        high=1,
    )
    planned_share: float = option(
        0.3, "share for which the break-even is shown while `shared_share` is not supplied", low=0, high=1
    )


@rule("prefix-cache")
def prefix_cache(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Enable the prefix cache, or order prompts so that they share prefixes.

    ## Why it saves
    Prompts that begin alike (system prompt, tools, examples, history) are prefilled once. A cache hit costs no prefill,
    and the first token comes sooner.
    ## When it is wrong
    It gains little where decoding takes most of the time, or where prompts begin with a date, an id or a user's name:
    move these to the end first. Tenants that must not learn about each other's prompts through timing must not share a
    cache (vLLM: `cache_salt`). While the cache is off, the share of common prefixes is not measured, so no saving is
    stated, only the share at which it pays.
    ## How to apply
    vLLM: drop `--no-enable-prefix-caching` (on by default). SGLang: drop `--disable-radix-cache`; `--schedule-policy
    lpm` serves the longest match first. llama.cpp: `--cache-prompt` (default), with `--cache-reuse 256`. TensorRT-LLM:
    `enable_block_reuse`. With several replicas a router has to send prompts that begin alike to the same replica.
    ## Sources
    1. vLLM 0.32 `config/cache.py`: on by default; `--no-enable-prefix-caching`. Read in the code.
    2. SGLang 0.5.23 `srt/server_args`: RadixAttention, on by default. Read in the code.
    3. llama.cpp server, `common/arg.cpp`: `--cache-prompt`, `--cache-reuse`. Read in the code.
    4. TensorRT-LLM documentation of KV cache reuse: not verified against its code.
    5. The thresholds and the assumed shared share are judgement; API prices for cached input, 50 to 90 % lower, are not
       verified.
    """
    if refusal := encoder_refusal(seen, "an encoder attends to whole texts, which share no prefix"):
        yield refusal
        return
    if refusal := hardly_busy(seen, options.min_busy) or tenants_apart(service):
        yield refusal
        return
    cached = {deployment.enable_prefix_caching for deployment in service.deployments}
    if None in cached:
        yield skip("caching-unknown", f"whether it has a prefix cache is not known: {DOCTOR}")
        return
    if len(cached) > 1:
        enabled = sum(deployment.enable_prefix_caching is True for deployment in service.deployments)
        yield skip("replicas-differ", f"{enabled} of its {len(service.deployments)} replicas have a prefix cache")
        return
    computed, generated = seen.computed_tok_s.mean, seen.generated_tok_s.mean
    if computed < options.min_prompt_tokens * generated:
        yield skip(
            "answers-dominate",
            f"it computes {computed:.0f} prompt tokens/s and generates {generated:.0f}: below "
            f"{options.min_prompt_tokens:g} to one, decode dominates",
        )
    elif cached == {False}:
        unable = dict.fromkeys(
            deployment.engine for deployment in service.deployments if deployment.engine not in ENGINES
        )
        if unable:
            yield skip("no-flag", f"{', '.join(unable)} has no known option for a prefix cache")
        else:
            yield propose(service.but(enable_prefix_caching=True), risk="none", effort="medium")
    else:
        hits = seen.prefix_hit_rate.mean if seen.has("prefix_hit_rate") else seen.cached_share.mean
        share = options.planned_share if options.shared_share is None else options.shared_share
        if hits >= min(options.low_hits, share):
            yield skip("found-already", f"{hits:.0%} of its prompt tokens already hit the cache")
        else:
            supplied = options.shared_share is not None
            guess = "an assumption: compare the beginnings of a sample of prompts"
            cached_share = to(share, "as [rules.prefix-cache] states" if supplied else guess, confirmed=supplied)
            yield propose(service.serving(cached_share=cached_share), risk="none", effort="medium")
