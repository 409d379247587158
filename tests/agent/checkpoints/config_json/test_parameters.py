"""Parameters counted from configurations, beside what the makers of the models state."""

from typing import Any

import pytest

from pertoken.agent.checkpoints.config_json import parameters
from pertoken.agent.checkpoints.facts import ShapeUnknown
from tests.vllm import MAX_MODEL_LEN, PARAMS


def config(model_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    return {"model_type": model_type, **dict(zip((*names, "vocab_size"), sizes, strict=True)), **more}


TINY = config("llama", 128, 2, 4, 2, 256, 512, max_position_embeddings=2 * MAX_MODEL_LEN)
LLAMA_8B = config("llama", 4096, 32, 32, 8, 14336, 128256, attention_bias=False, mlp_bias=False)
LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
DEEPSEEK_V3 = config("deepseek_v3", 7168, 61, 128, 128, 18432, 129280, **LATENT, num_nextn_predict_layers=1) | {
    **{"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1},
    **{"first_k_dense_replace": 3},
}
KIMI_K2 = {**DEEPSEEK_V3, "model_type": "kimi_k2", "num_attention_heads": 64, "vocab_size": 163840} | {
    **{"n_routed_experts": 384, "first_k_dense_replace": 1},
}
GLM_AIR = config("glm4_moe", 4096, 46, 96, 8, 10944, 151552, head_dim=128, attention_bias=True) | {
    **{"n_routed_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "n_shared_experts": 1},
    **{"first_k_dense_replace": 1},
}
GPT_OSS = config("gpt_oss", 2880, 36, 64, 8, 2880, 201088, head_dim=64, attention_bias=True) | {
    **{"num_local_experts": 128, "num_experts_per_tok": 4},
    "layer_types": ["sliding_attention", "full_attention"] * 18,
}
MINIMAX_M2 = config("minimax_m2", 3072, 62, 48, 8, 1536, 200064, head_dim=128, use_qk_norm=True) | {
    **{"num_local_experts": 256, "num_experts_per_tok": 8, "attn_type_list": [1] * 62},
}
SCOUT = config("llama4_text", 5120, 48, 40, 8, 8192, 202048, head_dim=128, intermediate_size_mlp=16384) | {
    **{"num_local_experts": 16, "num_experts_per_tok": 1},
}
QWEN3_NEXT = config("qwen3_next", 2048, 48, 16, 2, 5120, 151936, head_dim=256, full_attention_interval=4) | {
    **{"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512},
    **{"shared_expert_intermediate_size": 512, "linear_conv_kernel_dim": 4},
    **{"linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32},
    "linear_value_head_dim": 128,
}
ERNIE = config(
    "ernie4_5_moe", 2560, 28, 20, 4, 12288, 103424, moe_num_experts=64, moe_k=6, tie_word_embeddings=True
) | {
    **{"moe_intermediate_size": 1536, "moe_num_shared_experts": 2, "moe_layer_start_index": 1},
}
EXPERTS = {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1}
QWEN3_30B = config("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128) | EXPERTS | {"mlp_only_layers": []}
MIXTRAL = config("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2)


@pytest.mark.parametrize(
    ("fields", "total", "active"),
    [
        (TINY, PARAMS, PARAMS),
        # Totals of safetensors files as the hub lists them; active ones as their model cards round them.
        (LLAMA_8B, 8_030_261_248, 8_030_261_248),
        (config("qwen2", 3584, 28, 28, 4, 18944, 152064), 7_615_616_512, 7_615_616_512),
        (config("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360, 8_190_735_360),
        (MIXTRAL, 46_702_792_704, 12.9e9),
        (QWEN3_30B, 30_532_122_624, 3.3e9),
        # Those of the classes of transformers 5.19, without draft layers; active ones with their embeddings.
        (DEEPSEEK_V3, 671_026_419_200, 37.6e9),
        (KIMI_K2, 1_026_408_232_448, 32.9e9),
        (GLM_AIR, 106_852_251_264, 13.4e9),
        (GPT_OSS, 116_829_156_672, 5.7e9),
        (MINIMAX_M2, 228_689_764_864, 11.0e9),
        (SCOUT, 107_769_861_120, 17.2e9),
        (QWEN3_NEXT, 79_674_391_296, 3.9e9),
        (ERNIE, 21_825_437_888, 3.35e9),
    ],
    ids=[
        "tiny",
        "Llama-3.1-8B",
        "Qwen2.5-7B",
        "Qwen3-8B",
        "Mixtral-8x7B",
        "Qwen3-30B-A3B",
        "DeepSeek-V3",
        "Kimi-K2",
        "GLM-4.5-Air",
        "gpt-oss-120b",
        "MiniMax-M2",
        "Llama-4-Scout",
        "Qwen3-Next-80B-A3B",
        "ERNIE-4.5-21B-A3B",
    ],
)
def test_parameters_are_those_that_the_model_is_published_with(
    fields: dict[str, Any], total: int, active: float
) -> None:
    count = parameters(fields)
    assert count["params_total"] == total
    assert count["params_active"] == pytest.approx(active, rel=0.02)


def test_embeddings_that_are_tied_count_once() -> None:
    tied, untied = (parameters({**TINY, "tie_word_embeddings": tied})["params_total"] for tied in (True, False))
    assert isinstance(tied, int) and isinstance(untied, int)
    assert untied - tied == 512 * 128


@pytest.mark.parametrize(
    "config",
    [
        {**TINY, "model_type": "of_tomorrow"},
        {**TINY, "mlp_bias": True},
        {**TINY, "layer_types": ["full_attention"]},
        {**TINY, "block_configs": [{}, {}]},
        {**DEEPSEEK_V3, "attention_bias": True},
        {**DEEPSEEK_V3, "mlp_layer_types": ["sparse"]},
        {name: value for name, value in DEEPSEEK_V3.items() if name != "n_shared_experts"},
        {name: value for name, value in GLM_AIR.items() if name != "first_k_dense_replace"},
        {**MIXTRAL, "num_experts_per_tok": 9},
        {name: value for name, value in TINY.items() if name != "vocab_size"},
        {name: value for name, value in TINY.items() if name != "intermediate_size"},
        {},
    ],
)
def test_a_configuration_with_anything_else_in_it_is_not_known(config: dict[str, Any]) -> None:
    with pytest.raises(ShapeUnknown):
        parameters(config)


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        ({"mlp_only_layers": [0, 5]}, 46),
        ({"decoder_sparse_step": 2}, 24),
        ({"moe_layer_freq": [0] * 8 + [1] * 40}, 40),
        ({"mlp_layer_types": ["dense"] * 3 + ["sparse"] * 45}, 45),
        ({"first_k_dense_replace": 1}, 47),
        ({"moe_layer_start_index": 2, "moe_layer_end_index": 11}, 10),
        ({"moe_layers": [1, 3, 5]}, 3),
    ],
)
def test_layers_without_experts_are_dense_however_they_are_listed(more: dict[str, Any], layers: int) -> None:
    expert, router, dense = 3 * 2048 * 768, 2048 * 128, 3 * 2048 * 6144
    less = (48 - layers) * (128 * expert + router - dense)
    assert parameters({**QWEN3_30B, **more})["params_total"] == 30_532_122_624 - less


def test_a_bias_of_attention_is_counted() -> None:
    assert parameters({**TINY, "attention_bias": True})["params_total"] == PARAMS + 2 * ((4 + 2 * 2) * 32 + 128)
