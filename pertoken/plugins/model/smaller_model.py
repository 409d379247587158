"""Rule: replace a model by a smaller or distilled one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pertoken.plugins.common import MODEL_RULES, refusal, replaced
from pertoken.rule import Evidence, Market, Model, Proposal, Service, Skip, option, propose, rule, skip

MAX_MODELS = 3
"""Maximum proposed models, largest first: few enough to compare."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    largest: float = option(
        0.6,
        "maximum parameters of the smaller model over those of the present one, active or in all",
        low=0.001,
        high=1,
    )
    models: tuple[str, ...] = option(
        (), "models of the catalog that you accept, whatever is published of them; empty for suitable smaller ones"
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("smaller-model")
def smaller_model(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Replace the model by a smaller or distilled one, if your evaluation passes.

    ## Why it saves
    An 8B model in FP8 reads and computes about an eighth of what a 70B model does for each token. It fits fewer or
    cheaper devices and batches more requests on them, so that whole replicas become free.
    ## When it is wrong
    Telemetry does not show whether its outputs are as good, so its saving enters no total: the rule shows what it would
    save and how soon evaluation and training are repaid, until you list the model in `quality_passed` of
    [services."NAME"]. A published student was trained on the outputs of the model and is named with its score and
    licence. To distil one yourself needs the teacher, data and training once. Requests that only the large model
    answers well can be routed to it instead. A model that is older, under a narrower licence, or below a third of the
    size without a published score of both is not proposed. Where none of its family is left, the smaller model of
    another family with the best published score is.
    ## How to apply
    Evaluate it on your own tasks, serve it beside the large one with 1 to 5 % of the traffic, then move the rest. Undo:
    serve the previous model again, so keep its checkpoint.
    ## Sources
    1. (calculated) 70.6 over 8.03 billion parameters: 8.8 times the bytes and FLOPs for each token.
    2. (measured) arXiv 2501.08219: 44.5 % of queries are answered equally well by models of 1B to 32B parameters.
    3. (unverified) DeepSeek-R1, arXiv 2501.12948: six distilled models of 1.5B to 70B parameters. Qwen3 Technical
       Report, arXiv 2505.09388, strong-to-weak distillation: six models. The catalog's `models.csv` lists them.
    4. The thresholds on size and busy time are judgement.
    """
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    present = service.deployments[0].model
    named = [model for name in options.models if (model := market.model(name)) is not None]
    students = market.students(present)
    published = sorted(
        {*market.smaller_models(present), *students}, key=lambda model: (-(model.params_active or 0), model.name)
    )
    smaller = _smaller(present, named if options.models else published, options.largest)
    if not options.models:
        if not students:
            yield skip(
                "no-published-student",
                f"the catalog has no published student of {present.name}: to distil one takes it as the teacher, data "
                "and training, which are yours to price",
            )
        if present.n_experts is None:
            smaller = [model for model in smaller if model.n_experts is None]  # see the rule mixture-of-experts
        refusals = [market.unsuitable(present, model) for model in smaller]
        suitable = [model for model, refused in zip(smaller, refusals, strict=True) if refused is None]
        if smaller and not suitable:
            yield from (skip(*refused) for refused in refusals if refused is not None)
            suitable = _of_other_families(present, market, options.largest)
        smaller = suitable
    if not smaller:
        yield skip(
            "no-smaller-model",
            f"the catalog has no model of {options.largest:.0%} of the active parameters of {present.name} or less "
            f"{'that you accept' if options.models else 'in its family, or none that may replace it'}",
        )
    sizes = {(model.params_total, model.params_active): model for model in reversed(smaller)}  # one of each size
    one_of_each_size = [model for model in smaller if model in sizes.values()]
    excludes = tuple(name for name in MODEL_RULES if name != "smaller-model")
    for layout in replaced(service, one_of_each_size[:MAX_MODELS], market):
        yield propose(layout.resized(), risk="quality", effort="high", excludes=excludes)


def _smaller(present: Model, models: Iterable[Model], largest: float) -> list[Model]:
    """Return models with at most a share of the active parameters or of all, and with more of neither."""
    total, active = present.params_total or 0, present.params_active or 0
    sizes = [(model, model.params_active or active, model.params_total or total) for model in models]
    return [
        model
        for model, computed, held in sizes
        if (computed <= largest * active or held <= largest * total) and computed <= active and held < total
    ]


def _of_other_families(present: Model, market: Market, largest: float) -> list[Model]:
    """Return the suitable dense model of another family with the best published score, if there is one."""
    models = [
        model
        for model in _smaller(present, market.comparable_models(present), largest)
        if model.n_experts is None
        and market.takes_images(model) == market.takes_images(present)
        and market.unsuitable(present, model) is None
    ]
    return models[:1]
