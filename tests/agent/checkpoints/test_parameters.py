"""Parameters counted from configurations, beside what the makers of the models state."""

from typing import Any

import pytest

from pertoken.agent.checkpoints.parameters import parameters
from tests.vllm import MAX_MODEL_LEN, PARAMS


def config(model_type: str, *sizes: int, **more: Any) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
    return {"model_type": model_type, **dict(zip((*names, "vocab_size"), sizes, strict=True)), **more}


TINY = config("llama", 128, 2, 4, 2, 256, 512, max_position_embeddings=2 * MAX_MODEL_LEN)
LLAMA_8B = config("llama", 4096, 32, 32, 8, 14336, 128256, attention_bias=False, mlp_bias=False)
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
    ],
    ids=["tiny", "Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-8B", "Mixtral-8x7B", "Qwen3-30B-A3B"],
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
        {**TINY, "model_type": "deepseek_v3"},
        {**TINY, "attention_bias": True},
        {**QWEN3_30B, "mlp_only_layers": [0]},
        {**QWEN3_30B, "decoder_sparse_step": 2},
        {**MIXTRAL, "num_experts_per_tok": 9},
        {name: value for name, value in TINY.items() if name != "vocab_size"},
        {name: value for name, value in TINY.items() if name != "intermediate_size"},
        {},
    ],
)
def test_a_configuration_with_anything_else_in_it_is_not_known(config: dict[str, Any]) -> None:
    assert parameters(config) == {}
