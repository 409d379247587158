"""Rule: choose the prefill chunk size that suits the load."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, computed_prompt, replicas_differ
from pertoken.rule import Deployment, Evidence, Proposal, Service, Skip, option, propose, rule, skip

ENGINES = ("vllm", "dynamo-vllm", "nim", "sglang", "dynamo-sglang", "trtllm", "llama.cpp")
"""Engines with a flag for the token budget of a step, by the catalog."""
CONFIGURED = ("trtllm",)
"""Engines that prefill prompts whole unless a configuration file enables chunks: a small budget rejects long ones."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    spike: float = option(4.0, "time between tokens, p99 over p50, at or above which decoding is interrupted", low=1)
    small: int = option(2048, "tokens per step to set where decoding is interrupted", low=1)
    large: int = option(16384, "maximum tokens per step to set where prompts wait", low=1)
    queue: float = option(0.5, "waiting requests (mean) at or above which prompts wait for a place in a step", low=0)
    at_limit: float = option(
        0.9,
        "running requests (p95) over the batch limit at or above which that limit makes requests wait",
        low=0,
        high=1,
    )
    kv_full: float = option(0.9, "KV cache in use (p95) at or above which the cache makes requests wait", low=0, high=1)
    queue_share: float = option(
        0.2, "queueing time over TTFT below which prompts do not wait for a step", low=0, high=1
    )


@rule("chunked-prefill")
def chunked_prefill(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Prefill in smaller chunks where prompts interrupt decoding, in larger chunks where prompts wait.

    ## Why it saves
    A long prompt that is prefilled whole, or in large chunks, delays the next token of every running request. Smaller
    chunks keep the time between tokens within its objective at more requests per device. Where prompts wait for a place
    in a step instead, larger chunks need fewer steps, and each step reads all weights.
    ## When it is wrong
    Most engines chunk prompts by default: without interference there is nothing to gain. Smaller chunks increase the
    time to first token, larger chunks the time between tokens. Requests may also wait for another reason: a full KV
    cache or the batch limit.
    ## How to apply
    vLLM: `--enable-chunked-prefill` and `--max-num-batched-tokens`. SGLang: `--chunked-prefill-size`. TensorRT-LLM:
    `enable_chunked_prefill: true` in its configuration file and `--max_num_tokens`. llama.cpp: `--batch-size`.
    ## Sources
    1. (code) vLLM 0.32.0 `config/scheduler.py`: on by default; a small token budget favours the time between tokens, a
       large one the time to first token.
    2. (unverified) Agrawal et al., Sarathi-Serve, arXiv 2403.02310: 2.6 to 5.6 times the load within an objective.
    3. (unverified) TensorRT-LLM prefills prompts whole unless configured otherwise. Verify it in your version.
    4. The thresholds are judgement: a p99 of four times the median is more than the usual spread of decode steps.
    """
    present = service.deployments[0]
    words = "engine, chunked prefill, token budget or batch limit"
    knobs = ("engine", "enable_chunked_prefill", "max_num_batched_tokens", "max_num_seqs")
    if refusal := replicas_differ(service, words, *knobs):
        yield refusal
    elif present.engine not in ENGINES:
        yield skip("engine-decides", f"{present.engine} has no known setting for the tokens of a step")
    elif present.enable_chunked_prefill is None and present.engine in CONFIGURED:
        reason = f"the configuration file of {present.engine} decides whether it chunks prompts, and was not read"
        yield skip("chunking-unknown", reason)
    elif present.enable_chunked_prefill is not False and present.max_num_batched_tokens is None:
        yield skip("budget-unknown", f"its token budget per step is not known: {DOCTOR}")
    else:
        yield _tuned(seen, service, present, options)


def _tuned(seen: Evidence, service: Service, present: Deployment, options: Options) -> Proposal | Skip:
    spike = seen.tpot_s.p99 / seen.tpot_s.p50 if seen.tpot_s.p50 > 0 else 0.0
    if spike >= options.spike:
        return _smaller(seen, service, present, spike, options)
    waiting = seen.waiting.mean
    if present.enable_chunked_prefill is False or waiting < options.queue:
        return skip(
            "no-interference",
            f"its time between tokens has a p99 of {spike:.1f} times its median, below {options.spike:g}, and "
            f"{waiting:.1f} requests wait: prompts and decoding do not delay each other",
        )
    return _larger(seen, service, present, waiting, options)


def _smaller(seen: Evidence, service: Service, present: Deployment, spike: float, options: Options) -> Proposal | Skip:
    """Return smaller chunks if prompts interrupt decoding: only prompts longer than the proposed chunk do."""
    prompt = computed_prompt(seen)
    chunk = max(options.small, present.max_num_seqs or 1)  # a step holds a token of each running request
    if prompt <= chunk:
        return skip(
            "short-prompts",
            f"its time between tokens has a p99 of {spike:.1f} times its median, but {prompt:.0f} computed tokens of a "
            f"prompt (p95) fit a chunk of {chunk:,}: something else interrupts decoding",
        )
    if present.enable_chunked_prefill is False:
        changed = service.but(enable_chunked_prefill=True)
    elif present.max_num_batched_tokens is not None and present.max_num_batched_tokens > chunk:
        changed = service.but(max_num_batched_tokens=chunk)
    else:
        budget = f"{present.max_num_batched_tokens:,}" if present.max_num_batched_tokens else "an unknown number of"
        return skip("chunks-small", f"its steps compute {budget} tokens already, {chunk:,} or fewer")
    return propose(changed, risk="latency", effort="medium", excludes=("batch-limit",))


def _larger(seen: Evidence, service: Service, present: Deployment, waiting: float, options: Options) -> Proposal | Skip:
    """Return a larger token budget if prompts wait for one, and not for the batch limit or the KV cache."""
    budget = present.max_num_batched_tokens or 0
    limit = (present.max_num_seqs or 0) * len(service.deployments)
    running, prompt = seen.running.p95, computed_prompt(seen)
    if not limit or running >= options.at_limit * limit:
        position = (
            f"at or above {options.at_limit:.0%} of its limit of {limit}" if limit else "and its limit is not known"
        )
        return skip("batch-limit", f"{waiting:.1f} requests wait, but {running:.0f} run (p95), {position}")
    if seen.kv_use.p95 >= options.kv_full:
        return skip(
            "kv-cache-full", f"{waiting:.1f} requests wait, but its KV cache is {seen.kv_use.p95:.0%} full (p95)"
        )
    if seen.has("queue_s") and (share := seen.queue_s.mean / max(seen.ttft_s.mean, 1e-9)) < options.queue_share:
        return skip("short-queue", f"queueing is {share:.0%} of its TTFT, below {options.queue_share:.0%}")
    if prompt <= budget:
        reason = f"{prompt:.0f} computed tokens of a prompt (p95) fit a step of {budget:,}: larger chunks gain nothing"
        return skip("short-prompts", reason)
    if budget >= options.large:
        return skip("chunks-large", f"its steps compute {budget:,} tokens already, {options.large:,} or more")
    changed = service.but(max_num_batched_tokens=min(2 * budget, options.large))
    return propose(changed, risk="latency", effort="medium", excludes=("batch-limit",))
