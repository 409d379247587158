"""Rule: prune a model, as a path to a smaller one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pertoken.plugins.model.replacing import MODEL_RULES, refusal, replaced
from pertoken.rule import Evidence, Market, Model, Proposal, Service, Skip, option, propose, rule, skip

ENGINES_READ = 5
"""Engines whose code or documents were read for a path that multiplies sparse weights (Sources, 1)."""


@dataclass(frozen=True)
class Options:
    """What a person may set; the defaults are judgement (Sources, 4)."""

    method: Literal["structured", "2:4", "unstructured"] = option(
        "structured", "what is removed: whole channels, heads and layers, two of four weights, or single weights"
    )
    kept: float = option(0.5, "parameters that remain, of all", low=0.05, high=0.95)
    near: float = option(
        0.6, "size of a trained smaller model over the pruned one from which pruning is not worth it", low=0, high=1
    )
    min_params: float = option(3e9, "parameters below which too little would remain", low=0)
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("prune")
def prune(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Prune whole channels and layers and distil what remains, where no smaller model of the family is near in size.

    ## Why it saves
    A model without half of its channels and layers reads and computes half for each token. What remains is trained on
    the outputs of the whole model, and served as any smaller model is.
    ## When it is wrong
    Weights removed one by one, or two of four (2:4), save nothing: no engine here has a path that skips them, whatever
    the "sparse" FLOPs of a datasheet are. Pruning needs data and training once; a trained smaller model is better where
    there is one. Its outputs are other ones, so no money enters a total before it passed your evaluation.
    ## How to apply
    Prune and distil with NVIDIA ModelOpt (Minitron) or LLM-Pruner, evaluate, then serve the checkpoint as another
    model. Undo: serve the whole model again.
    ## Sources
    1. [C] vLLM 0.32.0 `compressed_tensors/schemes`: none is 2:4 any more. SGLang 0.5.23, llama.cpp, TGI: none.
       TensorRT-LLM: recalled, not verified.
    2. [M] SparseGPT and Wanda, arXiv 2301.00774 and 2306.11695: 2:4 costs models of 7B to 8B several points.
    3. [K] Minitron, arXiv 2407.14679: 8B and 4B models from a 15B by pruning and distilling. Recalled, not read again.
    4. The limits, and that half remains, are judgement.
    """
    if options.method != "structured":
        yield skip(
            "no-sparse-path",
            f"{options.method} sparsity saves nothing: none of {ENGINES_READ} engines has a path that skips zeros",
        )
        return
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    whole = service.deployments[0].model
    total, active = whole.params_total or 0, whole.params_active or 0
    if whole.n_experts is not None:
        yield skip("mixture", f"{whole.name} is a mixture of {whole.n_experts} experts: pruning these is not covered")
        return
    if total < options.min_params:
        yield skip("small", f"{whole.name} has {total / 1e9:.3g}B parameters, below {options.min_params / 1e9:.3g}B")
        return
    trained = [
        smaller_model
        for smaller_model in market.smaller_models(whole)
        if options.near * options.kept * active <= (smaller_model.params_active or 0)
        and (smaller_model.params_total or total) < total
    ]
    if trained:
        nearest = trained[-1]
        yield skip(
            "smaller-exists",
            f"{nearest.name} with {(nearest.params_total or 0) / 1e9:.3g}B parameters is trained already and near in "
            "size: the rule smaller-model proposes such models",
        )
        return
    excludes = tuple(name for name in MODEL_RULES if name != "prune")
    pruned = replaced(service, _pruned(whole, options.kept), market)
    yield propose(pruned.resized(), risk="quality", effort="high", excludes=excludes)


def _pruned(whole: Model, kept: float) -> Model:
    """Return the shape after width and depth pruning: parameters shrink, its attention and layers are kept."""
    total, active = (
        None if params is None else round(params * kept) for params in (whole.params_total, whole.params_active)
    )
    return replace(
        whole, name=f"{whole.name}-pruned-{kept:.0%}".replace("%", ""), params_total=total, params_active=active
    )
