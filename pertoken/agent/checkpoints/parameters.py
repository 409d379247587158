"""Parameters of a model by its `config.json` alone, where its tensors cannot be read: families whose blocks are known.

Each block has the four attention projections, a gated MLP of three matrices (or experts of them behind a router) and
two norms; families differ in biases and in norms of queries and keys. Source: the classes of these families in
transformers 5.19 (models/*/modeling_*.py). A configuration with anything else in it counts as not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.agent.checkpoints.bounded import whole


@dataclass(frozen=True, slots=True)
class _Family:
    qkv_bias: bool = False
    qk_norm: bool = False
    expert_width: str | None = None
    """Field with the width of the experts of a block; None for a family without experts."""


_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(),
    "qwen2": _Family(qkv_bias=True),
    "qwen3": _Family(qk_norm=True),
    "mixtral": _Family(expert_width="intermediate_size"),
    "qwen3_moe": _Family(qk_norm=True, expert_width="moe_intermediate_size"),
}


def parameters(text: Mapping[str, object]) -> dict[str, object]:
    """`params_total` and `params_active` of a text model's configuration; empty for one that is not known."""
    family = _FAMILIES.get(str(text.get("model_type")))
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    width, layers, heads, vocabulary = (whole(text.get(name)) for name in names)
    if family is None or not (width and layers and heads and vocabulary) or _unusual(text, family):
        return {}
    kv_heads = whole(text.get("num_key_value_heads")) or heads
    head_dim = whole(text.get("head_dim")) or width // heads
    projections = 2 * width * heads * head_dim + 2 * width * kv_heads * head_dim
    biases = (heads + 2 * kv_heads) * head_dim if family.qkv_bias else 0
    block = projections + biases + (2 * head_dim if family.qk_norm else 0) + 2 * width
    spare = 0
    if family.expert_width is None:
        wide = whole(text.get("intermediate_size"))
        mlp = None if wide is None else 3 * width * wide
    else:
        n = whole(text.get("num_local_experts")) or whole(text.get("num_experts"))
        size, k = whole(text.get(family.expert_width)), whole(text.get("num_experts_per_tok"))
        mlp = None if not (n and size and k) or k > n else n * 3 * width * size + width * n
        spare = 0 if mlp is None or not (n and size and k) else (n - k) * 3 * width * size
    if mlp is None:
        return {}
    embeddings = vocabulary * width * (1 if text.get("tie_word_embeddings") is True else 2)
    total = layers * (block + mlp) + width + embeddings
    return {"params_total": total, "params_active": total - layers * spare}


def _unusual(text: Mapping[str, object], family: _Family) -> bool:
    """Return whether a configuration switches on something that the count leaves out."""
    biased = any(text.get(name) is True for name in ("attention_bias", "mlp_bias"))
    some_dense = bool(text.get("mlp_only_layers")) or text.get("decoder_sparse_step", 1) != 1
    return biased or (family.expert_width is not None and some_dense) or "num_nextn_predict_layers" in text
