"""Llama of random weights as vLLM reads it. Run by vLLM's own Python: `... vllm_model.py FOLDER SHAPE DTYPE`.

SHAPE: JSON of a dense `benchmarks.site.models.Shape`. DTYPE: `bf16`, or `int8` for W8A8 with scales per channel, as
compressed-tensors store it. The output head stays in 16 bits, as in published checkpoints. Layers share their values,
which decide nothing about speed.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 32_000
INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
QUANTIZED = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**INT8, "strategy": "channel", "dynamic": False},
            "input_activations": {**INT8, "strategy": "token", "dynamic": True},
        }
    },
}


def main(folder: Path, shape: dict[str, int], dtype: str) -> None:
    """Write the model; its configuration last, which shows that it is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    letters = pre_tokenizers.ByteLevel
    words = ["<s>", "</s>", *sorted(letters.alphabet())]
    words += [f"#{n}" for n in range(VOCABULARY - len(words))]
    bpe = Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, []))
    bpe.pre_tokenizer, bpe.decoder = letters(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    save_file(tensors(shape, dtype), folder / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": shape["width"],
        "intermediate_size": shape["hidden"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["width"] // shape["heads"],
        "max_position_embeddings": shape["context"],
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "bfloat16",
    }
    if dtype == "int8":
        config["quantization_config"] = QUANTIZED
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def tensors(shape: dict[str, int], dtype: str) -> dict[str, torch.Tensor]:
    """Return all tensors by name."""
    width, kv = shape["width"], shape["kv_heads"] * (shape["width"] // shape["heads"])
    linear = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (kv, width),
        "self_attn.v_proj": (kv, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (shape["hidden"], width),
        "mlp.up_proj": (shape["hidden"], width),
        "mlp.down_proj": (width, shape["hidden"]),
    }
    values = {dims: (torch.randn(*dims) * 0.02).to(torch.bfloat16) for dims in {*linear.values(), (VOCABULARY, width)}}
    whole = values[VOCABULARY, width]
    named = {"model.embed_tokens.weight": whole, "lm_head.weight": whole.clone()}
    named["model.norm.weight"] = torch.ones(width, dtype=torch.bfloat16)
    for layer in range(shape["layers"]):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            named[f"{at}.{norm}.weight"] = torch.ones(width, dtype=torch.bfloat16)
        for name, dims in linear.items():
            if dtype == "int8":
                scale = values[dims].float().abs().amax(1, keepdim=True) / 127
                named[f"{at}.{name}.weight"] = (values[dims].float() / scale).round().to(torch.int8)
                named[f"{at}.{name}.weight_scale"] = scale
            else:
                named[f"{at}.{name}.weight"] = values[dims].clone()
    return named


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
