from typing import Any

import pytest

from pertoken.plugins.model.prune import prune
from pertoken.rule import FEWEST, Model
from pertoken.testing import run
from tests.deployments import MARKET, model
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch


def test_half_of_a_model_without_a_smaller_one_near_in_size_is_another_model() -> None:
    after, wider = proposals(prune, chat(2))
    assert (after.deployments[0].tp, wider.deployments[0].tp) == (1, 2)
    pruned = after.deployments[0].model
    assert (pruned.name, pruned.params_total) == ("meta-llama/Llama-3.3-70B-pruned-50", 35_300_000_000)
    assert MARKET.model(pruned.name) is None and after.replicas == FEWEST


@pytest.mark.parametrize("method", ["2:4", "unstructured"])
def test_single_weights_are_never_pruned_no_engine_skips_them(method: str) -> None:
    result = run(prune, "bandwidth-bound", method=method)
    assert (result.codes, result.proposals) == (("no-sparse-path",), ())
    assert result.refusals[0].reason.startswith(f"{method} sparsity saves nothing: none of 5 engines")


@pytest.mark.parametrize(
    ("fields", "busy", "code"),
    [
        ({"model": model("Qwen3-14B")}, 0.6, "smaller-exists"),
        ({"model": model("Qwen3-30B-A3B")}, 0.6, "mixture"),
        ({"model": model("Qwen3-0.6B")}, 0.6, "small"),
        ({"model": Model("secret")}, 0.6, "size-unknown"),
        ({}, 0.01, "hardly-busy"),
    ],
)
def test_it_refuses_where_a_trained_model_is_near_or_too_little_would_remain(
    fields: dict[str, Any], busy: float, code: str
) -> None:
    assert refusal(prune, chat(**fields), low_batch(busy=busy))[0] == code
