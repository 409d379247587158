"""Rule: answer repeated requests from a response cache."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import hardly_busy, tenants_apart
from pertoken.rule import Evidence, Proposal, Service, Skip, option, propose, rule, skip, to


@dataclass(frozen=True)
class Options:
    """Settings of the rule. A supplied share is priced; the other defaults are judgement (Sources, 4)."""

    repeat_share: float | None = option(
        None, "share of requests that repeat an earlier one exactly: count them at your gateway", low=0, high=0.99
    )
    similar_share: float | None = option(
        None,
        "share of requests that a semantic cache answers correctly, with exact repeats: label a sample for false hits",
        low=0,
        high=0.99,
    )
    planned_share: float = option(
        0.1, "exact repeats for which the break-even is shown while `repeat_share` is not supplied", low=0.01, high=0.99
    )
    planned_similar_share: float = option(
        0.2,
        "semantic hits for which the break-even is shown while `similar_share` is not supplied",
        low=0.01,
        high=0.99,
    )
    lookup_cost: float = option(0.001, "cost of an exact lookup over the cost of serving a request", low=0, high=0.99)
    similar_lookup_cost: float = option(
        0.02, "cost of a semantic lookup, with its embedding, over the cost of serving a request", low=0, high=0.99
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("response-cache")
def response_cache(seen: Evidence, service: Service, options: Options) -> Iterator[Proposal | Skip]:
    """Answer repeated requests from a cache before they reach an engine.

    ## Why it saves
    A request that a cache answers costs a lookup instead of a prefill and hundreds of decode steps, and its answer is
    immediate.
    ## When it is wrong
    Where outputs are personal, change with time, call tools or should vary. Tenants must not see each other's outputs.
    A semantic cache answers some requests wrongly: label a sample first. Telemetry does not show how many requests
    repeat, so no saving is stated, only the break-even, until you supply `repeat_share` or `similar_share`.
    ## How to apply
    In the gateway, before the engines. LiteLLM: `cache: true` with `type: redis` under `cache_params`, `type:
    redis-semantic` with a `similarity_threshold`. Or GPTCache, or Redis LangCache. Give entries a lifetime, and key
    them by model, parameters and prompt.
    ## Sources
    1. (calculated) A cache saves its hits less its lookups: h * (1 - c).
    2. (vendor) 66.6 % of combined hits: an upper bound.
    3. (unverified) 5 to 20 % of hits in general use, 30 to 60 % for frequently repeated questions.
    4. The assumed shares and the costs of lookups are judgement.
    """
    if refusal := hardly_busy(seen, options.min_busy) or tenants_apart(service):
        yield refusal
        return
    cached = service.demand.response_cache_share
    if cached is not None and cached.value > 0:
        yield skip("cached-already", f"a response cache already answers {cached.value:.0%} of its requests")
        return
    kinds = (
        ("exact repeats", options.repeat_share, options.planned_share, options.lookup_cost),
        ("semantic hits", options.similar_share, options.planned_similar_share, options.similar_lookup_cost),
    )
    supplied = any(share is not None for _, share, _, _ in kinds)
    for name, share, planned, cost in kinds:
        if supplied and share is None:
            continue
        hits = planned if share is None else share
        pays = f"it pays above {cost:.1%} of {name}, the cost of lookups"
        if hits <= cost:
            yield skip("look-ups-cost-more", f"{hits:.1%} of its requests are {name}: {pays}")
            continue
        origin = "an assumption: count them at your gateway" if share is None else "as [rules.response-cache] states"
        source = f"{hits:.1%} {name}, {origin}, less lookups; {pays}"
        answered = to(hits - cost, source, confirmed=share is not None)
        yield propose(service.serving(response_cache_share=answered), risk="quality", effort="high")
