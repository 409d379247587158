"""Models as folders, written by hand: a configuration, and safetensors files that end with their header."""

import json
from pathlib import Path
from struct import pack
from typing import Any

Tensors = dict[str, tuple[str, list[int]]]
"""Dtype and shape by name."""

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
}


def header(tensors: Tensors) -> bytes:
    """Return a safetensors file without its tensors, which nobody here reads."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    table |= {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    body = json.dumps(table).encode()
    return pack("<Q", len(body)) + body


def write(folder: Path, config: dict[str, Any], **files: Tensors) -> Path:
    """Return a model of one file (named `model`) or of several with their index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, tensors in files.items():
        (folder / f"{name}.safetensors").write_bytes(header(tensors))
    if len(files) > 1:
        weight_map = {tensor: f"{name}.safetensors" for name, tensors in files.items() for tensor in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder
