"""Rule: serve a published checkpoint that was pruned from the model."""

from collections.abc import Iterator
from dataclasses import dataclass

from pertoken.plugins.common import MODEL_RULES, refusal, replaced
from pertoken.rule import Evidence, Market, Proposal, Service, Skip, option, propose, rule, skip


@dataclass(frozen=True)
class Options:
    """Settings of the rule; the default is judgement (Sources, 5)."""

    min_busy: float = option(0.05, "busy share below which there is no time to save", low=0, high=1)


@rule("prune")
def prune(seen: Evidence, service: Service, market: Market, options: Options) -> Iterator[Proposal | Skip]:
    """Serve a published checkpoint that was pruned and distilled from the model.

    ## Why it saves
    A model without a third or half of its channels and layers reads and computes that much less for each token. The
    pruned model was trained on the outputs of the whole model, and is served like any smaller model.
    ## When it is wrong
    Unstructured sparsity (single weights) and 2:4 sparsity save nothing: no supported engine has a path that skips
    zeros, whatever the "sparse" FLOPs of a datasheet are. Only published checkpoints are proposed, not what
    pruning of your own may give. The outputs differ, so the saving enters no total before the model passed your
    evaluation.
    ## How to apply
    Evaluate the checkpoint, serve it beside the whole model with 1 to 5 % of the traffic, then move the rest. Undo:
    serve the whole model again. Tensor decomposition (low-rank factors in place of matrices) is no lever: no supported
    engine serves decomposed weights.
    ## Sources
    1. (code) vLLM 0.32.0 `compressed_tensors/schemes`: none supports 2:4 any more. SGLang 0.5.23, llama.cpp, TGI: none.
       TensorRT-LLM: not verified.
    2. (measured) SparseGPT and Wanda, arXiv 2301.00774 and 2306.11695: 2:4 costs models of 7B to 8B several points.
    3. (unverified) Minitron, arXiv 2407.14679: 8B and 4B models from a 15B by pruning and distilling.
    4. The catalog's `models.csv`: published checkpoints with the model that each was pruned from.
    5. The threshold is judgement.
    """
    if reason := refusal(seen, service, options.min_busy):
        yield reason
        return
    unpruned = service.deployments[0].model
    checkpoints = market.pruned_models(unpruned)
    if not checkpoints:
        yield skip(
            "no-published-checkpoint", f"the catalog has no published checkpoint that was pruned from {unpruned.name}"
        )
    excludes = tuple(name for name in MODEL_RULES if name != "prune")
    suitable = []
    for pruned in checkpoints:
        if (unsuitable := market.unsuitable(unpruned, pruned)) is not None:
            yield skip(*unsuitable)
        else:
            suitable.append(pruned)
    for layout in replaced(service, suitable, market):
        yield propose(layout.resized(), risk="quality", effort="high", excludes=excludes)
