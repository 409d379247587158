"""Each knob takes a possible value or refuses it."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pertoken.state.deployment import Deployment, InvalidEdit, UnknownKnob, knobs
from tests.state.fleets import NOW


def test_every_knob_is_a_field_of_a_deployment_in_the_same_order() -> None:
    names = [field.name for field in fields(Deployment)]
    assert names[: names.index("deployment_id")] == list(knobs())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": [1]}, "tensor-parallel ranks must be a whole number from 1 to 1024 ranks"),
        ({"tp": -1}, "a whole number from 1"),
        ({"tp": True}, "a whole number from 1"),
        ({"tp": 2.0}, "a whole number from 1"),
        ({"model": None}, "model must be a Model"),
        ({"model": "llama-8b"}, "model must be a Model"),
        ({"gpu_memory_utilization": 7.0}, "a number from 0.01 to 1 share"),
        ({"gpu_memory_utilization": float("nan")}, "a number from 0.01 to 1"),
        ({"weight_dtype": "fp9"}, "weights must be one of fp32, bf16"),
        ({"weight_dtype": None}, "weights must be one of"),
        ({"enforce_eager": 1}, "eager mode must be True or False"),
        ({"engine": " "}, "engine must be a name"),
        ({"lora_adapters": ["a", 3]}, "LoRA adapters must be a list of names"),
    ],
)
def test_a_value_outside_its_type_or_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidEdit, match=message):
        NOW.but(**changes)


def test_a_name_that_is_no_knob_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownKnob, match=r"'purchase' is not a knob of a deployment: use on.*; known: model, "):
        NOW.but(purchase="spot")


@given(st.sampled_from(list(knobs())), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()))
def test_a_knob_takes_a_possible_value_or_refuses_it(name: str, value: object) -> None:
    try:
        changed = getattr(NOW.but(**{name: value}), name)
    except InvalidEdit as refused:
        assert str(refused).startswith(f"{name}=") or "finite" in str(refused)
        return
    assert changed == value and changed == changed
