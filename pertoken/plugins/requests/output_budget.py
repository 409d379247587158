"""Rule: limit the length of outputs."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, encoder_refusal, hardly_busy
from pertoken.rule import Evidence, Proposal, Series, Service, Skip, option, propose, rule, skip, times

QUANTILES = 1000
"""Points at which the distribution of lengths is evaluated."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule. A supplied share is priced; the other defaults are judgement (Sources, 3)."""

    kept: float | None = option(
        None, "mean output tokens under a budget over the present mean: from a sample judged by readers", low=0.01,
        high=1,
    )  # fmt: skip
    loose: float = option(
        2.0,
        "requested max_tokens (median) over the p99 of generated tokens at or above which the limit has no effect",
        low=1,
    )
    cut: float = option(
        0.05, "maximum share of outputs that a budget may cut: judge a sample of them", low=0.001, high=0.5
    )
    truncated: float = option(
        0.05, "share of requests that end at a limit, at or above which limits already cut outputs", low=0, high=1
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("output-budget")
def output_budget(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Limit outputs to the length that readers use, where no limit is effective.

    ## Why it saves
    Output tokens are decoded one by one: each unread token costs a share of a decode step and occupies KV cache. Where
    requests allow far more tokens than they get, a few very long outputs make up much of all tokens. This is the
    closest equivalent of *early exit* in serving: no engine has a flag that ends a token at an early layer.
    ## When it is wrong
    Where length is the point: code, reports, reasoning. Where requests already end at a limit, a lower one cuts more of
    them. Telemetry does not show how short an output may be, so no saving is stated, only the break-even, until you
    supply `kept`.
    ## How to apply
    Best at the client: `max_tokens`, stop sequences, a lower reasoning effort, brevity in the system prompt. For all
    clients of a server: `--override-generation-config '{"max_new_tokens": N}'` (vLLM), `--predict N` (llama.cpp). For
    reasoning: `--reasoning-config` (vLLM). Undo: remove the flag.
    ## Sources
    1. (calculated) Decode time is linear in output tokens; the tokens above a limit follow from the measured lengths.
    2. (code) vLLM 0.32.0, SGLang 0.5.23, llama.cpp: no flag for early exit. (unverified) The flags that limit a
       server's outputs.
    3. The thresholds, and that a budget may cut 5 % of outputs, are judgement.
    """
    if refusal := encoder_refusal(seen, "it has no outputs to limit") or hardly_busy(seen, options.min_busy):
        yield refusal
        return
    if service.demand.output_len is None:
        yield skip("length-unknown", f"the length of its outputs is not known: {DOCTOR}")
        return
    if options.kept is not None:
        shorter = times(options.kept, "as [rules.output-budget] states", confirmed=True)
        yield propose(service.serving(output_len=shorter), risk="quality", effort="medium")
        return
    limit, lengths, truncated = seen.max_tokens.p50, seen.generated_len, seen.ended_by_length.mean
    if truncated >= options.truncated:
        yield skip(
            "truncated",
            f"{truncated:.1%} of its requests end at their length limit, {options.truncated:.0%} or more: a lower "
            "budget would cut more of them",
        )
    elif limit < options.loose * lengths.p99:
        yield skip(
            "budget-fits",
            f"requests allow {limit:,.0f} tokens (median), less than {options.loose:g} times the p99 of "
            f"{lengths.p99:,.0f} generated tokens",
        )
    else:
        budget = lengths.quantile(1 - options.cut)
        source = f"its measured lengths, none above {budget:,.0f} tokens, which cuts {options.cut:.0%} of its outputs"
        shorter = times(_kept(lengths, budget), source)
        yield propose(service.serving(output_len=shorter), risk="quality", effort="medium")


def _kept(lengths: Series, budget: float) -> float:
    """Return the share of output tokens that remains if outputs end at a budget."""
    output_lengths = [lengths.quantile((quantile_index + 0.5) / QUANTILES) for quantile_index in range(QUANTILES)]
    return sum(min(length, budget) for length in output_lengths) / max(1e-9, sum(output_lengths))
