"""Rule: lower the context limit of engines that reserve it for each sequence."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip

RESERVES = ("llama.cpp", "ollama")
"""Engines that reserve the cache of the context limit for each slot; others allocate pages as a sequence grows."""
MIN_CONTEXT = 1024


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 3)."""

    headroom: float = option(2.0, "context to keep, over the longest observed prompt and output", low=1)
    queue: float = option(1.0, "waiting requests (p95) at or above which requests queue for a slot", low=0)


@rule("shorter-context")
def shorter_context(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Divide the reserved context into more slots where requests stay far below the limit and queue for a slot.

    ## Why it saves
    llama.cpp and Ollama reserve the KV cache of the whole context limit for every slot. Where requests use an eighth
    of it, the same memory holds eight slots for one, and a step that serves eight requests takes little longer than
    one for a single request.
    ## When it is wrong
    A request longer than the new limit is refused or cut: look at more than a week, and at clients that send long
    requests rarely. Engines that keep the cache in pages reserve nothing, so that their limit costs nothing. Where no
    request queues, more slots stay empty. With `--kv-unified` llama.cpp shares the cache among its slots already.
    ## How to apply
    llama.cpp: a larger `--parallel` with the same `--ctx-size`, which it divides among the slots. Ollama:
    `OLLAMA_CONTEXT_LENGTH` (or `num_ctx`) and `OLLAMA_NUM_PARALLEL`.
    ## Sources
    1. (code) llama.cpp `common/arg.cpp` and its server: context per slot is `--ctx-size` over `--parallel`.
    2. Kwon et al., PagedAttention, arXiv 2309.06180: reserved and fragmented cache took 60 to 80 % of it before pages.
    3. Powers of two, the headroom and the queue are judgement.
    """
    limits = {(replica.engine, replica.max_model_len, replica.max_num_seqs) for replica in service.deployments}
    engine, limit, slots = limits.pop()
    if limits:
        reason = f"its {len(service.deployments)} replicas differ in engine, context limit or slots"
        yield skip("replicas-differ", reason)
    elif engine not in RESERVES:
        yield skip("pages", f"{engine} allocates the KV cache as a sequence grows: its context limit reserves nothing")
    elif limit is None or slots is None:
        yield skip("limit-unknown", f"its context limit or its number of slots is not known: {DOCTOR}")
    elif (enough := _enough(options.headroom * (longest := seen.prompt_len.max + seen.generated_len.max))) > limit // 2:
        yield skip(
            "context-used",
            f"requests reach {longest:,.0f} tokens at most: {enough:,} with headroom, over half of its {limit:,}",
        )
    elif (waiting := seen.waiting.p95) < options.queue:
        yield skip("no-queue", f"{waiting:.1f} requests wait (p95), fewer than {options.queue:g}: slots are free")
    else:
        shorter = service.but(max_model_len=enough, max_num_seqs=slots * (limit // enough))
        yield propose(
            shorter,
            risk="availability",
            effort="medium",
            excludes=("batch-limit", "continuous-batching"),
            against=(f"requests longer than {enough:,} tokens are refused: the longest seen has {longest:,.0f}",),
        )


def _enough(tokens: float) -> int:
    """Return the power of two, of at least `MIN_CONTEXT`, that holds this many tokens."""
    enough = MIN_CONTEXT
    while enough < tokens:
        enough *= 2
    return enough
