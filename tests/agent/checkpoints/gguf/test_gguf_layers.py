"""Layers by metadata as llama.cpp writes it, each form in a small model of its own."""

from typing import Any

import pytest

from pertoken.agent.checkpoints.facts import ShapeUnknown
from pertoken.agent.checkpoints.gguf import cache_fields, n_layers
from pertoken.state.deployment import Model

PLAIN: dict[str, Any] = {
    **{"block_count": 4, "embedding_length": 64, "attention.head_count": 8, "attention.head_count_kv": 2},
    **{"attention.key_length": 16, "attention.value_length": 16},
}
SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 32, "ssm.state_size": 16, "ssm.group_count": 1}
STATE = 4 * (3 * (32 + 2 * 16) + 16 * 32)


def model(architecture: str, **fields: Any) -> Model:
    shape: dict[str, Any] = cache_fields({**PLAIN, **fields}, architecture)
    return Model("m", 10, 10, **shape)


FORMS: list[tuple[str, dict[str, Any], tuple[int, ...], int, int]] = [
    ("llama", {}, (4, 0, 0, 0), 4 * 64, 0),
    ("gemma3n", {"attention.shared_kv_layers": 3}, (1, 0, 0, 3), 64, 0),
    ("gpt-oss", {"attention.sliding_window": 8, "attention.sliding_window_pattern": 2}, (2, 2, 0, 0), 4 * 64, 0),
    ("gemma4", {"attention.sliding_window": 8, "attention.sliding_window_pattern": (1, 1, 1, 0),
                "attention.key_length_swa": 8, "attention.value_length_swa": 8}, (1, 3, 0, 0), 64 + 3 * 32, 0),
    ("deci", {"attention.head_count_kv": (2, 0, 1, 0)}, (2, 0, 0, 2), 3 * 32, 0),
    ("of_tomorrow", {"attention.head_count_kv": (2, 1, 1, 2)}, (4, 0, 0, 0), 6 * 32, 0),
    ("jamba", {"attention.head_count_kv": (0, 2, 0, 2), **SSM}, (2, 0, 2, 0), 2 * 64, 2 * STATE),
    ("nemotron_h", {"attention.head_count_kv": (0, 2, 0, 0), "feed_forward_length": (0, 0, 9, 0), **SSM}, (1, 0, 2, 1),
     64, 2 * STATE),
    ("falcon-h1", SSM, (4, 0, 0, 0), 4 * 64, 4 * STATE),
    ("qwen3next", {"full_attention_interval": 4, **SSM}, (1, 0, 3, 0), 64, 3 * STATE),
    ("lfm2", {"attention.head_count_kv": (0, 2, 0, 0), "shortconv.l_cache": 3}, (1, 0, 3, 0), 64, 3 * 4 * 2 * 64),
    ("kimi-linear", {"attention.head_count_kv": (0, 0, 0, 1), "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
                     "kda.head_dim": 8, "ssm.conv_kernel": 4}, (1, 0, 3, 0), 40, 3 * 4 * (3 * 3 * 64 + 8 * 64)),
    ("glm4moe", {"block_count": 5, "nextn_predict_layers": 1}, (4, 0, 0, 0), 4 * 64, 0),
    ("glm4moe", {"block_count": 5, "nextn_predict_layers": 1, "attention.head_count_kv": (2,) * 5}, (4, 0, 0, 0),
     4 * 64, 0),
]  # fmt: skip


@pytest.mark.parametrize(("architecture", "fields", "kinds", "values", "state"), FORMS)
def test_each_form_of_header_gives_kinds_values_and_state(
    architecture: str, fields: dict[str, Any], kinds: tuple[int, ...], values: int, state: int
) -> None:
    shape = model(architecture, **fields)
    assert shape.layer_kinds is not None and tuple(shape.layer_kinds.values()) == kinds
    assert (shape.kv_values_per_token, shape.state_bytes or 0) == (values, state)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("of_tomorrow", {}),
        ("llama", SSM),
        ("jamba", SSM),
        ("rwkv7", {"wkv.head_size": 64, "attention.head_count": 0, "attention.head_count_kv": 0}),
        ("mamba", {**SSM, "attention.head_count": 0, "attention.head_count_kv": 0}),
        ("lfm2", {"attention.head_count_kv": (0, 2, 0, 0), "shortconv.l_cache": 0}),
        ("llama", {"attention.head_count_kv": (2, 2)}),
        ("llama", {"attention.head_count_kv": -1}),
        ("llama", {"attention.shared_kv_layers": 4}),
        ("llama", {"attention.key_length": None, "embedding_length": 63}),
        ("deepseek2", {"attention.kv_lora_rank": 32}),
        ("llama", {"block_count": 2**50}),
        ("llama", {"block_count": 1, "nextn_predict_layers": 1}),
    ],
)
def test_a_header_that_is_not_understood_leaves_the_cache_unknown(architecture: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ShapeUnknown):
        cache_fields({**PLAIN, **fields}, architecture)


def test_draft_layers_are_no_layers() -> None:
    assert n_layers({"block_count": 47, "nextn_predict_layers": 1}) == 46
    assert n_layers({"block_count": 1, "nextn_predict_layers": 1}) is None
    assert n_layers({}) is None
