from pathlib import Path
from typing import Any

import pytest

from pertoken.agent.checkpoints.checkpoint import read_folder
from pertoken.agent.checkpoints.facts import Checkpoint
from tests.agent.checkpoints.folders import LLAMA, Tensors, write


def test_a_dense_model_is_its_configuration_and_the_sum_of_its_tensors(tmp_path: Path) -> None:
    first: Tensors = {"model.embed_tokens.weight": ("BF16", [100, 64]), "model.norm.weight": ("BF16", [64])}
    second: Tensors = {
        "model.layers.0.mlp.up_proj.weight": ("BF16", [128, 64]),
        "model.layers.0.rotary_emb.inv_freq": ("F32", [4]),
    }
    assert read_folder(write(tmp_path, LLAMA, a=first, b=second)) == Checkpoint(
        {"params_total": 14656, "params_active": 14656, "n_layers": 2, "n_kv_heads": 2, "head_dim": 8}, dtype="bf16"
    )


def test_a_mixture_of_experts_uses_some_of_its_experts_for_a_token(tmp_path: Path) -> None:
    config = {**LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16}
    experts: Tensors = {f"model.layers.0.mlp.experts.{i}.up_proj.weight": ("BF16", [10, 10]) for i in range(8)}
    others: Tensors = {"lm_head.weight": ("BF16", [10, 64]), "model.layers.0.mlp.shared_experts.w": ("BF16", [5, 5])}
    checkpoint = read_folder(write(tmp_path, config, model={**experts, **others}))
    assert checkpoint.facts == {
        **{"params_total": 800 + 640 + 25, "params_active": 200 + 640 + 25, "n_layers": 2, "n_kv_heads": 2},
        **{"head_dim": 16, "n_experts": 8, "n_experts_active": 2},
    }


def test_mla_caches_one_compressed_vector_and_a_draft_layer_is_not_the_model(tmp_path: Path) -> None:
    config = {
        **{**LLAMA, "model_type": "deepseek_v3"},
        **{"num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_nextn_predict_layers": 1},
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }
    tensors: Tensors = {
        "model.layers.1.w.weight": ("F8_E4M3", [10, 10]),
        "model.layers.1.w.weight_scale_inv": ("F32", [1, 1]),
        "model.layers.2.w.weight": ("F8_E4M3", [10, 10]),
    }
    shape = {"params_total": 100, "params_active": 100, "n_layers": 2, "n_kv_heads": 1, "head_dim": 288}
    assert read_folder(write(tmp_path, config, model=tensors)) == Checkpoint(shape, True, "fp8_block")


def test_a_text_model_within_another_is_the_one_that_serves_tokens(tmp_path: Path) -> None:
    for config in ({"text_config": LLAMA}, {"thinker_config": {"text_config": LLAMA}}):
        checkpoint = read_folder(write(tmp_path, {**config, "dtype": "float16", "hidden_size": 1}))
        assert checkpoint.facts == {"n_layers": 2, "n_kv_heads": 2, "head_dim": 8}
        assert checkpoint.dtype == "bf16"


def test_layers_that_keep_no_keys_leave_the_size_of_the_cache_unknown(tmp_path: Path) -> None:
    kinds = ["linear_attention", "full_attention"]
    checkpoint = read_folder(write(tmp_path, {**LLAMA, "layer_types": kinds}))
    assert checkpoint.facts == {"n_layers": 2}
    assert checkpoint.unknown[0].startswith("the recurrent state of its linear layers is not known")
    kinds = ["sliding_attention", "full_attention"]
    assert read_folder(write(tmp_path, {**LLAMA, "layer_types": kinds})).facts["n_kv_heads"] == 2


@pytest.mark.parametrize(
    "draft",
    [
        "mtp.fc.weight",
        "model.mtp_layers.0.mlp.up_proj.weight",
        "model.layers.2.mlp.up_proj.weight",
        "mtp_block.a.weight",
    ],
)
def test_draft_layers_of_any_name_are_no_parameters(tmp_path: Path, draft: str) -> None:
    tensors: Tensors = {"model.layers.1.mlp.up_proj.weight": ("BF16", [8, 8]), draft: ("BF16", [100, 100])}
    facts = read_folder(write(tmp_path, LLAMA, model=tensors)).facts
    assert (facts["params_total"], facts["params_active"]) == (64, 64)


def test_layers_of_an_image_encoder_are_parameters_however_many_there_are(tmp_path: Path) -> None:
    tensors: Tensors = {"vision_tower.encoder.layers.26.mlp.fc1.weight": ("BF16", [8, 8])}
    assert read_folder(write(tmp_path, LLAMA, model=tensors)).facts["params_total"] == 64


@pytest.mark.parametrize(
    "config",
    [{"moe_expert_num": 8, "moe_k": 2}, {"num_experts": 8}, {"num_experts": [8, 8], "moe_k": 2}, {}],
)
def test_a_mixture_whose_active_experts_are_not_understood_has_no_active_parameters(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    tensors: Tensors = {f"model.layers.0.mlp.experts.{i}.w": ("BF16", [8, 8]) for i in range(8)}
    facts = read_folder(write(tmp_path, {**LLAMA, **config}, model=tensors)).facts
    assert facts["params_total"] == 512 and "params_active" not in facts


def test_integers_beside_weights_in_fp8_are_another_format_and_leave_parameters_unknown(tmp_path: Path) -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    tensors: Tensors = {"a.weight": ("F8_E4M3", [8, 8]), "b.weight": ("I8", [8, 4]), "b.scale": ("F8_E8M0", [8, 1])}
    checkpoint = read_folder(write(tmp_path, config, model=tensors))
    assert "params_total" not in checkpoint.facts and "b.weight is stored as I8" in checkpoint.unknown[0]
    del tensors["b.weight"]
    assert read_folder(write(tmp_path, config, model=tensors)).facts["params_total"] == 64


@pytest.mark.parametrize(
    ("quantization", "dtype", "stored", "params"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4", ("I32", [8, 4]), 256),
        ({"quant_method": "gptq", "bits": 8}, "int8", ("I32", [8, 4]), 128),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", ("U8", [8, 4]), 64),
        ({"quant_method": "mxfp4"}, "fp4", ("U8", [8, 4]), 64),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4", ("U8", [8, 4]), 64),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", ("F8_E4M3", [8, 4]), 32),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "type": "int"}}}},
            *("int8", ("I8", [8, 4]), 32),
        ),
        ({"quant_method": "gptq", "bits": 3}, None, ("I32", [8, 4]), None),
        ({"quant_method": "of tomorrow"}, None, ("U8", [8, 4]), None),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {}}}, None, ("I8", [8, 4]), None),
    ],
)
def test_packed_weights_are_counted_by_their_bits_or_not_at_all(
    tmp_path: Path, quantization: dict[str, Any], dtype: str | None, stored: tuple[str, list[int]], params: int | None
) -> None:
    tensors: Tensors = {"a.qweight": stored, "a.scales": ("F16", [8, 1]), "a.qzeros": ("I32", [8, 1])}
    checkpoint = read_folder(write(tmp_path, {**LLAMA, "quantization_config": quantization}, model=tensors))
    assert (checkpoint.quantized, checkpoint.dtype, checkpoint.facts.get("params_total")) == (True, dtype, params)
