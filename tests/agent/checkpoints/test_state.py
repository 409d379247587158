"""Bytes of recurrent state, by hand from the sizes of small layers."""

from typing import Any

import pytest

from pertoken.agent.checkpoints.facts import ShapeUnknown, state_bytes

FORMS: list[tuple[dict[str, Any], int]] = [
    ({"linear_num_value_heads": 4, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
      "linear_conv_kernel_dim": 4}, 4 * (4 * 8 * 16) + 2 * (2 * 2 * 16 + 4 * 8) * 3),
    ({"linear_attn_config": {"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 4}, "head_dim": 99},
     4 * (2 * 8 * 8) + 2 * (3 * 2 * 8 * 3)),
    ({"mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4},
     4 * (4 * 8 * 16) + 2 * (32 + 2 * 2 * 16) * 3),
    ({"n_mamba_heads": 4, "mamba_headdim": 8, "mamba_d_state": 16, "mamba_ngroups": 2, "mamba_d_conv": 4},
     4 * (4 * 8 * 16) + 2 * (32 + 2 * 2 * 16) * 3),
    ({"mamba_expand": 2, "hidden_size": 64, "mamba_d_state": 4, "mamba_d_conv": 4}, 4 * 128 * 4 + 2 * 128 * 3),
    ({"lru_width": 64, "conv1d_width": 4, "hidden_size": 64}, 4 * 64 + 2 * 64 * 3),
    ({"hidden_size": 64, "conv_L_cache": 3}, 2 * 64 * 2),
    ({"model_type": "minimax_m1", "num_attention_heads": 4, "head_dim": 8}, 4 * 4 * 8 * 8),
]  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), FORMS)
def test_the_state_of_each_form_of_layer_is_its_recurrent_part_and_its_convolution(
    config: dict[str, Any], expected: int
) -> None:
    assert state_bytes(config) == expected


def test_a_type_that_the_file_names_for_the_state_counts() -> None:
    config = {"mamba_expand": 2, "hidden_size": 64, "mamba_d_state": 4, "mamba_d_conv": 4}
    assert state_bytes({**config, "mamba_ssm_dtype": "bfloat16"}) == 2 * 128 * 4 + 2 * 128 * 3
    assert state_bytes({**config, "mamba_ssm_dtype": "float32"}) == state_bytes(config)


@pytest.mark.parametrize("config", [{}, {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 8}])
def test_a_layer_of_no_known_form_is_unknown(config: dict[str, Any]) -> None:
    with pytest.raises(ShapeUnknown, match="recurrent state"):
        state_bytes(config)
