from typing import Any

import pytest

from pertoken.plugins.fleet.split_hybrid import Options, split_hybrid
from pertoken.rule import Fleet, Model
from pertoken.testing import Result, deployment, evidence, fleet, regime, run, service


def ran(replicas: int = 1, busy: float = 0.7, **knobs: Any) -> Result:
    of: dict[str, Any] = {"served": "Llama-3.3-70B", "tp": 2} | knobs
    made = service("chat", *[deployment(**of)] * replicas)
    return run(split_hybrid, regime(fleet(made), {"chat": evidence(busy=busy)}))


def test_the_largest_small_model_of_the_family_answers_from_one_cheap_device() -> None:
    (proposed,) = ran(2).proposals
    (edge,) = proposed.diff.added
    assert (edge.model.name, edge.tp, edge.weight_dtype) == ("meta-llama/Llama-3.1-8B", 1, "fp8")
    assert (edge.accelerator, edge.placement.purchase, edge.device_ids) == ("L4", "on_demand", ())
    assert isinstance(proposed.state, Fleet)
    first, second, _ = proposed.state.service("chat").deployments
    share = Options().planned_share
    assert dict(edge.serves) == {"chat": share}
    assert dict(first.serves) == {"chat": (1 - share) / 2} and dict(second.serves) == {"chat": None}
    assert proposed.risk == "quality" and "route-requests" in proposed.excludes


@pytest.mark.parametrize(
    ("knobs", "code"),
    [
        ({"busy": 0.01}, "hardly-busy"),
        ({"served": "Llama-3.1-8B", "tp": 1}, "no-smaller-model"),
        ({"served": Model("secret", params_active=10**9)}, "no-smaller-model"),
    ],
)
def test_it_refuses_without_requests_or_a_small_model(knobs: dict[str, Any], code: str) -> None:
    assert ran(**knobs).codes == (code,)


def test_a_service_of_two_models_and_sites_without_a_device_are_refused() -> None:
    both = service("chat", deployment("Llama-3.3-70B", tp=2), deployment("Llama-3.1-8B"))
    two_models = regime(fleet(both), {"chat": evidence(busy=0.7)})
    assert run(split_hybrid, two_models).codes == ("already-routed",)
    large = regime(fleet(service("chat", deployment("Llama-3.3-70B", tp=2))), {"chat": evidence(busy=0.7)})
    assert run(split_hybrid, large, edge=("T4",)).codes == ("no-edge-device",)
