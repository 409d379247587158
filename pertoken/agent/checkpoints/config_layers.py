"""Layers of a model by its `config.json`: which of them keep keys and values, a window of them, or recurrent state.

Each way of writing a list of layers is one row of `_KINDS`. Sources: configuration and modeling files of transformers
5.24 and vLLM 0.33, and the remote code of the models that wrote a list first.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from pertoken.agent.checkpoints.bounded import whole
from pertoken.agent.checkpoints.facts import (
    ATTENTION,
    LINEAR,
    MAX_LAYERS,
    NONE,
    SLIDING,
    Layer,
    ShapeUnknown,
    fields_of,
)
from pertoken.agent.checkpoints.state import state_bytes
from pertoken.catalog.model_facts import EVERY_LAYER, LAYER_LISTS, cache_kind

Config = Mapping[str, object]

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
    """Return the number of layers: as it is named, else that of the layers in a list; None if it is not known."""
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
    other = next((key for key in config if config[key] and _OTHER_KV_HEADS.search(key)), None)
    if kv_heads is None and other is not None and _heads_by_layer(config, 0) is None:
        raise ShapeUnknown(f"config.json has {other}, and what that makes of the KV heads is not known")
    if listed is not None:
        kv_heads = kv_heads or heads
        size = size or (width // heads if heads and width and width % heads == 0 else None)
    if kv_heads is None and _heads_by_layer(config, 0) is not None:
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
    listed = first(config, ("num_key_value_heads_per_layer", *(key for key in KV_HEADS if _is_list(config, key))))
    if listed is not None:
        heads = [whole(item) for item in listed] if isinstance(listed, list) else []
        if (count and len(heads) != count) or not all(heads):
            raise ShapeUnknown("config.json has a list of KV heads that is not understood")
        return [item for item in heads if item]
    blocks, queries = config.get("block_configs"), whole(first(config, HEADS))
    if not isinstance(blocks, list) or not blocks:
        return None
    groups = [whole(_attention(block).get("n_heads_in_group")) for block in blocks]
    if any(group and (queries is None or queries % group) for group in groups):
        raise ShapeUnknown("config.json has block_configs whose heads do not divide its attention heads")
    return [(queries or 0) // group if group else 0 for group in groups]


def _is_list(config: Config, key: str) -> bool:
    return isinstance(config.get(key), list)


def _attention(block: object) -> Mapping[str, object]:
    attention = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention, dict):
        raise ShapeUnknown("config.json has block_configs that are not understood")
    return attention


def _block_kind(block: object) -> str:
    attention = _attention(block)
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return NONE
    if any(attention.get(key) for key in ("window_length", "num_sink_tokens", "unshifted_sink", "mamba", "llama4")):
        raise ShapeUnknown("config.json has block_configs with another kind of attention")
    if whole(attention.get("n_heads_in_group")) is None:
        raise ShapeUnknown("config.json has block_configs without n_heads_in_group")
    return ATTENTION


def _words(key: str) -> Callable[[Config, int], tuple[str, ...]]:
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


def _repeated(key: str) -> Callable[[Config, int], tuple[str, ...]]:
    """Read a pattern that is repeated over all layers; its attention is to a window where one is named."""

    def read(config: Config, count: int) -> tuple[str, ...]:
        pattern = _words(key)(config, 0)
        local = whole(config.get("attention_window_size")) is not None
        kinds = [SLIDING if local and kind == ATTENTION else kind for kind in pattern]
        return tuple(kinds[layer % len(kinds)] for layer in range(count))

    return read


def _numbers(key: str, kind_by_number: Mapping[int, str]) -> Callable[[Config, int], tuple[str, ...]]:
    def read(config: Config, count: int) -> tuple[str, ...]:
        listed = config[key]
        if not isinstance(listed, list) or not all(type(item) is int and item in kind_by_number for item in listed):
            raise ShapeUnknown(f"config.json has a {key} that is not understood")
        return tuple(kind_by_number[item] for item in listed)

    return read


def _indices(key: str, listed_kind: str) -> Callable[[Config, int], tuple[str, ...]]:
    """Read the numbers of the layers of one kind; all others are linear."""

    def read(config: Config, count: int) -> tuple[str, ...]:
        listed = config[key]
        if not isinstance(listed, list) or not all(type(item) is int and 0 <= item < count for item in listed):
            raise ShapeUnknown(f"config.json has a {key} that is not understood")
        numbers = set(listed)
        return tuple(listed_kind if layer in numbers else LINEAR for layer in range(count))

    return read


def _every(key: str, offset_of: Callable[[Config, int], int | None]) -> Callable[[Config, int], tuple[str, ...]]:
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
    """Kinds of Kimi's `linear_attn_config`, which numbers layers from 1."""
    nested = config["linear_attn_config"]
    full = nested.get("full_attn_layers") if isinstance(nested, dict) else None
    linear = nested.get("kda_layers") if isinstance(nested, dict) else None
    numbers = [*full, *linear] if isinstance(full, list) and isinstance(linear, list) else []
    if not all(type(number) is int for number in numbers) or sorted(numbers) != [*range(1, count + 1)]:
        raise ShapeUnknown("config.json has a linear_attn_config that is not understood")
    attending = set(full or ())
    return tuple(ATTENTION if layer + 1 in attending else LINEAR for layer in range(count))


def _blocks(config: Config, count: int) -> tuple[str, ...]:
    blocks = config["block_configs"]
    if not isinstance(blocks, list):
        raise ShapeUnknown("config.json has block_configs that are not understood")
    return tuple(map(_block_kind, blocks))


_KINDS: Mapping[str, Callable[[Config, int], tuple[str, ...]]] = {
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
"""Begin of keys that describe a recurrent layer."""
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
"""Keys of that form that leave the KV cache as it is, or that are read elsewhere in this module."""


def _is_unread(key: str, listed: bool) -> bool:
    """Return whether a key may change what layers keep, and is not understood; `listed`: a list names the kinds."""
    if key in _KINDS or _HARMLESS.match(key):
        return False
    if _RECURRENT.match(key):
        return not listed
    return _PER_LAYER.search(key) is not None


def first(config: Config, names: Sequence[str]) -> object:
    """Return the value of the first of these keys that has one."""
    return next((config[name] for name in names if config.get(name) is not None), None)
