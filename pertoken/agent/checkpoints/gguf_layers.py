"""Layers of a model by the metadata of its GGUF file, as llama.cpp reads it.

Keys: gguf 0.19 (`constants.py`). Sizes of recurrent state: llama.cpp `llama-hparams.cpp` (`n_embd_r`, `n_embd_s`),
which keeps both parts in 32 bits.
"""

from collections.abc import Mapping, Sequence

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
from pertoken.catalog.model_facts import EVERY_LAYER, cache_kind

Fields = Mapping[str, object]
"""Metadata by key, without the architecture before it."""
_STATE_BYTES = 4
_BOTH = ("falcon-h1",)
"""Architectures with attention and recurrent state in each layer."""
_FEED_FORWARD = ("nemotron_h", "nemotron_h_moe")
"""Architectures in which a layer with neither KV heads nor a feed-forward block is the recurrent one."""


def n_layers(fields: Fields) -> int | None:
    """Return the layers that a forward pass runs: draft layers are counted in `block_count`, and come last."""
    blocks, drafts = whole(fields.get("block_count")), whole(fields.get("nextn_predict_layers")) or 0
    return None if blocks is None or drafts >= blocks else blocks - drafts


def cache_fields(fields: Fields, architecture: object) -> dict[str, object]:
    """Return the fields of `Model` for the KV cache and the recurrent state. Raises ShapeUnknown."""
    count = n_layers(fields)
    if count is None or count > MAX_LAYERS:
        raise ShapeUnknown("its header names no possible number of layers (block_count)")
    listed = cache_kind("gguf", architecture)
    heads = _by_layer(fields, "attention.head_count_kv", count)
    interval = whole(fields.get("full_attention_interval"))
    varied = len(set(heads)) > 1 or interval is not None or architecture in _BOTH
    recurrent = any(key.startswith(("ssm.", "wkv.", "kda.", "shortconv.")) for key in fields)
    if (listed is None and not varied) or (listed != EVERY_LAYER and recurrent and not varied):
        raise ShapeUnknown(f"which layers of a {architecture} keep keys and values is not known")
    if listed == EVERY_LAYER and recurrent:
        raise ShapeUnknown(f"a {architecture} with recurrent state is not known")
    if interval is not None:
        heads = [kv_heads if (layer + 1) % interval == 0 else 0 for layer, kv_heads in enumerate(heads)]
    shared = whole(fields.get("attention.shared_kv_layers")) or 0
    if shared >= count:
        raise ShapeUnknown("its header has more shared_kv_layers than layers")
    state = _state_bytes(fields, architecture) if recurrent else 0
    sliding, wide = _sliding(fields, count), fields.get("feed_forward_length")
    layers = []
    for layer, kv_heads in enumerate(heads):
        if layer >= count - shared:
            layers.append(Layer(NONE))
        elif kv_heads:
            kind = SLIDING if sliding[layer] else ATTENTION
            cached = _cached(fields, kv_heads, kind)
            layers.append(Layer(kind, *cached, state if architecture in _BOTH else 0))
        elif not state or (architecture in _FEED_FORWARD and isinstance(wide, tuple) and any(wide[layer : layer + 1])):
            layers.append(Layer(NONE))
        else:
            layers.append(Layer(LINEAR, state_bytes=state))
    return fields_of(layers, whole(fields.get("attention.sliding_window")))


def _by_layer(fields: Fields, key: str, count: int) -> list[int]:
    """Return the KV heads of each layer; those of attention where a file names none."""
    value = fields.get(key, fields.get("attention.head_count"))
    listed = value if isinstance(value, tuple) else (value,) * count
    drafts = whole(fields.get("nextn_predict_layers")) or 0
    if len(listed) not in (count, count + drafts) or not all(item == 0 or whole(item) for item in listed):
        raise ShapeUnknown(f"its header has a {key} that is not understood")
    return [whole(item) or 0 for item in listed[:count]]


def _sliding(fields: Fields, count: int) -> Sequence[bool]:
    pattern = fields.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= count:
        return [bool(item) for item in pattern[:count]]
    step = whole(pattern)
    return [step is not None and (layer + 1) % step != 0 for layer in range(count)]


def _cached(fields: Fields, kv_heads: int, kind: str) -> tuple[int, int]:
    """Return (KV heads, cached values per token and head) of a layer. Raises ShapeUnknown."""
    rank, rope = whole(fields.get("attention.kv_lora_rank")), whole(fields.get("rope.dimension_count"))
    if rank is not None:
        if rope is None:
            raise ShapeUnknown("its header has a kv_lora_rank and no rope.dimension_count")
        return 1, rank + rope
    queries, width = fields.get("attention.head_count"), whole(fields.get("embedding_length"))
    heads = whole(queries[0] if isinstance(queries, tuple) and len(set(queries)) == 1 else queries)
    default = width // heads if heads and width and width % heads == 0 else None
    ends = ("_swa", "") if kind == SLIDING else ("",)
    key = _first(fields, [f"attention.key_length{end}" for end in ends]) or default
    value = _first(fields, [f"attention.value_length{end}" for end in ends]) or default
    if key is None or value is None:
        raise ShapeUnknown("its header does not give the size of a head (attention.key_length)")
    return kv_heads, key + value


def _first(fields: Fields, keys: Sequence[str]) -> int | None:
    return next((size for key in keys if (size := whole(fields.get(key))) is not None), None)


def _state_bytes(fields: Fields, architecture: object) -> int:
    """Return the bytes of recurrent state of one layer for one sequence. Raises ShapeUnknown."""
    width, kernel = whole(fields.get("embedding_length")), whole(fields.get("ssm.conv_kernel"))
    short, inner = whole(fields.get("shortconv.l_cache")), whole(fields.get("ssm.inner_size"))
    state, delta = whole(fields.get("ssm.state_size")), whole(fields.get("kda.head_dim"))
    heads = fields.get("attention.head_count")
    if short and width:
        return _STATE_BYTES * (short - 1) * width
    if delta and kernel and (n_heads := whole(heads[0] if isinstance(heads, tuple) else heads)):
        return _STATE_BYTES * (3 * (kernel - 1) * n_heads * delta + delta * delta * n_heads)
    if kernel and inner and state:
        groups = whole(fields.get("ssm.group_count")) or 0
        return _STATE_BYTES * ((kernel - 1) * (inner + 2 * groups * state) + state * inner)
    raise ShapeUnknown(f"the recurrent state of a {architecture} is not known")
