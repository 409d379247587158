"""Rule: prune a model to get a smaller one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pertoken.plugins.model.replacing import MODEL_RULES, refusal, replaced
from pertoken.rule import Evidence, Market, Model, Proposal, Service, Skip, option, propose, rule, skip

ENGINES_READ = 5
"""Number of engines checked for a kernel that skips zero weights (Sources, 1)."""


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the defaults are judgement (Sources, 4)."""

    method: Literal["structured", "2:4", "unstructured"] = option(
        "structured", "what to remove: whole channels, heads and layers, two of four weights, or single weights"
    )
    kept: float = option(0.5, "share of parameters to keep", low=0.05, high=0.95)
    near: float = option(
        0.6,
        "size of an existing smaller model over the pruned one at or above which pruning is not worth it",
        low=0,
        high=1,
    )
    min_params: float = option(3e9, "minimum parameters: below it too little would remain", low=0)
    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("prune")
def prune(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Prune channels and layers and distil the rest, where the family has no smaller model of similar size.

    ## Why it saves
    A model without half of its channels and layers reads and computes half for each token. The pruned model is trained
    on the outputs of the whole model, and served like any smaller model.
    ## When it is wrong
    Unstructured sparsity (single weights) and 2:4 sparsity save nothing: no supported engine has a path that skips
    zeros, whatever the "sparse" FLOPs of a datasheet are. Pruning needs data and training once; a smaller model that is
    already trained is better where there is one. The outputs differ, so the saving enters no total before the model
    passed your evaluation.
    ## How to apply
    Prune and distil with NVIDIA ModelOpt (Minitron) or LLM-Pruner, evaluate, then serve the checkpoint as another
    model. Undo: serve the whole model again.
    ## Sources
    1. (code) vLLM 0.32.0 `compressed_tensors/schemes`: none supports 2:4 any more. SGLang 0.5.23, llama.cpp, TGI: none.
       TensorRT-LLM: not verified.
    2. (measured) SparseGPT and Wanda, arXiv 2301.00774 and 2306.11695: 2:4 costs models of 7B to 8B several points.
    3. (unverified) Minitron, arXiv 2407.14679: 8B and 4B models from a 15B by pruning and distilling.
    4. The thresholds, and that half remains, are judgement.
    """
    if options.method != "structured":
        yield skip(
            "no-sparse-path",
            f"{options.method} sparsity saves nothing: none of {ENGINES_READ} engines skips zero weights",
        )
        return
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    whole = service.deployments[0].model
    total, active = whole.params_total or 0, whole.params_active or 0
    if whole.n_experts is not None:
        yield skip("mixture", f"{whole.name} is a mixture of {whole.n_experts} experts: the rule does not prune these")
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
            f"{nearest.name} with {(nearest.params_total or 0) / 1e9:.3g}B parameters exists already and is "
            "similar in size: the rule smaller-model proposes such models",
        )
        return
    excludes = tuple(name for name in MODEL_RULES if name != "prune")
    for layout in replaced(service, [_pruned(whole, options.kept)], market):
        yield propose(layout.resized(), risk="quality", effort="high", excludes=excludes)


def _pruned(whole: Model, kept: float) -> Model:
    """Return the model with a share of its parameters; its attention and layer counts stay as they are."""
    total, active = (
        None if params is None else round(params * kept) for params in (whole.params_total, whole.params_active)
    )
    return replace(
        whole, name=f"{whole.name}-pruned-{kept:.0%}".replace("%", ""), params_total=total, params_active=active
    )
