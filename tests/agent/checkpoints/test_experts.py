from typing import Any

import pytest

from pertoken.agent.checkpoints.facts import ACTIVE, COUNTS, Experts, ShapeUnknown, experts_of


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("active", ACTIVE)
def test_experts_are_counted_under_any_of_their_names(count: str, active: str) -> None:
    assert experts_of({count: 64, active: 6}) == Experts(64, 6)


@pytest.mark.parametrize(
    "config", [{}, {"num_experts": 0}, {"num_experts": None, "n_shared_experts": 2}, {"num_experts": 1}]
)
def test_a_model_without_experts_is_dense(config: dict[str, Any]) -> None:
    assert experts_of(config) == Experts(1, 1)


@pytest.mark.parametrize(
    "config",
    [
        {"num_experts": 64},
        {"num_experts": 64, "experts_chosen": 6},
        {"num_experts": 64, "num_experts_per_tok": 65},
        {"moe_num_experts": [64, 64], "moe_k": 6},
        {"num_experts": 64, "moe_num_experts": 32, "moe_k": 6},
        {"moe_expert_num": 64, "moe_k": 6},
        {"ffn_config": {"moe_num_experts": 16, "moe_top_k": 4}},
        {"experts": 16},
        {"layers_num_experts": [16, 16]},
        {"num_experts_per_tok": 2},
    ],
)
def test_experts_that_are_written_otherwise_are_unknown_and_never_all_active(config: dict[str, Any]) -> None:
    with pytest.raises(ShapeUnknown):
        experts_of(config)


def test_a_token_passes_its_share_of_the_experts_and_all_else() -> None:
    assert Experts(64, 8).active_parameters(total=1000, routed=640) == 440
    assert Experts().active_parameters(total=1000, routed=0) == 1000
    for unknown in (Experts(None, None), Experts(64, None)):
        assert unknown.active_parameters(total=1000, routed=640) is None
    assert Experts(64, 8).active_parameters(total=1000, routed=0) is None
    assert Experts().active_parameters(total=1000, routed=640) is None
