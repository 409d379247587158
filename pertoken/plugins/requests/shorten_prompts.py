"""Rule: send shorter prompts."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, encoder_refusal, hardly_busy
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip, times


@dataclass(frozen=True)
class Options:
    """Settings of the rule. A supplied share is priced; the other defaults are judgement (Sources, 4)."""

    kept: float | None = option(
        None, "prompt tokens that remain over the present ones: from a sample with judged outputs", low=0.01,
        high=1,
    )  # fmt: skip
    planned_kept: float = option(
        0.7,
        "share of prompt tokens that remain for which the break-even is shown while `kept` is not supplied",
        low=0.01,
        high=0.99,
    )
    min_ratio: float = option(10.0, "minimum prompt tokens per generated token for prefill to dominate", low=0)
    cached: float = option(
        0.2,
        "share of prompt tokens that hit the prefix cache, at or above which editing prompts may cost more",
        low=0,
        high=1,
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("shorten-prompts")
def shorten_prompts(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Send shorter prompts where they are long, not cached, and the outputs are short.

    ## Why it saves
    Every prompt token outside the prefix cache is computed, and its part of the KV cache is read at each decode step.
    Fewer examples, fewer retrieved passages, only the tools that a request needs, and a summary of the history reduce
    both.
    ## When it is wrong
    Editing the beginning or the middle of prompts breaks the prefix cache: cached tokens cost nearly nothing, and all
    tokens after an edit are computed again. Only append, and summarise at thresholds. Telemetry does not show how much
    can be left out, so no saving is stated, only the break-even, until you supply `kept`.
    ## How to apply
    In the application: shorter system prompts, fewer and shorter passages, tools by retrieval, a summarised history, or
    a prompt compressor (LLMLingua). Quarantine what tools and subtasks return in a context of its own, and pass on
    only the validated result. Compare outputs on a sample. Undo: send the previous prompts.
    ## Sources
    1. (calculated) Prefill saved is 1 - 1/r of the uncached prompt tokens, at r times shorter prompts.
    2. (calculated) From 8k to 128k tokens: 16 times the tokens, 33 times the prefill FLOPs of a 70B, 16 times its KV
       cache.
    3. (unverified) Jiang et al., LLMLingua, arXiv 2310.05736: prompts 2 to 20 times shorter.
    4. The thresholds and the assumed share are judgement.
    """
    if refusal := encoder_refusal(seen, "its texts are what is embedded or ranked"):
        yield refusal
        return
    if refusal := hardly_busy(seen, options.min_busy):
        yield refusal
        return
    if service.demand.prompt_len is None:
        yield skip("length-unknown", f"the length of its prompts is not known: {DOCTOR}")
        return
    prompts, generated = seen.prompt_tok_s.mean, seen.generated_tok_s.mean
    cached_share = seen.cached_share.mean if seen.has("cached_share") else 0.0
    if options.kept is None and prompts < options.min_ratio * generated:
        yield skip(
            "outputs-dominate",
            f"prompts have {prompts:.0f} tokens/s and outputs {generated:.0f}: below {options.min_ratio:g} to one",
        )
        return
    if options.kept is None and cached_share >= options.cached:
        yield skip(
            "breaks-prefix-cache",
            f"{cached_share:.0%} of its prompt tokens hit the prefix cache, {options.cached:.0%} or more: "
            "after an edit they may be computed again",
        )
        return
    origin = "an assumption: judge a sample" if options.kept is None else "as [rules.shorten-prompts] states"
    warning = f"; editing them may lose the {cached_share:.0%} that hit the prefix cache now" if cached_share else ""
    kept = options.planned_kept if options.kept is None else options.kept
    shorter = times(kept, f"{kept:.0%} of prompt tokens remain, {origin}{warning}", confirmed=options.kept is not None)
    yield propose(service.serving(prompt_len=shorter), risk="quality", effort="high", excludes=("prefix-cache",))
