from dataclasses import replace

import pytest

from pertoken.state.deployment import InvalidEdit, Placement
from pertoken.state.service import FEWEST
from tests.state.fleets import CHAT, FLEET


def test_one_replica_cannot_move_while_one_stays() -> None:
    with pytest.raises(InvalidEdit, match="all_but=1 moves nothing: code has 1 deployment"):
        FLEET.service("code").on(Placement(purchase="spot"), all_but=1)


def test_a_resized_service_leaves_the_number_to_pricing() -> None:
    assert CHAT.resized().replicas == FEWEST
    assert CHAT.resized().deployments == CHAT.deployments


def test_an_evaluation_is_of_one_value_of_a_field_or_of_any() -> None:
    chat = replace(CHAT, quality_passed=("model=llama-8b", "kv_dtype"))
    assert chat.passed("model", "llama-8b") and chat.passed("model", "meta/llama-8b") and chat.passed("kv_dtype", "fp8")
    assert not chat.passed("model", "llama-70b") and not chat.passed("weight_dtype", "fp8")
