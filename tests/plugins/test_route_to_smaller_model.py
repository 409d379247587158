from dataclasses import replace

import pytest

from pertoken.plugins.route_to_smaller_model import route_to_smaller_model
from pertoken.rule import Model
from tests.fleets import LLAMA_70B, low_batch, model
from tests.plugins.proposals import proposals, refusal


def test_a_70b_may_leave_part_of_its_load_to_the_8b_of_its_family() -> None:
    (found,) = proposals(route_to_smaller_model)
    assert (found.model.name, found.tp) == ("meta-llama/Llama-3.1-8B", 1)


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (replace(LLAMA_70B, model=model("Qwen3-0.6B")), "no model of half its size"),
        (replace(LLAMA_70B, model=Model("secret", params_active=10**9)), "no model of half its size"),
        (LLAMA_70B.but(weight_dtype=None), "not known"),
    ],
)
def test_it_refuses_without_a_smaller_model_it_can_place(now: object, reason: str) -> None:
    assert reason in refusal(route_to_smaller_model, now=now)


def test_it_refuses_a_deployment_with_hardly_any_requests() -> None:
    assert "too few requests" in refusal(route_to_smaller_model, seen=low_batch(busy=0.01))
