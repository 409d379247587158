"""Layers of a model by its `config.json`: which of them keep keys and values, a window of them, or recurrent state.

Each way of writing a list of layers is one row of `_KINDS`. Sources: configuration and modeling files of transformers
5.24 and vLLM 0.33, and the remote code of the models that wrote a list first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pertoken.agent.checkpoints.facts import (
    ATTENTION,
    COUNTS,
    LINEAR,
    MAX_LAYERS,
    NONE,
    SLIDING,
    Layer,
    ShapeUnknown,
    experts_of,
    fields_of,
    state_bytes,
    whole,
)
from pertoken.catalog.model_facts import EVERY_LAYER, LAYER_LISTS, cache_kind

Config = Mapping[str, object]
KindsReader = Callable[[Config, int], tuple[str, ...]]
"""Returns the kinds of all layers from a configuration and the number of layers."""

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = (
    "num_key_value_heads",
    "multi_query_group_num",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "kv_n_heads",
    "num_attention_groups",
)
WIDTH = ("hidden_size", "n_embd", "d_model")
_HEAD_SIZE = ("head_dim", "attention_head_dim", "attention_head_size", "hidden_size_per_head", "kv_channels", "d_head")
_OTHER_KV_HEADS = re.compile(r"(kv|key_value)\w*(heads|groups)|(heads|groups)_kv|query_groups")
_WINDOWS = ("sliding_window", "sliding_window_size", "attention_window_size", "attention_chunk_size")
DRAFT_LAYERS = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_BOTH = "attention and linear"
_WORDS = {
    **dict.fromkeys(("full_attention", "attention", "indexed_attention"), ATTENTION),
    **dict.fromkeys(("deepseek_sparse_attention", "qwen_sparse_attention"), ATTENTION),
    **dict.fromkeys(("sliding_attention", "chunked_attention", "sliding_window_attention"), SLIDING),
    **dict.fromkeys(("linear_attention", "mamba", "mamba2", "conv", "recurrent"), LINEAR),
    **dict.fromkeys(("moe", "mlp"), NONE),
    "hybrid": _BOTH,
}
_LETTERS = {"M": LINEAR, "*": ATTENTION, "-": NONE, "E": NONE}
"""Of Nemotron-H's `hybrid_override_pattern`."""


def cache_fields(config: Config) -> dict[str, object]:
    """Return the fields of `Model` for the KV cache and the recurrent state of a text model's configuration.

    Raises ShapeUnknown, naming the key or the model type that is not understood.
    """
    count = layer_count(config)
    if count is None:
        raise ShapeUnknown(f"config.json names no possible number of layers ({LAYERS[0]})")
    kinds = layer_kinds(config, count)
    check_keys(config)
    return fields_of(_layers(config, kinds), whole(first(config, _WINDOWS)))


def check_keys(config: Config) -> None:
    """Raise ShapeUnknown for a key that may make layers differ and is not understood."""
    listed = any(config.get(key) for key in _KINDS)
    unread = next((key for key, value in config.items() if value and _is_unread(key, listed)), None)
    if unread is not None:
        raise ShapeUnknown(f"config.json has {unread}, and what that makes of its layers is not known")


def layer_count(config: Config) -> int | None:
    """Return the number of layers, as it is named or by a list of them; None if it is not known."""
    listed = first(config, ("layer_types", "layers_block_type"))
    count = whole(first(config, LAYERS)) or (whole(len(listed)) if isinstance(listed, list) else None)
    return None if count is None or count > MAX_LAYERS else count


def layer_kinds(config: Config, count: int) -> tuple[str, ...]:
    """Return attention, sliding, linear, none, or attention and linear, for each layer. Raises ShapeUnknown."""
    readings = {key: read(config, count) for key, read in _KINDS.items() if config.get(key) not in (None, [], {}, "")}
    for key, kinds in readings.items():
        if len(kinds) != count:
            raise ShapeUnknown(f"config.json has {len(kinds)} layers in {key} and {count} in {LAYERS[0]}")
    if len(set(readings.values())) > 1:
        raise ShapeUnknown(f"config.json gives different layers in {' and '.join(readings)}")
    listed = cache_kind("config", config.get("model_type"))
    if not readings and (listed is None or listed == LAYER_LISTS) and not _heads_by_layer(config, count):
        named = config.get("model_type") or "without a model_type"
        raise ShapeUnknown(f"which layers of a {named} keep keys and values is not known, and config.json lists none")
    kinds_by_layer = next(iter(readings.values()), (ATTENTION,) * count)
    if not readings and (step := _sliding_step(config)):
        kinds_by_layer = tuple(ATTENTION if (layer + 1) % step == 0 else SLIDING for layer in range(count))
    return _without_shared(config, kinds_by_layer)


def _sliding_step(config: Config) -> int | None:
    """Return n of a model in which each n-th layer attends to all tokens and the others to a window."""
    step = first(config, ("sliding_window_pattern", "_sliding_window_pattern"))
    if isinstance(step, str) and re.fullmatch("L+G", step):
        step = len(step)
    if step is not None and whole(step) is None:
        raise ShapeUnknown("config.json has a sliding_window_pattern that is not understood")
    return whole(step) if whole(first(config, _WINDOWS)) else None


def _without_shared(config: Config, kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds with `none` for layers that read the keys and values of another layer."""
    last = whole(config.get("num_kv_shared_layers")) or 0
    if last >= len(kinds):
        raise ShapeUnknown("config.json has more num_kv_shared_layers than layers")
    step = whole(config.get("cla_share_factor")) if config.get("use_cla") else 1
    if step is None:
        raise ShapeUnknown("config.json has use_cla without a cla_share_factor")
    owned = len(kinds) - last
    return tuple(kind if layer < owned and layer % step == 0 else NONE for layer, kind in enumerate(kinds))


def _layers(config: Config, kinds: Sequence[str]) -> list[Layer]:
    by_layer = _heads_by_layer(config, len(kinds))
    sizes = {kind: _heads(config, kind) for kind in set(kinds) - {LINEAR, NONE}}
    state = state_bytes(config) if {LINEAR, _BOTH} & set(kinds) else 0
    layers = []
    for number, kind in enumerate(kinds):
        heads, head_values = sizes.get(kind, (0, 0))
        if by_layer and heads:
            heads = by_layer[number]
        layers.append(
            Layer(ATTENTION if kind == _BOTH else kind, heads, head_values, state if kind in (LINEAR, _BOTH) else 0)
        )
    return layers


def _heads(config: Config, kind: str) -> tuple[int, int]:
    """Return (KV heads, cached values per token and head) of a layer of this kind. Raises ShapeUnknown."""
    listed = cache_kind("config", config.get("model_type"))
    rank, rope = whole(config.get("kv_lora_rank")), whole(config.get("qk_rope_head_dim"))
    if rank is not None:
        if listed in (None, EVERY_LAYER) or rope is None:
            raise ShapeUnknown(f"how {config.get('model_type')} keeps its kv_lora_rank in the cache is not known")
        return 1, rank + rope + _index_values(config)
    heads, width = whole(first(config, HEADS)), whole(first(config, WIDTH))
    special = {SLIDING: ("swa_num_key_value_heads",), ATTENTION: ("num_global_key_value_heads",)}.get(kind, ())
    kv_heads = whole(first(config, (*special, *KV_HEADS)))
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        kv_heads = 1
    size = whole(first(config, ({SLIDING: "swa_head_dim", ATTENTION: "global_head_dim"}.get(kind, ""), *_HEAD_SIZE)))
    unread = next((key for key in config if config[key] and _OTHER_KV_HEADS.search(key)), None)
    by_layer = kv_heads is None and _heads_by_layer(config, 0) is not None
    if kv_heads is None and unread is not None and not by_layer:
        raise ShapeUnknown(f"config.json has {unread}, and what that makes of the KV heads is not known")
    if listed is not None:
        kv_heads = kv_heads or heads
        size = size or (width // heads if heads and width and width % heads == 0 else None)
    if kv_heads is None and by_layer:
        kv_heads = 1  # replaced layer by layer
    if kv_heads is None or size is None:
        raise ShapeUnknown(f"config.json does not give {KV_HEADS[0] if kv_heads is None else _HEAD_SIZE[0]}")
    value = whole(first(config, ("swa_v_head_dim" if kind == SLIDING else "", "v_head_dim"))) or size
    return kv_heads, size + value


def _index_values(config: Config) -> int:
    """Return the size of a token's key in the indexer of sparse attention, as values of 16 bits.

    It is kept in eight bits, with a scale of four bytes for 128 of them, whatever the dtype of the cache. Source:
    `DeepseekV32IndexerCache` of vLLM (2026-11).
    """
    size = whole(config.get("index_head_dim")) or 0
    return (size + 4 * -(-size // 128)) // 2


def _heads_by_layer(config: Config, count: int) -> Sequence[int] | None:
    """Return the KV heads of each layer where they are listed; raises ShapeUnknown if the list is not understood."""
    keys = ("num_key_value_heads_per_layer", *(key for key in KV_HEADS if isinstance(config.get(key), list)))
    listed = first(config, keys)
    if listed is not None:
        heads = [whole(item) for item in listed] if isinstance(listed, list) else []
        if (count and len(heads) != count) or not all(heads):
            raise ShapeUnknown("config.json has a list of KV heads that is not understood")
        return [item for item in heads if item]
    blocks, queries = config.get("block_configs"), whole(first(config, HEADS))
    if not isinstance(blocks, list) or not blocks:
        return None
    groups = [whole(_attention_of(block).get("n_heads_in_group")) for block in blocks]
    if any(group and (queries is None or queries % group) for group in groups):
        raise ShapeUnknown("config.json has block_configs whose heads do not divide its attention heads")
    return [(queries or 0) // group if group else 0 for group in groups]


def _attention_of(block: object) -> Mapping[str, object]:
    attention = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention, dict):
        raise ShapeUnknown("config.json has block_configs that are not understood")
    return attention


def _block_kind(block: object) -> str:
    attention = _attention_of(block)
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return NONE
    if any(attention.get(key) for key in ("window_length", "num_sink_tokens", "unshifted_sink", "mamba", "llama4")):
        raise ShapeUnknown("config.json has block_configs with another kind of attention")
    if whole(attention.get("n_heads_in_group")) is None:
        raise ShapeUnknown("config.json has block_configs without n_heads_in_group")
    return ATTENTION


def _words(key: str) -> KindsReader:
    def read(config: Config, count: int) -> tuple[str, ...]:
        listed, draft = config[key], whole(first(config, DRAFT_LAYERS)) or 0
        if not isinstance(listed, list):
            raise ShapeUnknown(f"config.json has a {key} that is no list")
        strange = [word for word in listed if not isinstance(word, str) or word not in _WORDS]
        if strange:
            raise ShapeUnknown(f"config.json has layers of an unknown kind in {key}: {str(strange[0])[:40]}")
        kinds = tuple(_WORDS[word] for word in listed)
        return kinds[:count] if len(kinds) == count + draft else kinds

    return read


def _repeated(key: str) -> KindsReader:
    """Read a pattern that is repeated over all layers; its attention is to a window where one is named."""

    def read(config: Config, count: int) -> tuple[str, ...]:
        pattern = _words(key)(config, 0)
        local = whole(config.get("attention_window_size")) is not None
        kinds = [SLIDING if local and kind == ATTENTION else kind for kind in pattern]
        return tuple(kinds[layer % len(kinds)] for layer in range(count))

    return read


def _numbers(key: str, kind_by_number: Mapping[int, str]) -> KindsReader:
    def read(config: Config, count: int) -> tuple[str, ...]:
        listed = config[key]
        if not isinstance(listed, list) or not all(type(item) is int and item in kind_by_number for item in listed):
            raise ShapeUnknown(f"config.json has a {key} that is not understood")
        return tuple(kind_by_number[item] for item in listed)

    return read


def _indices(key: str, listed_kind: str) -> KindsReader:
    """Read the numbers of the layers of one kind; all others are linear."""

    def read(config: Config, count: int) -> tuple[str, ...]:
        listed = config[key]
        if not isinstance(listed, list) or not all(type(item) is int and 0 <= item < count for item in listed):
            raise ShapeUnknown(f"config.json has a {key} that is not understood")
        numbers = set(listed)
        return tuple(listed_kind if layer in numbers else LINEAR for layer in range(count))

    return read


def _every(key: str, offset_of: Callable[[Config, int], int | None]) -> KindsReader:
    """Read a period: attention in one layer of each, linear in the others."""

    def read(config: Config, count: int) -> tuple[str, ...]:
        period = whole(config[key])
        offset = offset_of(config, period) if period else None
        if period is None or offset is None:
            raise ShapeUnknown(f"config.json has a {key} that is not understood")
        return tuple(ATTENTION if layer % period == offset else LINEAR for layer in range(count))

    return read


def _group_end(config: Config, period: int) -> int | None:
    return period - 1 if (layer_count(config) or 0) % period == 0 else None


def _offset(config: Config, period: int) -> int | None:
    offset = config.get("attn_layer_offset")
    return offset if type(offset) is int and 0 <= offset < period else None


def _letters(config: Config, count: int) -> tuple[str, ...]:
    pattern = config["hybrid_override_pattern"]
    if not isinstance(pattern, str) or not set(pattern) <= set(_LETTERS):
        raise ShapeUnknown("config.json has a hybrid_override_pattern that is not understood")
    return tuple(_LETTERS[letter] for letter in pattern)


def _delta_attention(config: Config, count: int) -> tuple[str, ...]:
    """Return the kinds by Kimi's `linear_attn_config`, which numbers layers from 1."""
    nested = config["linear_attn_config"]
    full = nested.get("full_attn_layers") if isinstance(nested, dict) else None
    linear = nested.get("kda_layers") if isinstance(nested, dict) else None
    numbers = [*full, *linear] if isinstance(full, list) and isinstance(linear, list) else []
    if not all(type(number) is int for number in numbers) or sorted(numbers) != [*range(1, count + 1)]:
        raise ShapeUnknown("config.json has a linear_attn_config that is not understood")
    return tuple(ATTENTION if number in set(full or ()) else LINEAR for number in range(1, count + 1))


def _blocks(config: Config, count: int) -> tuple[str, ...]:
    blocks = config["block_configs"]
    if not isinstance(blocks, list):
        raise ShapeUnknown("config.json has block_configs that are not understood")
    return tuple(map(_block_kind, blocks))


_KINDS: Mapping[str, KindsReader] = {
    **{key: _words(key) for key in ("layer_types", "layers_block_type", "layer_block_types")},
    **{key: _repeated(key) for key in ("block_types", "_block_types")},
    "attn_type_list": _numbers("attn_type_list", {0: LINEAR, 1: ATTENTION}),
    "hybrid_layer_pattern": _numbers("hybrid_layer_pattern", {0: ATTENTION, 1: SLIDING}),
    "attn_layer_indices": _indices("attn_layer_indices", ATTENTION),
    "full_attn_idxs": _indices("full_attn_idxs", ATTENTION),
    "hybrid_layer_ids": _indices("hybrid_layer_ids", _BOTH),
    "attn_layer_period": _every("attn_layer_period", _offset),
    "full_attention_interval": _every("full_attention_interval", lambda _, period: period - 1),
    "layer_group_size": _every("layer_group_size", _group_end),
    "hybrid_override_pattern": _letters,
    "linear_attn_config": _delta_attention,
    "block_configs": _blocks,
}
"""Kinds of all layers, by the key that lists them."""
_RECURRENT = re.compile(r"(mamba|ssm|lru_|linear_(num|key|value|attn|conv|head)|n_mamba|conv_L|recurrent)")
"""Prefix of keys that describe a recurrent layer."""
_PER_LAYER = re.compile(
    r"(^|_)(layers?|blocks?)(_|$)|per_layer|compress|shar\w*_kv|kv_shar|kv_source|cla_|_pattern$|_interval$|_period$"
    r"|_step$|_freq$|yoco|swa_|attention_other|local_attention"
)
"""Keys that may make one layer differ from another."""
_HARMLESS = re.compile(
    r"^(_?num_hidden_layers|n_layers?|num_layers|max_window_layers|mlp_only_layers|mlp_layer_types|decoder_sparse_step"
    r"|moe_\w+|interleave_moe_layer_step|expert_layer_\w+|no_rope_layer\w*|nope_layer_interval|use_rope_layers"
    r"|num_dense_layers|first_k_dense_replace|hidden_size_per_layer_input|vocab_size_per_layer_input|layer_rope_theta"
    r"|layer_norm\w*|\w*layer_norm(_\w+)?|layer_scale\w*|target_layer_ids|global_attn_every_n_layers|block_ff\w*"
    r"|block_size|block_auto_adjust_ff_dim|block_norm_eps|block_ffn_dim_multiplier|block_multiple_of|mtp_\w+|num_mtp_layers"
    r"|block_use_\w+|block_mlp_\w+|block_out_dim|block_dim|num_nextn_predict_layers|num_attention_heads_per_layer"
    r"|ple_layer_ids|rope_scaling_layers|shared_expert\w*|n_shared_experts|scale_attn_by_inverse_layer_idx|sandwich_norm"
    r"|\w+_layernorm\w*|num_kv_shared_layers|use_cla|cla_share_factor|num_key_value_heads_per_layer|attn_layer_offset"
    r"|_?sliding_window_pattern|swa_(num_key_value_heads|num_attention_heads|head_dim|v_head_dim|rope_theta)"
    r"|apply_query_key_layer_scaling|layers_to_transform|add_swa_attention_sink_bias|use_mamba_kernels|swa_rope_\w+)$"
)
"""Keys of this form that do not change the KV cache, or that other functions of this module read."""


def _is_unread(key: str, listed: bool) -> bool:
    """Return whether a key may change the layers and is not understood; `listed`: a list names the kinds."""
    if key in _KINDS or _HARMLESS.match(key):
        return False
    if _RECURRENT.match(key):
        return not listed
    return _PER_LAYER.search(key) is not None


def first(config: Config, names: Sequence[str]) -> object:
    """Return the value of the first of these keys that has one."""
    return next((config[name] for name in names if config.get(name) is not None), None)


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
    """Fields that a file must give, since their default is not none; a bar separates names of one field."""
    tied: bool = False
    """Whether embeddings are tied where the file does not name it."""


_SHARED = ("n_shared_experts|num_shared_experts", "first_k_dense_replace|mlp_layer_types|moe_layer_freq")
_DEEPSEEK = _Family(router_bias=True, needs=_SHARED)
_QWEN_NEXT = _Family(qk_norm="head", gated=True, shared_gate=True, needs=("shared_expert_intermediate_size",))
_FAMILIES: Mapping[str, _Family] = {
    **dict.fromkeys(("llama", "mistral", "ministral3", "granite", "smollm3", "phi3"), _Family()),
    "deepseek_v2": _Family(needs=_SHARED),
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"), _DEEPSEEK),
    **dict.fromkeys(("ernie4_5", "gemma"), _Family(tied=True)),
    "ernie4_5_moe": _Family(
        router_bias=True, tied=True, needs=("moe_num_shared_experts", "moe_layer_start_index|mlp_layer_types")
    ),
    "gemma3": _Family(qk_norm="head", norms=4, tied=True),
    "gemma2": _Family(norms=4, tied=True),
    "glm4_moe": _Family(out_bias=False, router_bias=True, needs=_SHARED),
    "solar_open": _Family(out_bias=False, router_bias=True, needs=_SHARED[:1]),
    **dict.fromkeys(("dots1", "exaone_moe"), _Family(qk_norm="head", router_bias=True, needs=_SHARED)),
    "glm4": _Family(out_bias=False, norms=4),
    **dict.fromkeys(("granitemoe", "mixtral"), _Family(expert_width=("intermediate_size",))),
    "olmoe": _Family(qk_norm="all", expert_width=("intermediate_size",)),
    "gpt_oss": _Family(True, True, sinks=True, expert_bias=True, expert_width=("intermediate_size",)),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "exaone4", "qwen3", "qwen3_moe"), _Family(qk_norm="head")),
    "llama4": _Family(expert_width=("intermediate_size",), dense_width=("intermediate_size_mlp",)),
    **dict.fromkeys(("mimo", "qwen2", "seed_oss"), _Family(qkv_bias=True)),
    "minimax_m2": _Family(qk_norm="all", router_bias=True, expert_width=("intermediate_size",)),
    "nemotron_h": _Family(
        norms=1, matrices=2, router_bias=True, needs=("n_shared_experts|moe_shared_expert_intermediate_size",)
    ),
    **dict.fromkeys(("olmo2", "olmo3"), _Family(qk_norm="all")),
    "qwen2_moe": _Family(qkv_bias=True, shared_gate=True, needs=("shared_expert_intermediate_size",)),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe"), _QWEN_NEXT),
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
            total += _attention_parameters(config, family, width)
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


def _attention_parameters(config: Config, family: _Family, width: int) -> int:
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
    """Return the parameters of multi-head latent attention, and of the indexer of sparse attention."""
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
    """Return the layers with experts, by any of the ways to list them."""
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
    sparse = {layer for layer in range(begin, last + 1) if (layer + 1) % step == 0}
    return frozenset(sparse.difference(dense) if isinstance(dense, list) else sparse)


def _experts(config: Config, family: _Family, width: int) -> tuple[int, int]:
    """Return the parameters of one expert, and of the router and the shared experts together."""
    count, size = _need(config, *COUNTS), _need(config, *family.expert_width, "expert_ffn_hidden_size")
    outer = whole(config.get("moe_latent_size")) or width
    expert = family.matrices * outer * size + ((2 * size + width) if family.expert_bias else 0)
    router = count * (width + (1 if family.expert_bias else 0) + (1 if family.router_bias else 0))
    router += 2 * width * outer if outer != width else 0
    shared = whole(first(config, ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")))
    names = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    number = whole(first(config, names))
    wide = shared * (number or 1) if shared is not None else size * (number or 0)
    if config.get("model_type") in ("llama4", "llama4_text"):
        wide = size
    gate = width if family.shared_gate and wide else 0
    return expert, router + family.matrices * width * wide + gate
