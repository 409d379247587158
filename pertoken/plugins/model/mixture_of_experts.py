"""Rule: serve a mixture of experts instead of a dense model."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.model.replacing import MODEL_RULES, fewest_ranks, refusal, replaced
from pertoken.plugins.unknown import DOCTOR
from pertoken.rule import Evidence, Market, Model, Proposal, Service, Skip, option, propose, rule, skip

MAX_MODELS = 3
"""Models that are proposed: variants that a person can compare."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement (Sources, 4)."""

    min_params: float = option(30e9, "parameters from which a dense model is worth replacing", low=0)
    largest: float = option(
        0.5, "active parameters of the mixture over those of the dense model, at most", low=0.001, high=1
    )
    least_total: float = option(
        0.4, "parameters of the mixture over those of the dense model, at least: below it is just a smaller model",
        low=0,
    )  # fmt: skip
    models: tuple[str, ...] = option(
        (), "mixtures of the catalog that you would accept; without any, those of its family first, then others"
    )
    few_running: float = option(
        8.0, "running requests per replica up to which a mixture that needs more devices never pays", low=0
    )
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("mixture-of-experts")
def mixture_of_experts(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve a mixture of experts instead of a large dense model, if your evaluation passes.

    ## Why it saves
    A mixture computes each token with a few of its experts: 72 % fewer FLOPs (Mixtral 8x7B) to 96 % fewer
    (gpt-oss-120b) than a dense model of as many parameters.
    ## When it is wrong
    Memory is not reduced: all experts stay in it. With few requests at a time on devices that the weights fill, more
    devices for more weights cost more than they save. With many, nearly all experts are read at each step, so the gain
    needs large batches or expert parallelism. It is another model, so no money enters a total: list it in
    `quality_passed` of [services."NAME"] once it passed your evaluation.
    ## How to apply
    Evaluate it, serve it beside the dense model, then move the traffic. vLLM: `--enable-expert-parallel` with
    `--enable-eplb`; SGLang: `--ep-size` with `--enable-dp-attention`. Undo: serve the former model again.
    ## Sources
    1. [A] Active over all parameters: 12.9 of 46.7, 5.1 of 116.8 billion, from the published configurations.
    2. [A] Experts that a step of B tokens reads: E * (1 - (1 - k/E)^B). With B at E/k or more, nearly all.
    3. [C] vLLM 0.32.0 `engine/arg_utils.py`, SGLang 0.5.23 `srt/server_args`: the flags.
    4. The limits are judgement.
    """
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    now = service.deployments[0]
    dense, total = now.model, now.model.params_total or 0
    if dense.n_experts is not None:
        active = (dense.params_active or 0) / 1e9
        yield skip(
            "mixture-already", f"{dense.name} computes with {active:.3g} of {total / 1e9:.3g}B parameters already"
        )
        return
    if total < options.min_params:
        yield skip("small", f"{dense.name} has {total / 1e9:.3g}B parameters, below {options.min_params / 1e9:.3g}B")
        return
    if market.accelerator(now.accelerator) is None:
        name = now.accelerator or "its device"
        yield skip("device-unknown", f"{name} is not in the catalog: how many devices a mixture needs is not known")
        return
    if now.weight_dtype is None:
        yield skip(
            "dtype-unknown",
            f"the dtype of its weights is not known: how many devices a mixture needs neither; {DOCTOR}",
        )
        return
    known = [(mixture, fewest_ranks(now, mixture, market)) for mixture in _mixtures(dense, market, options)]
    fitting = [(model, needed) for model, needed in known if needed is not None]
    if not fitting:
        least = f"{options.least_total * total / 1e9:.3g}B"
        yield skip(
            "no-mixture", f"no mixture of the catalog with {least} parameters or more fits a server of its device"
        )
    running = seen.running.mean / len(service.deployments)
    ranks, proposed = now.tp or 1, 0
    for model, needed in fitting:
        if needed > ranks and running <= options.few_running:
            yield skip(
                "tiny-batch",
                f"{model.name} needs {needed} devices instead of {ranks} for all its experts, and {running:.1f} "
                f"running requests per replica are no more than {options.few_running:g}",
            )
        elif proposed < MAX_MODELS:
            proposed += 1
            excludes = tuple(name for name in MODEL_RULES if name != "mixture-of-experts")
            if needed > ranks:  # others lay the present model out on fewer devices
                excludes = (*excludes, "quantize-weights", "right-size-parallelism")
            yield propose(replaced(service, model, market).resized(), risk="quality", effort="high", excludes=excludes)


def _mixtures(dense: Model, market: Market, options: Options) -> list[Model]:
    """Return the mixtures that may replace a dense model: of its family first, then by how near they are in size."""
    total, active = dense.params_total or 0, dense.params_active or 0
    named = {named_model.name for name in options.models if (named_model := market.model(name)) is not None}
    fitting = [
        model
        for model in market.models
        if model.n_experts is not None
        and (model.params_active or active) <= options.largest * active
        and (model.params_total or 0) >= options.least_total * total
        and (not options.models or model.name in named)
    ]
    family = market.family(dense)

    def rank(mixture: Model) -> tuple[bool, float, str]:
        return (
            family is None or market.family(mixture) != family,
            abs((mixture.params_total or 0) - total),
            mixture.name,
        )

    return sorted(fitting, key=rank)
