"""Rule: serve a mixture of experts (MoE) instead of a dense model."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import DOCTOR, MODEL_RULES, fewest_ranks, not_in_catalog, refusal, replaced
from pertoken.rule import Evidence, Market, Model, Proposal, Service, Skip, option, propose, rule, skip

MAX_MODELS = 3
"""Maximum proposed models: few enough to compare."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    min_params: float = option(30e9, "minimum parameters of a dense model worth replacing", low=0)
    largest: float = option(
        0.5, "maximum active parameters of the MoE model over those of the dense model", low=0.001, high=1
    )
    min_total: float = option(
        0.4, "minimum parameters of the MoE model over those of the dense model: below it is just a smaller model",
        low=0,
    )  # fmt: skip
    models: tuple[str, ...] = option(
        (), "MoE models of the catalog that you accept, whatever is published of them; empty for all suitable ones"
    )
    few_running: float = option(
        8.0, "maximum running requests per replica at which a MoE model on more devices never pays", low=0
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("mixture-of-experts")
def mixture_of_experts(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve a MoE model instead of a large dense model, if your evaluation passes.

    ## Why it saves
    A mixture of experts (MoE) computes each token with a few of its experts: 72 % fewer FLOPs (Mixtral 8x7B) to 96 %
    fewer (gpt-oss-120b) than a dense model with as many parameters.
    ## When it is wrong
    Memory is not reduced: all experts stay in it. With few concurrent requests, additional devices for the larger
    weights cost more than they save. With many requests nearly all experts are read at each step, so the gain needs
    large batches or expert parallelism. It is another model, so its saving enters no total until you list it in
    `quality_passed` of [services."NAME"] after it passed your evaluation. An older model, or one under a narrower
    licence, is not proposed.
    ## How to apply
    Evaluate it, serve it beside the dense model, then move the traffic. vLLM: `--enable-expert-parallel` with
    `--enable-eplb`; SGLang: `--ep-size` with `--enable-dp-attention`. Undo: serve the previous model again.
    ## Sources
    1. (calculated) Active over all parameters: 12.9 of 46.7, 5.1 of 116.8 billion, from the published configurations.
    2. (calculated) Experts that a step of B tokens reads: E * (1 - (1 - k/E)^B). With B at E/k or more, nearly all.
    3. (code) vLLM 0.32.0 `engine/arg_utils.py`, SGLang 0.5.23 `srt/server_args`: the flags.
    4. The thresholds are judgement.
    """
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    present = service.deployments[0]
    dense, total = present.model, present.model.params_total or 0
    if dense.n_experts is not None:
        active = (dense.params_active or 0) / 1e9
        yield skip(
            "mixture-already", f"{dense.name} already computes with {active:.3g} of {total / 1e9:.3g}B parameters"
        )
        return
    if total < options.min_params:
        yield skip("small", f"{dense.name} has {total / 1e9:.3g}B parameters, below {options.min_params / 1e9:.3g}B")
        return
    if market.accelerator(present.accelerator) is None:
        yield not_in_catalog(present, "the devices that a MoE model needs are not known")
        return
    if present.weight_dtype is None:
        yield skip(
            "dtype-unknown",
            f"the dtype of its weights, and so the devices that a MoE model needs, is not known: {DOCTOR}",
        )
        return
    mixtures_with_ranks = [
        (mixture, fewest_ranks(present, mixture, market)) for mixture in _mixtures(dense, market, options)
    ]
    fitting = [(model, needed) for model, needed in mixtures_with_ranks if needed is not None]
    if not fitting:
        least = f"{options.min_total * total / 1e9:.3g}B"
        yield skip(
            "no-mixture", f"no MoE model of the catalog with {least} parameters or more fits a server of its device"
        )
    running = seen.running.mean / len(service.deployments)
    ranks, tried = present.tp or 1, []
    for model, needed in fitting:
        if needed > ranks and running <= options.few_running:
            yield skip(
                "tiny-batch",
                f"{model.name} needs {needed} devices instead of {ranks} for all its experts, and {running:.1f} "
                f"running requests per replica are not more than {options.few_running:g}",
            )
        else:
            tried.append(model)
    for layout in replaced(service, tried[:MAX_MODELS], market):
        excludes = tuple(name for name in MODEL_RULES if name != "mixture-of-experts")
        if (layout.deployments[0].tp or 1) > ranks:  # these rules put the present model on fewer devices
            excludes = (*excludes, "quantize-weights", "right-size-parallelism")
        yield propose(layout.resized(), risk="quality", effort="high", excludes=excludes)


def _mixtures(dense: Model, market: Market, options: Options) -> list[Model]:
    """Return the MoE models that may replace a dense model: those of its family first, then by difference in size."""
    total, active = dense.params_total or 0, dense.params_active or 0
    named = {named_model.name for name in options.models if (named_model := market.model(name)) is not None}
    fitting = [
        model
        for model in market.models
        if model.n_experts is not None
        and market.takes_images(model) == market.takes_images(dense)
        and (model.params_active or active) <= options.largest * active
        and (model.params_total or 0) >= options.min_total * total
        and (model.name in named if options.models else market.unsuitable(dense, model) is None)
    ]
    family = market.family(dense)

    def rank(mixture: Model) -> tuple[bool, float, str]:
        return (
            family is None or market.family(mixture) != family,
            abs((mixture.params_total or 0) - total),
            mixture.name,
        )

    return sorted(fitting, key=rank)
