"""Rule: replace a model by a smaller or distilled one."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.model.replacing import MODEL_RULES, refusal, replaced
from pertoken.rule import Evidence, Market, Proposal, Service, Skip, option, propose, rule, skip

MAX_MODELS = 3
"""Maximum proposed models, largest first: few enough to compare."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    largest: float = option(
        0.6, "maximum active parameters of the smaller model over those of the present one", low=0.001, high=1
    )
    models: tuple[str, ...] = option(
        (), "models of the catalog that you accept; empty for the smaller ones of its family"
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("smaller-model")
def smaller_model(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Replace the model by a smaller or distilled one of its family, if your evaluation passes.

    ## Why it saves
    An 8B model in FP8 reads and computes about an eighth of what a 70B model does for each token. It fits fewer or
    cheaper devices and batches more requests on them, so that whole replicas become free.
    ## When it is wrong
    Telemetry does not show whether its outputs are as good, so its saving enters no total: the rule shows what it would
    save and how soon evaluation and training are repaid, until you list the model in `quality_passed` of
    [services."NAME"]. Distilling needs a teacher, data and training once. Requests that only the large model answers
    well can be routed to it instead.
    ## How to apply
    Evaluate it on your own tasks, serve it beside the large one with 1 to 5 % of the traffic, then move the rest. Undo:
    serve the previous model again, so keep its checkpoint.
    ## Sources
    1. (calculated) 70.6 over 8.03 billion parameters: 8.8 times the bytes and FLOPs for each token.
    2. (measured) arXiv 2501.08219: 44.5 % of queries are answered equally well by models of 1B to 32B parameters.
    3. (unverified) DeepSeek-R1, arXiv 2501.12948: six distilled models of 1.5B to 70B parameters.
    4. The thresholds on size and busy time are judgement.
    """
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    now = service.deployments[0].model
    active = now.params_active or 0
    named = [model for name in options.models if (model := market.model(name)) is not None]
    known = named if options.models else market.smaller_models(now)
    max_active = options.largest * active
    smaller = [model for model in known if model != now and (model.params_active or active) <= max_active]
    smaller = [model for model in smaller if (model.params_total or 0) < (now.params_total or 0)]
    if now.n_experts is None and not options.models:
        smaller = [model for model in smaller if model.n_experts is None]  # see the rule mixture-of-experts
    sizes = {(model.params_total, model.params_active): model for model in reversed(smaller)}  # one of each size
    smaller = [model for model in smaller if model in sizes.values()]
    if not smaller:
        yield skip(
            "no-smaller-model",
            f"the catalog has no model of {options.largest:.0%} of the active parameters of {now.name} or less "
            f"{'that you accept' if options.models else 'in its family'}",
        )
    excludes = tuple(name for name in MODEL_RULES if name != "smaller-model")
    for layout in replaced(service, smaller[:MAX_MODELS], market):
        yield propose(layout.resized(), risk="quality", effort="high", excludes=excludes)
