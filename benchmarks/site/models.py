"""Models of realistic shape with random weights, as GGUF files in several formats."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pertoken.state.deployment import Model

VOCABULARY = 32_000
BYTES = 259
"""Unknown, begin, end, and a token for each byte: the rest are words that no prompt holds."""
FORMATS = {"fp16": "F16", "int8": "Q8_0", "int4": "Q4_0"}
"""Weight dtypes, by the names GGUF gives them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a llama model; a MoE has `experts` feed-forward networks of width `hidden`, of which a token passes `used`."""

    name: str
    width: int
    heads: int
    kv_heads: int
    layers: int
    hidden: int
    context: int
    experts: int = 0
    used: int = 0

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def params(self, experts: int, head: bool = True) -> int:
        """Return the parameters with at least one expert, without the embedding, which is only looked up."""
        attention = self.width * (2 * self.width + 2 * self.kv_heads * self.head_dim)
        network = 3 * self.width * self.hidden
        return self.layers * (attention + network * max(1, experts)) + (VOCABULARY * self.width if head else 0)

    def model(self, head: bool = True) -> Model:
        """Return it as the forecast takes it; without its output head, as most tokens of a prompt pass it."""
        return Model(
            self.name,
            params_total=self.params(self.experts, head),
            params_active=self.params(self.used, head),
            n_layers=self.layers,
            n_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            n_experts=self.experts or None,
            n_experts_active=self.used or None,
        )


SHAPES = (
    Shape("dense-0.3b", 1024, 16, 4, 20, 3584, 1024),
    Shape("dense-0.6b", 1408, 22, 2, 24, 4352, 1024),
    Shape("dense-1.5b", 2048, 32, 8, 26, 7168, 256),
    Shape("moe-0.6b", 1024, 16, 4, 12, 1792, 1024, experts=8, used=2),
)
SMALL = (Shape("dense-small", 256, 8, 2, 6, 896, 512), Shape("moe-small", 256, 8, 2, 4, 512, 512, experts=4, used=2))
"""For a short run, and for tests."""


def write(path: Path, shape: Shape, dtype: str, seed: int = 0) -> Path:
    """Write a model, unless it is there. Layers share their values, which decide nothing about speed."""
    import gguf

    if path.exists():
        return path
    kind = getattr(gguf.GGMLQuantizationType, FORMATS[dtype])
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, shape, dtype)
    random = np.random.default_rng(seed)
    known: dict[tuple[int, ...], Any] = {}

    def matrix(*dims: int) -> Any:
        if dims not in known:
            values = (random.standard_normal(dims, dtype=np.float32) * 0.02).astype(np.float32)
            known[dims] = values.astype(np.float16) if dtype == "fp16" else gguf.quants.quantize(values, kind)
        return known[dims]

    for name, dims in _matrices(shape):
        writer.add_tensor(f"{name}.weight", matrix(*dims), raw_dtype=kind)
    for layer in range(shape.layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(shape.width, np.float32))
        if shape.experts:
            router = random.standard_normal((shape.experts, shape.width)).astype(np.float32)
            writer.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router)
    writer.add_tensor("output_norm.weight", np.ones(shape.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: Any, shape: Shape, dtype: str) -> None:
    import gguf

    kinds = gguf.TokenType
    words = VOCABULARY - BYTES
    writer.add_name(shape.name)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(VOCABULARY)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
    writer.add_file_type(getattr(gguf.LlamaFileType, f"MOSTLY_{FORMATS[dtype]}"))
    writer.add_tokenizer_model("llama")
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    writer.add_token_list([*tokens, *(f"#{n}#" for n in range(words))])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * words])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _matrices(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, kv = shape.width, shape.kv_heads * shape.head_dim
    yield "token_embd", (VOCABULARY, width)
    yield "output", (VOCABULARY, width)
    for layer in range(shape.layers):
        for name, rows in (("attn_q", width), ("attn_k", kv), ("attn_v", kv), ("attn_output", width)):
            yield f"blk.{layer}.{name}", (rows, width)
        several = (shape.experts,) if shape.experts else ()
        suffix = "_exps" if shape.experts else ""
        for name, dims in (
            ("ffn_gate", (shape.hidden, width)),
            ("ffn_up", (shape.hidden, width)),
            ("ffn_down", (width, shape.hidden)),
        ):
            yield f"blk.{layer}.{name}{suffix}", (*several, *dims)
