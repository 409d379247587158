"""Layers by the lists of configurations, each list in a small model of its own."""

import csv
from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.checkpoints.config_json import cache_fields
from pertoken.agent.checkpoints.facts import Experts, ShapeUnknown, experts_of
from pertoken.state.deployment import Model

KEYS = Path(__file__).with_name("config_keys.csv")
PLAIN: dict[str, Any] = {
    **{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8},
    **{"num_key_value_heads": 2, "head_dim": 16},
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4}
STATE = 4 * 4 * 8 * 16 + 2 * (4 * 8 + 2 * 16) * 3
"""Bytes of one layer of that Mamba-2."""
DELTA = {"linear_num_value_heads": 4, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_key_head_dim": 8}


def model(model_type: str, **config: Any) -> Model:
    fields: dict[str, Any] = cache_fields({**PLAIN, "model_type": model_type, **config})
    return Model("m", 10, 10, **fields)


def kinds(of: Model) -> tuple[int, ...]:
    """Layers with attention, a window, recurrent state, none of them."""
    assert of.layer_kinds is not None and of.known
    return tuple(of.layer_kinds.values())


LISTS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("granitemoehybrid", {"layer_types": ["mamba", "attention", "mamba", "mamba"], **MAMBA}, (1, 0, 3, 0)),
    ("granitemoehybrid", {"layer_types": ["attention"] * 4, **MAMBA}, (4, 0, 0, 0)),
    ("nemotron_h", {"layers_block_type": ["mamba", "moe", "attention", "mlp"], **MAMBA}, (1, 0, 1, 2)),
    ("nemotron_h", {"hybrid_override_pattern": "ME*-", **MAMBA}, (1, 0, 1, 2)),
    ("bamba", {"attn_layer_indices": [1], **MAMBA}, (1, 0, 3, 0)),
    ("lfm2", {"full_attn_idxs": [0, 2], "conv_L_cache": 3}, (2, 0, 2, 0)),
    ("zamba2", {"hybrid_layer_ids": [3], **MAMBA}, (1, 0, 3, 0)),
    ("minimax_m1", {"attn_type_list": [0, 0, 0, 1]}, (1, 0, 3, 0)),
    ("minimax_m2", {"attn_type_list": [1, 1, 1, 1]}, (4, 0, 0, 0)),
    ("jamba", {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_expand": 2, "mamba_d_state": 4,
               "mamba_d_conv": 4}, (2, 0, 2, 0)),
    ("qwen3_next", {"full_attention_interval": 4, "linear_conv_kernel_dim": 4, **DELTA}, (1, 0, 3, 0)),
    ("kimi_linear", {"linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "num_heads": 2,
                                            "head_dim": 8, "short_conv_kernel_size": 4},
                     "kv_lora_rank": 32, "qk_rope_head_dim": 8}, (1, 0, 3, 0)),
    ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1, 1, 1], "sliding_window": 8, "swa_num_key_value_heads": 4},
     (1, 3, 0, 0)),
    ("recurrent_gemma", {"_block_types": ["recurrent", "attention"], "attention_window_size": 8, "lru_width": 64,
                         "conv1d_width": 4}, (0, 2, 2, 0)),
    ("nemotron-nas", {"num_key_value_heads": None, "block_configs": [
        {"attention": {"n_heads_in_group": 4, "no_op": False}}, {"attention": {"no_op": True}},
        {"attention": {"n_heads_in_group": None, "replace_with_linear": True}},
        {"attention": {"n_heads_in_group": 8}}]}, (2, 0, 0, 2)),
    ("deci", {"num_key_value_heads": None, "num_key_value_heads_per_layer": [4, 2, 1, 1]}, (4, 0, 0, 0)),
    ("llama", {"num_key_value_heads": [4, 2, 1, 1]}, (4, 0, 0, 0)),
    ("gemma3n_text", {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 8,
                      "num_kv_shared_layers": 2}, (1, 1, 0, 2)),
    ("hunyuan", {"use_cla": True, "cla_share_factor": 2}, (2, 0, 0, 2)),
    ("gemma3_text", {"sliding_window_pattern": 2, "sliding_window": 8}, (2, 2, 0, 0)),
    ("exaone4", {"sliding_window_pattern": "LLLG", "sliding_window": 8}, (1, 3, 0, 0)),
    ("exaone4", {"sliding_window_pattern": "LLLG", "sliding_window": None}, (4, 0, 0, 0)),
    ("falcon_h1", {"layer_types": ["hybrid"] * 4, **MAMBA}, (4, 0, 0, 0)),
    ("of_tomorrow", {"layer_types": ["full_attention"] * 4}, (4, 0, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "config", "expected"), LISTS, ids=[row[0] for row in LISTS])
def test_each_list_of_layers_gives_their_kinds(
    model_type: str, config: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert kinds(model(model_type, **config)) == expected


def test_a_plain_model_keeps_keys_and_values_of_each_layer() -> None:
    plain = model("qwen3")
    assert (plain.n_kv_heads, plain.head_dim, plain.kv_values_per_token) == (2, 16, 2 * 4 * 2 * 16)
    assert model("llama", num_key_value_heads=None).n_kv_heads == 8
    assert model("falcon", num_key_value_heads=None, multi_query=True, num_kv_heads=8).n_kv_heads == 1
    assert model("chatglm", num_key_value_heads=None, multi_query_group_num=4).n_kv_heads == 4


def test_a_hybrid_counts_the_layers_that_cache_and_the_state_of_the_others() -> None:
    hybrid = model("bamba", attn_layer_indices=[1], **MAMBA)
    assert (hybrid.kv_values_per_token, hybrid.state_bytes, hybrid.head_dim) == (2 * 2 * 16, 3 * STATE, None)
    both = model("falcon_h1", layer_types=["hybrid"] * 4, **MAMBA)
    assert (both.kv_values_per_token, both.state_bytes) == (4 * 2 * 2 * 16, 4 * STATE)
    latent = model(
        "kimi_linear",
        **{"kv_lora_rank": 32, "qk_rope_head_dim": 8},
        linear_attn_config={
            **{"full_attn_layers": [4], "kda_layers": [1, 2, 3]},
            **{"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 4},
        },
    )
    assert (latent.kv_values_per_token, latent.n_kv_heads) == (40, 1)


def test_sparse_attention_keeps_the_keys_of_its_indexer_beside_the_latent_ones() -> None:
    shape = {"num_hidden_layers": 4, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    dense, sparse = model("deepseek_v3", **shape), model("deepseek_v32", **shape, index_n_heads=64, index_head_dim=128)
    assert (dense.kv_values_per_token, sparse.kv_values_per_token) == (4 * 576, 4 * (576 + 66))


def test_windows_have_heads_of_their_own() -> None:
    windowed = model(
        "mimo_v2_flash",
        hybrid_layer_pattern=[0, 1, 1, 1],
        **{"sliding_window": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 16, "v_head_dim": 8, "swa_v_head_dim": 8},
    )
    assert (windowed.kv_values, windowed.windowed_kv_values) == (2 * 24 + 3 * 4 * 24, 3 * 4 * 24)
    assert windowed.windowed_share == pytest.approx(288 / 336)
    wide = model(
        "gemma4_text", layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=8, global_head_dim=32
    )
    assert wide.kv_values == 2 * 2 * 2 * 16 + 2 * 2 * 2 * 32


def test_layers_of_a_draft_at_the_end_of_a_list_are_not_the_model() -> None:
    drafted = model("llama", layer_types=["full_attention"] * 5, num_nextn_predict_layers=1)
    assert drafted.n_layers == 4
    assert model("nemotron_h", num_hidden_layers=None, layer_types=["attention"] * 3).n_layers == 3


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "of_tomorrow"}, "which layers of a of_tomorrow"),
        ({"model_type": None}, "without a model_type"),
        ({"model_type": "deepseek_v4", "compress_ratios": [4, 128, 4, 0]}, "deepseek_v4"),
        ({"compress_ratios": [4, 128, 4, 0]}, "compress_ratios"),
        ({"layer_types": ["full_attention", "compressed_sparse_attention"] * 2}, "compressed_sparse_attention"),
        ({"layer_types": ["full_attention"] * 3}, "3 layers in layer_types"),
        ({"layer_types": "full_attention"}, "no list"),
        ({"layer_types": ["linear_attention", "full_attention"] * 2}, "recurrent state"),
        ({"layer_types": ["full_attention"] * 4, "attn_type_list": [0, 1, 0, 1]}, "different layers"),
        ({"attn_type_list": [0, 2, 0, 1]}, "attn_type_list"),
        ({"attn_layer_indices": [9]}, "attn_layer_indices"),
        ({"attn_layer_period": 2}, "attn_layer_period"),
        ({"full_attention_interval": "often"}, "full_attention_interval"),
        ({"layer_group_size": 3}, "layer_group_size"),
        ({"hybrid_override_pattern": "M*X-"}, "hybrid_override_pattern"),
        ({"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2]}}, "linear_attn_config"),
        ({"linear_attn_config": {"full_attn_layers": [1, "4"], "kda_layers": [2, 3]}}, "linear_attn_config"),
        ({"linear_attn_config": {"full_attn_layers": None}}, "linear_attn_config"),
        ({"block_configs": [{"attention": {"n_heads_in_group": 4, "window_length": 8}}] * 4}, "another kind"),
        ({"block_configs": [{}] * 4}, "block_configs"),
        ({"block_configs": [{"attention": {"n_heads_in_group": 3}}] * 4}, "do not divide"),
        ({"num_key_value_heads_per_layer": [2, 2]}, "list of KV heads"),
        ({"use_cla": True}, "cla_share_factor"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ({"sliding_window_pattern": "GLG"}, "sliding_window_pattern"),
        ({"mb_per_layer": 2}, "mb_per_layer"),
        ({"mamba_step": 2}, "mamba_step"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"kv_source_layers": [0, 0, 2, 2]}, "kv_source_layers"),
        ({"per_layer_config": {"1": {}}}, "per_layer_config"),
        ({"yoco_global_kv_layer": 2}, "yoco_global_kv_layer"),
        ({"attention_other_setting": {"num_attention_heads": 4}}, "attention_other_setting"),
        ({"cross_attention_layers": [1]}, "cross_attention_layers"),
        ({"kv_lora_rank": 32, "qk_rope_head_dim": 8}, "kv_lora_rank"),
        ({"num_key_value_heads": None, "num_query_groups": 2}, "num_query_groups"),
        ({"model_type": "mamba", "layer_types": ["mamba"] * 4, **MAMBA}, "no layer keeps keys"),
        ({"num_hidden_layers": 2**50}, "number of layers"),
        ({"num_hidden_layers": None}, "number of layers"),
        ({"num_key_value_heads": 2**50, "head_dim": 2**50}, "impossible"),
    ],
)
def test_a_list_that_is_not_understood_leaves_the_cache_unknown_with_its_key(
    config: dict[str, Any], words: str
) -> None:
    with pytest.raises(ShapeUnknown, match=words):
        cache_fields({**PLAIN, **config})


def answers(key: str) -> tuple[str, str]:
    """Answer of both readers to a plain configuration with one more key."""
    config = {**PLAIN, "vocab_size": 100, key: 2}
    try:
        cache = "unchanged" if cache_fields(config) == cache_fields(PLAIN) else "read"
    except ShapeUnknown:
        cache = "unknown"
    try:
        experts = "" if experts_of(config) == Experts() else "experts"
    except ShapeUnknown:
        experts = "mixture unknown"
    return cache, experts


def test_every_key_of_layers_heads_and_experts_has_a_known_answer() -> None:
    with KEYS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 398
    wrong = [row["key"] for row in rows if answers(row["key"]) != (row["cache"], row["experts"])]
    assert wrong == []
