"""The shape of a model."""

from dataclasses import replace
from typing import Any

import pytest

from pertoken.state.deployment import Model
from tests.deployments import model


@pytest.mark.parametrize("field", ["params_total", "params_active", "n_layers", "n_kv_heads", "head_dim"])
def test_bytes_per_token_can_be_computed_only_of_a_whole_shape(field: str) -> None:
    whole = model("Qwen3-8B")
    assert whole.known
    missing: dict[str, Any] = {field: None}
    assert not replace(whole, **missing).known


def test_layers_without_lists_all_attend() -> None:
    whole = model("Qwen3-8B")
    assert whole.layer_kinds == {"attention": 36, "sliding": 0, "linear": 0, "none": 0}
    assert whole.kv_values_per_token == 2 * 36 * 8 * 128 and whole.kv_values_per_layer == 2 * 8 * 128
    assert model("gpt-oss-120b").layer_kinds == {"attention": 18, "sliding": 18, "linear": 0, "none": 0}
    assert replace(whole, n_layers=None, kv_values=7).layer_kinds is None


def test_layers_that_differ_are_counted_by_kind_and_their_values_are_stated() -> None:
    hybrid = Model("m", 10, 10, 36, 8, kv_values=9 * 2048, n_attention_layers=9, n_linear_layers=20, state_bytes=5)
    assert hybrid.layer_kinds == {"attention": 9, "sliding": 0, "linear": 20, "none": 7}
    assert hybrid.known and hybrid.kv_values_per_layer == 2048


def test_the_share_of_windows_is_that_of_their_values() -> None:
    windowed = model("gpt-oss-120b")
    assert windowed.windowed_share == 0.5
    assert replace(windowed, kv_values=100, windowed_kv_values=80).windowed_share == 0.8
    assert model("Qwen3-8B").windowed_share == 0
