"""Rule: draft tokens and verify several in one step, or stop drafting where it does not pay."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import encoder_refusal, hardly_busy, not_in_catalog, replicas_differ
from pertoken.rule import Evidence, Market, Proposal, Service, Skip, option, propose, rule, skip

METHODS = {
    "vllm": "ngram",
    "dynamo-vllm": "ngram",
    "sglang": "ngram",
    "dynamo-sglang": "ngram",
    "llama.cpp": "ngram",
    "tgi": None,
}
"""Engines that draft from the prompt without another model, with the method to set; TGI has only a token count."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule."""

    few_running: float = option(
        16.0, "maximum running requests per device: above it verification costs what it saves (Sources, 1 and 2)", low=0
    )
    published_batch: float = option(
        32.0, "maximum running requests of one engine, whatever its devices: above it no gain is published", low=0
    )
    few_running_mixture: float = option(
        2.0, "maximum running requests of a MoE model: above it drafts read additional experts (Sources, 1)", low=0
    )
    spare_flops: float = option(
        0.15, "FLOPs in use, or time of the tensor cores, above which none are idle (Sources, 5)", low=0, high=1
    )
    queue: float = option(
        1.0, "waiting requests (p95) at or above which a larger batch comes first (Sources, 5)", low=0
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save (Sources, 5)", low=0, high=1)
    min_length: float = option(
        1.6, "minimum tokens per verified step: below it drafting is turned off (Sources, 5)", low=1
    )
    drafted_tokens: int = option(3, "tokens to draft per step (Sources, 3)", low=1, high=16)


@rule("speculative-decoding")
def speculative_decoding(
    seen: Evidence, service: Service, market: Market, options: Options
) -> Iterator[Proposal | Skip]:
    """Draft tokens where few requests run; stop drafting where the batch is large or drafts are rejected.

    ## Why it saves
    With few requests a step waits for weights to be read while most FLOPs are idle. Verifying three drafted tokens
    reads the weights once: each accepted token saves a step, and rejection sampling keeps the distribution of outputs.
    ## When it is wrong
    With many requests the FLOPs are busy, and verification costs more than it saves: 0.94 times the speed in a series
    that gains 4.1 times at one request. A MoE model reads additional experts for drafted tokens and is refused, except
    a model whose own head predicts several tokens (MTP), up to the batch with a published gain. Draft models and heads
    take memory from the KV cache. The acceptance rate depends on your text and is not measured beforehand: no saving is
    stated, only the rate at which it pays. N-gram drafts need outputs that repeat their prompt.
    ## How to apply
    Without another model: vLLM `--spec-method ngram --spec-tokens 3`; SGLang `--speculative-algorithm NGRAM
    --speculative-num-draft-tokens 3` (NVIDIA GPUs); llama.cpp `--spec-type ngram-simple --spec-draft-n-max 3`; TGI
    `--speculate 3`. Better where your model has one: an EAGLE-3 or MTP head, vLLM `--spec-method eagle3 --spec-model
    HEAD`. TensorRT-LLM: `speculative_config` with `decoding_type: NGram` in its options file, by hand. Watch the tokens
    per step, 1 + accepted tokens / drafts.
    ## Sources
    1. arXiv 2601.11580: verification takes 42 to 95 % of the time, and gains shrink with the batch (H100, vLLM, 1 to
       128 requests). Measured.
    2. fastpriors.com: 4.1 times at about one request, 0.94 at a large batch. One vendor's series.
    3. vLLM 0.32 `config/speculative.py`, SGLang 0.5.23 `srt/arg_groups`, llama.cpp `common/arg.cpp`: flags. Read in the
       code.
    4. SGLang documentation of speculative decoding: NGRAM needs no other model, but CUDA.
    5. The thresholds on FLOPs, queue, busy time and tokens per step are judgement.
    6. The catalog's `engine_lines.toml`: models with MTP, and the batch up to which makers publish a gain.
    """
    if refusal := encoder_refusal(seen, "there is nothing to draft") or hardly_busy(seen, options.min_busy):
        yield refusal
        return
    present = service.deployments[0]
    words = "model, engine, accelerator or drafted tokens"
    if refusal := replicas_differ(service, words, "model", "engine", "accelerator", "num_speculative_tokens"):
        yield refusal
        return
    running = seen.running.mean
    per_device = running / sum(deployment.n_devices or 1 for deployment in service.deployments)
    per_engine = running / len(service.deployments)
    if present.num_speculative_tokens:
        length = seen.spec_acceptance_length.mean
        if per_device > options.few_running or length < options.min_length:
            yield propose(service.but(num_speculative_tokens=0), risk="latency", effort="medium")
        else:
            yield skip(
                "drafts-accepted",
                f"it already drafts: {length:.2f} tokens per step, with {per_device:.1f} running requests per device",
            )
        return
    if seen.has("spec_acceptance_length"):
        length = seen.spec_acceptance_length.mean
        yield skip(
            "drafts-already",
            f"it already drafts ({length:.2f} tokens per step), but the number of drafted tokens is not known",
        )
        return
    if market.accelerator(present.accelerator) is None:
        yield not_in_catalog(present, "spare FLOPs are not known")
        return
    waiting = seen.waiting.p95 if seen.has("waiting") else 0.0
    mtp = market.multi_token_prediction(present.engine, present.model)
    if mtp is not None and waiting < options.queue and per_engine <= mtp.max_running:
        drafting = service.but(num_speculative_tokens=mtp.drafted, speculative_method=mtp.method)
        yield propose(drafting, risk="latency", effort="medium")
        return
    flops = _flops_in_use(seen)
    if per_device > options.few_running or waiting >= options.queue:
        yield skip(
            "saturated",
            f"{per_device:.1f} requests run per device and {waiting:.1f} wait (p95): from {options.few_running:g} "
            f"running or {options.queue:g} waiting, verification costs what it saves",
        )
    elif per_engine > options.published_batch:
        yield skip(
            "large-batch",
            f"{per_engine:.0f} requests run at once in an engine: no gain of drafts is published above "
            f"{options.published_batch:g}",
        )
    elif present.model.n_experts and per_engine > options.few_running_mixture:
        yield skip(
            "mixture",
            f"{present.model.name} has {present.model.n_experts} experts and {per_engine:.1f} running "
            f"requests, above {options.few_running_mixture:g}: drafted tokens read additional experts",
        )
    elif flops is not None and flops > options.spare_flops:
        yield skip("no-spare-flops", f"{flops:.0%} of its FLOPs are in use, above {options.spare_flops:.0%}")
    elif present.engine not in METHODS:
        yield skip(
            "no-flag",
            f"{present.engine} has no known flag that drafts {options.drafted_tokens} tokens without another model",
        )
    else:
        method = METHODS[present.engine]
        drafting = service.but(num_speculative_tokens=options.drafted_tokens)
        yield propose(
            drafting if method is None else drafting.but(speculative_method=method), risk="latency", effort="medium"
        )


def _flops_in_use(seen: Evidence) -> float | None:
    """Return the share of FLOPs in use: as the engine counts it, else the tensor-core time, an upper bound."""
    for name in ("mfu", "tensor_active"):
        if seen.has(name):
            return float(getattr(seen, name).mean)
    return None
