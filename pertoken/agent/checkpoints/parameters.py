"""Parameters of a model by its `config.json` alone, where its tensors cannot be read: families with known blocks.

A block has attention (or a recurrent layer), a feed-forward part (dense, or experts behind a router) and norms;
families differ in biases, norms and widths. Source: the classes of these families in transformers 5.19
(models/*/modeling_*.py). A configuration with anything else in it is not counted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pertoken.agent.checkpoints.bounded import whole
from pertoken.agent.checkpoints.config_layers import (
    HEADS,
    KV_HEADS,
    LAYERS,
    WIDTH,
    check_keys,
    first,
    layer_count,
    layer_kinds,
)
from pertoken.agent.checkpoints.experts import COUNTS, experts_of
from pertoken.agent.checkpoints.facts import LINEAR, NONE, ShapeUnknown

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class _Family:
    """Differences of a family from Llama's blocks."""

    qkv_bias: bool = False
    out_bias: bool | None = None
    """Whether the output projection has a bias; None: as `attention_bias` and `attention_out_bias` of the file."""
    qk_norm: str | None = None
    """head: of one head each; all: of all heads."""
    gated: bool = False
    """Whether attention has an output gate as wide as its queries."""
    sinks: bool = False
    norms: int = 2
    matrices: int = 3
    """Of a feed-forward part: 3 with a gate, 2 without."""
    expert_bias: bool = False
    """Whether the matrices and the router of experts have biases."""
    router_bias: bool = False
    """Whether a bias corrects the router's choice."""
    shared_gate: bool = False
    expert_width: tuple[str, ...] = ("moe_intermediate_size",)
    dense_width: tuple[str, ...] = ("intermediate_size",)
    needs: tuple[str, ...] = ()
    """Fields whose default is not none, so that a file must give them; other names of one behind a bar."""
    tied: bool = False
    """Whether embeddings are tied where the file does not name it."""


_SHARED = ("n_shared_experts|num_shared_experts", "first_k_dense_replace|mlp_layer_types|moe_layer_freq")
_DEEPSEEK = _Family(router_bias=True, needs=_SHARED)
_QWEN_NEXT = _Family(qk_norm="head", gated=True, shared_gate=True, needs=("shared_expert_intermediate_size",))
_FAMILIES: Mapping[str, _Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral3", "granite", "smollm3"), _Family()),
    "deepseek_v2": _Family(needs=_SHARED),
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"), _DEEPSEEK),
    "ernie4_5": _Family(tied=True),
    "ernie4_5_moe": _Family(
        router_bias=True, tied=True, needs=("moe_num_shared_experts", "moe_layer_start_index|mlp_layer_types")
    ),
    **dict.fromkeys(("gemma3",), _Family(qk_norm="head", norms=4, tied=True)),
    "gemma2": _Family(norms=4, tied=True),
    "exaone4": _Family(qk_norm="head"),
    "gemma": _Family(tied=True),
    "glm4_moe": _Family(out_bias=False, router_bias=True, needs=_SHARED),
    "solar_open": _Family(out_bias=False, router_bias=True, needs=_SHARED[:1]),
    "dots1": _Family(qk_norm="head", router_bias=True, needs=_SHARED),
    "exaone_moe": _Family(qk_norm="head", router_bias=True, needs=_SHARED),
    "glm4": _Family(out_bias=False, norms=4),
    "granitemoe": _Family(expert_width=("intermediate_size",)),
    "olmoe": _Family(qk_norm="all", expert_width=("intermediate_size",)),
    "gpt_oss": _Family(True, True, sinks=True, expert_bias=True, expert_width=("intermediate_size",)),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe"), _Family(qk_norm="head")),
    "llama4": _Family(expert_width=("intermediate_size",), dense_width=("intermediate_size_mlp",)),
    "mimo": _Family(qkv_bias=True),
    "minimax_m2": _Family(qk_norm="all", router_bias=True, expert_width=("intermediate_size",)),
    "mixtral": _Family(expert_width=("intermediate_size",)),
    "nemotron_h": _Family(
        norms=1, matrices=2, router_bias=True, needs=("n_shared_experts|moe_shared_expert_intermediate_size",)
    ),
    "olmo2": _Family(qk_norm="all"),
    "olmo3": _Family(qk_norm="all"),
    "phi3": _Family(),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_moe": _Family(qkv_bias=True, shared_gate=True, needs=("shared_expert_intermediate_size",)),
    "qwen3": _Family(qk_norm="head"),
    "qwen3_moe": _Family(qk_norm="head"),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), _QWEN_NEXT),
    "seed_oss": _Family(qkv_bias=True),
}
_UNUSUAL = ("mlp_bias", "use_bias", "use_mla", "enable_moe_block", "use_double_wide_mlp", "num_memory_blocks")
"""Fields that switch on matrices or biases that are not counted."""


def parameters(config: Config) -> dict[str, object]:
    """Return `params_total` and `params_active` of a text model's configuration.

    Raises ShapeUnknown, naming the type of model or the field that is missing or not counted.
    """
    model_type = str(config.get("model_type")).removesuffix("_text")
    family = _FAMILIES.get(model_type)
    if family is None:
        raise ShapeUnknown(f"the parameters of a {model_type} are not counted from its config.json (params_total)")
    missing = next((spec for spec in family.needs if first(config, spec.split("|")) is None), None)
    if missing is not None and any(config.get(name) for name in COUNTS):
        raise ShapeUnknown(f"config.json does not give {missing.split('|')[0]}, so parameters are not counted")
    unusual = next((name for name in _UNUSUAL if config.get(name)), None)
    if unusual is not None:
        raise ShapeUnknown(f"the parameters of a {model_type} with {unusual} are not counted (params_total)")
    check_keys(config)
    width, vocabulary = _need(config, *WIDTH), _need(config, "vocab_size")
    count = layer_count(config)
    kinds = layer_kinds(config, count if count is not None else _need(config, *LAYERS))
    experts = experts_of(config)
    sparse = _sparse_layers(config, len(kinds)) if (experts.count or 0) > 1 else frozenset()
    tied = config.get("tie_word_embeddings", family.tied) is True
    total, spare = width + vocabulary * width * (1 if tied else 2), 0
    own_blocks = model_type == "nemotron_h"
    for layer, kind in enumerate(kinds):
        total += family.norms * width
        if kind == LINEAR:
            total += _mamba(config, width) if own_blocks else _delta_net(config, width)
        elif kind != NONE:
            total += _attention(config, family, width)
        if own_blocks and kind != NONE:
            continue
        if layer in sparse:
            expert, others = _experts(config, family, width)
            total += expert * (experts.count or 0) + others
            spare += expert * ((experts.count or 0) - (experts.active or 0))
        else:
            total += family.matrices * width * _need(config, *family.dense_width)
    return {"params_total": total, "params_active": total - spare}


def _need(config: Config, *names: str) -> int:
    size = whole(first(config, names))
    if size is None:
        raise ShapeUnknown(f"config.json does not give {names[0]}, so parameters are not counted (params_total)")
    return size


def _attention(config: Config, family: _Family, width: int) -> int:
    heads = _need(config, *HEADS)
    biased = config.get("attention_bias") is True
    if config.get("kv_lora_rank") is not None:
        if biased:
            raise ShapeUnknown("the parameters of latent attention with attention_bias are not counted (params_total)")
        return _latent(config, width, heads)
    kv_heads = whole(first(config, KV_HEADS)) or heads
    size = whole(config.get("head_dim")) or width // heads
    queries, keys = heads * size, 2 * kv_heads * size
    count = width * (queries * (2 if family.gated else 1) + keys) + queries * width
    count += queries + keys if family.qkv_bias or biased else 0
    out_bias = biased and config.get("attention_out_bias") is not False
    count += width if (out_bias if family.out_bias is None else family.out_bias) else 0
    count += heads if family.sinks else 0
    normed = family.qk_norm if config.get("use_qk_norm") is not False else None
    return count + {"head": 2 * size, "all": queries + keys // 2}.get(normed or "", 0)


def _latent(config: Config, width: int, heads: int) -> int:
    """Return the parameters of multi-head latent attention, with the indexer of sparse attention where there is one."""
    rank, rope = _need(config, "kv_lora_rank"), _need(config, "qk_rope_head_dim")
    nope, value = _need(config, "qk_nope_head_dim"), _need(config, "v_head_dim")
    low = whole(config.get("q_lora_rank"))
    queries = heads * (nope + rope)
    count = width * queries if low is None else width * low + low + low * queries
    count += width * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * width
    indexers = whole(config.get("index_n_heads"))
    if indexers is None:
        return count
    size = _need(config, "index_head_dim")
    return count + (low or width) * indexers * size + width * size + 2 * size + width * indexers


def _delta_net(config: Config, width: int) -> int:
    keys = _need(config, "linear_num_key_heads") * _need(config, "linear_key_head_dim")
    heads, size = _need(config, "linear_num_value_heads"), _need(config, "linear_value_head_dim")
    kernel, values = _need(config, "linear_conv_kernel_dim"), heads * size
    projections = width * (2 * keys + 2 * values + 2 * heads) + values * width
    return projections + (2 * keys + values) * kernel + 2 * heads + size


def _mamba(config: Config, width: int) -> int:
    heads, size = _need(config, "mamba_num_heads"), _need(config, "mamba_head_dim")
    states = 2 * _need(config, "n_groups") * _need(config, "ssm_state_size")
    inner, kernel = heads * size, _need(config, "conv_kernel")
    conv = (inner + states) * (kernel + (1 if config.get("use_conv_bias", True) else 0))
    return width * (2 * inner + states + heads) + conv + 3 * heads + inner + inner * width


_SPARSE_LISTS: Mapping[str, Callable[[object], bool]] = {
    "mlp_layer_types": lambda item: item == "sparse",
    "moe_layer_freq": bool,
    "hybrid_override_pattern": lambda item: item == "E",
    "layers_block_type": lambda item: item == "moe",
}
"""Lists of layers, with the items that stand for experts."""


def _sparse_layers(config: Config, count: int) -> frozenset[int]:
    """Return the layers whose feed-forward part is of experts, by any of the ways to write it."""
    for key, is_sparse in _SPARSE_LISTS.items():
        listed = config.get(key)
        if isinstance(listed, str | list):
            if len(listed) != count:
                raise ShapeUnknown(f"config.json has {len(listed)} layers in {key}, so parameters are not counted")
            return frozenset(layer for layer, item in enumerate(listed) if is_sparse(item))
    numbers = config.get("moe_layers")
    if isinstance(numbers, list):
        return frozenset(layer for layer in numbers if isinstance(layer, int))
    step = whole(first(config, ("decoder_sparse_step", "moe_layer_interval", "interleave_moe_layer_step"))) or 1
    begin = whole(first(config, ("first_k_dense_replace", "moe_layer_start_index"))) or 0
    end = config.get("moe_layer_end_index")
    last = end if isinstance(end, int) and 0 <= end < count else count - 1
    dense = config.get("mlp_only_layers")
    left_out = set(dense) if isinstance(dense, list) else set()
    return frozenset(layer for layer in range(begin, last + 1) if (layer + 1) % step == 0 and layer not in left_out)


def _experts(config: Config, family: _Family, width: int) -> tuple[int, int]:
    """Return the parameters of one expert, and of the router and the shared experts together."""
    count, size = _need(config, *COUNTS), _need(config, *family.expert_width, "expert_ffn_hidden_size")
    outer = whole(config.get("moe_latent_size")) or width
    expert = family.matrices * outer * size + ((2 * size + width) if family.expert_bias else 0)
    router = count * (width + (1 if family.expert_bias else 0) + (1 if family.router_bias else 0))
    router += 2 * width * outer if outer != width else 0
    shared = whole(first(config, ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")))
    number = whole(
        first(config, ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"))
    )
    wide = shared * (number or 1) if shared is not None else size * (number or 0)
    if config.get("model_type") in ("llama4", "llama4_text"):
        wide = size
    gate = width if family.shared_gate and wide else 0
    return expert, router + family.matrices * width * wide + gate
