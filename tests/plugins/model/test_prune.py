from typing import Any

import pytest

from pertoken.plugins.model.prune import prune
from pertoken.rule import FEWEST, Model
from tests.deployments import MARKET, model
from tests.plugins.proposals import chat, proposals, refusal
from tests.savings.fleets import low_batch


def test_a_published_checkpoint_that_was_pruned_from_the_model_replaces_it() -> None:
    after, *_ = proposals(prune, chat(2))
    pruned = after.deployments[0].model
    assert (pruned.name, pruned.params_total) == ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", 49_900_000_000)
    assert after.replicas == FEWEST


def test_every_model_that_it_proposes_is_in_the_catalog() -> None:
    for present in MARKET.models:
        yielded = proposals(prune, chat(model=present, tp=None, pp=None, dp=None))
        names = [state.deployments[0].model.name for state in yielded if hasattr(state, "deployments")]
        assert all(MARKET.model(name) is not None for name in names), present.name


@pytest.mark.parametrize(
    ("fields", "busy", "code"),
    [
        ({"model": model("Qwen3-14B")}, 0.6, "no-published-checkpoint"),
        ({"model": model("Qwen3-30B-A3B")}, 0.6, "no-published-checkpoint"),
        ({"model": Model("secret")}, 0.6, "size-unknown"),
        ({}, 0.01, "hardly-busy"),
    ],
)
def test_it_refuses_without_a_published_checkpoint_or_load(fields: dict[str, Any], busy: float, code: str) -> None:
    assert refusal(prune, chat(**fields), low_batch(busy=busy))[0] == code
