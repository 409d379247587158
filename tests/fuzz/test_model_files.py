"""`config.json`, safetensors and GGUF headers of models: a checkpoint, or a reason; never an error."""

import json
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from pertoken.agent.checkpoints.checkpoint import read_files
from pertoken.agent.checkpoints.facts import Checkpoint
from tests.agent.checkpoints.folders import LLAMA, write
from tests.fuzz.damage import DEEP, altered, bounded, damaged
from tests.llama import write_model

CONFIG: dict[str, Any] = {
    **LLAMA,
    "torch_dtype": "bfloat16",
    "text_config": {**LLAMA, "layer_types": ["full_attention"], "num_experts": 8, "num_experts_per_tok": 2},
    "quantization_config": {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
    },
}
TENSORS: dict[str, Any] = {
    "model.layers.0.mlp.experts.1.weight": {"dtype": "I32", "shape": [4, 8], "data_offsets": [0, 128]},
    "lm_head.weight": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [128, 192]},
}


def read(path: Path) -> Checkpoint:
    with bounded():
        found = read_files(path)
    json.dumps(found.facts)
    assert all(isinstance(value, int) and 0 <= value < 2**63 for value in found.facts.values()), found.facts
    return found


def model(folder: Path, config: Any = CONFIG, tensors: Any = TENSORS) -> Path:
    write(folder, LLAMA, model={"a": ("BF16", [2, 3])})
    (folder / "config.json").write_text(json.dumps(config))
    body = json.dumps(tensors).encode()
    (folder / "model.safetensors").write_bytes(pack("<Q", len(body)) + body)
    return folder


def test_a_configuration_with_other_values_is_read_or_a_reason(tmp_path: Path) -> None:
    assert read(model(tmp_path)).reason is None
    for config in altered(CONFIG, "config", 120):
        read(model(tmp_path, config))
    for method in ("modelopt", "bitsandbytes", "awq", "fp8", "compressed-tensors"):
        quantization = {**CONFIG["quantization_config"], "quant_method": method, "bits": 4, "quant_algo": "FP8"}
        for config in altered({**CONFIG, "quantization_config": quantization}, method, 30):
            read(model(tmp_path, config))


@pytest.mark.parametrize(
    "lists",
    [
        {"layer_types": ["linear_attention", "full_attention"], "linear_conv_kernel_dim": 4, "linear_num_key_heads": 2},
        {"block_configs": [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}]},
        {"linear_attn_config": {"full_attn_layers": [1], "kda_layers": [2], "num_heads": 2, "head_dim": 8}},
        {"attn_layer_indices": [1], "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_expand": 2},
        {"model_type": "qwen3_moe", "num_experts": 8, "mlp_layer_types": ["dense", "sparse"], "mlp_only_layers": [0]},
        {"hybrid_override_pattern": "M*", "num_key_value_heads_per_layer": [2, 4], "_block_types": ["recurrent"]},
    ],
)
def test_lists_of_layers_with_other_values_are_read_or_a_reason(tmp_path: Path, lists: dict[str, Any]) -> None:
    for config in altered({**LLAMA, **lists}, "lists", 60):
        write(tmp_path, LLAMA)
        (tmp_path / "config.json").write_text(json.dumps(config))
        read(tmp_path)


def test_a_header_with_other_values_is_read_or_a_reason(tmp_path: Path) -> None:
    for tensors in altered(TENSORS, "tensors", 120):
        read(model(tmp_path, tensors=tensors))


def test_an_index_with_other_values_is_read_or_a_reason(tmp_path: Path) -> None:
    folder = model(tmp_path)
    for index in altered({"weight_map": {"a": "model.safetensors", "b": "b.safetensors"}}, "index", 80):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        read(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "hf_quant_config.json"])
def test_a_file_with_damaged_bytes_is_read_or_a_reason(tmp_path: Path, name: str) -> None:
    folder = model(tmp_path, {**LLAMA})
    file = folder / name
    whole = file.read_bytes() if file.exists() else b'{"quantization": {"quant_algo": "FP8"}}'
    for body in damaged(whole, name, 100):
        file.write_bytes(body)
        read(folder)
    file.write_bytes(b"[" * DEEP)
    assert name == "hf_quant_config.json" or read(folder).reason


def gguf(n_keys: int, body: bytes) -> bytes:
    return b"GGUF" + pack("<IQQ", 3, 0, n_keys) + body


def test_a_gguf_file_with_damaged_bytes_is_read_or_a_reason(tmp_path: Path) -> None:
    file = write_model(tmp_path / "tiny.gguf")
    whole = file.read_bytes()
    assert read(file).reason is None
    for body in damaged(whole[:60_000], "gguf", 150, [pack("<Q", n) for n in (0, 1, 2**16, 2**31, 2**63, 2**64 - 1)]):
        file.write_bytes(body)
        read(file)


def test_lengths_that_a_file_claims_cost_no_memory(tmp_path: Path) -> None:
    """Each claims more than any computer has."""
    key = pack("<Q", 4) + b"name"
    claims = {
        "string": gguf(1, key + pack("<I", 8) + pack("<Q", 2**62)),
        "array": gguf(1, key + pack("<I", 9) + pack("<I", 0) + pack("<Q", 2**62)),
        "strings": gguf(1, key + pack("<I", 9) + pack("<I", 8) + pack("<Q", 2**62)),
        "keys": gguf(2**62, b""),
    }
    for name, body in claims.items():
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(body)
        with bounded(max_bytes=8_000_000):
            assert read_files(file).reason, name
    folder = model(tmp_path / "folder")
    (folder / "model.safetensors").write_bytes(pack("<Q", 2**62) + b"{}")
    with bounded(max_bytes=8_000_000):
        assert read_files(folder).reason


def test_a_sparse_file_of_any_size_is_refused_without_being_read(tmp_path: Path) -> None:
    folder = model(tmp_path)
    for name in ("config.json", "model.safetensors.index.json"):
        with (folder / name).open("wb") as file:
            file.truncate(2**40)
        with bounded(max_bytes=200_000_000):
            assert read_files(folder).reason
        model(tmp_path)
