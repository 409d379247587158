"""Header of a GGUF file, versions 2 and 3: its metadata and the shapes of its tensors, read once from front to back.

Format: github.com/ggml-org/ggml, docs/gguf.md. Everything is little-endian here; a big-endian file is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path

from pertoken.agent.checkpoints.facts import (
    ATTENTION,
    LINEAR,
    MAX_LAYERS,
    MOST,
    NONE,
    SLIDING,
    Checkpoint,
    FileRefused,
    Layer,
    ShapeUnknown,
    fields_of,
    opened,
    whole,
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
    """Return the KV heads of each layer; the attention heads where a file names none."""
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


HEADER_LIMIT = 128_000_000
"""Bytes of one header. Vocabularies of 250,000 tokens with their merges take about 10 MB."""
MAX_ITEMS = 4_000_000
"""Keys, tensors and elements of arrays of strings, all together."""
MAX_FILES = 1000
_PLAIN = (0, 1, 32)
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_KEPT_ELEMENTS = 4096
"""Longer arrays are vocabularies; shorter ones may hold a value for each layer."""
_BLOCK = re.compile(r"blk\.(\d+)\.")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")

# `general.file_type`, as llama.cpp numbers them; a mixture of widths is called by that of most of its weights.
_DTYPES = {
    **{0: "fp32", 1: "fp16", 32: "bf16", 7: "int8", 2: "int4", 3: "int4"},
    **{14: "int4", 15: "int4", 25: "int4", 30: "int4", 38: "fp4"},
    **{8: "int5", 9: "int5", 16: "int5", 17: "int5", 18: "int6"},
    **{10: "int2", 21: "int2", 11: "int3", 12: "int3", 13: "int3"},
}


@dataclass(frozen=True, slots=True)
class Header:
    """Header of one file: metadata without long arrays, and elements by tensor."""

    metadata: Mapping[str, object]
    elements: Mapping[str, int]


def read_gguf(path: Path) -> Checkpoint:
    """Return the facts of the model in a GGUF file or in all its parts.

    Raises FileRefused if it is none or one of its parts is broken, OSError if one cannot be read.
    """
    header = read_header(path)
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    fields = {key.removeprefix(f"{architecture}."): value for key, value in metadata.items()}
    elements = dict(header.elements)
    for part in _other_parts(path, metadata.get("split.count")):
        elements |= read_header(part).elements
    facts: dict[str, object] = {"n_layers": n_layers(fields)}
    unknown: tuple[str, ...] = ()
    try:
        facts |= cache_fields(fields, architecture)
    except ShapeUnknown as error:
        unknown = (f"{error}",)
    facts |= _parameters(elements, fields)
    kind = metadata.get("general.file_type")
    dtype = _DTYPES.get(kind) if isinstance(kind, int) else None
    return Checkpoint(
        {name: value for name, value in facts.items() if value is not None},
        kind not in _PLAIN,
        dtype,
        unknown=unknown,
    )


def read_header(path: Path) -> Header:
    """Raises FileRefused, OSError."""
    with opened(path) as file:
        cursor = _Cursor(file, path)
        if cursor.take(4) != b"GGUF" or cursor.scalar("<I") not in (2, 3):
            raise FileRefused(f"{path.name}: neither a folder nor a GGUF file of version 2 or 3")
        n_tensors, n_keys = cursor.count(), cursor.count()
        metadata = {}
        for _ in range(n_keys):
            key = cursor.string()
            metadata[key] = cursor.value(cursor.scalar("<I"))
        return Header(metadata, dict(_tensors(cursor, n_tensors)))


def _tensors(cursor: _Cursor, n: int) -> Iterator[tuple[str, int]]:
    for _ in range(n):
        name, n_dims = cursor.string(), cursor.scalar("<I")
        if n_dims > 8:
            raise cursor.refused("a tensor has an impossible shape")
        elements = prod(cursor.scalar("<Q") for _ in range(n_dims))
        if elements >= MOST:
            raise cursor.refused("a tensor has an impossible shape")
        cursor.take(4 + 8)  # its type and its place
        yield name, elements


def _parameters(elements: Mapping[str, int], fields: Mapping[str, object]) -> dict[str, object]:
    """Return experts and parameters without draft layers, which come last and are not run."""
    layers = n_layers(fields)
    counted = {
        name: count
        for name, count in elements.items()
        if layers is None or (block := _BLOCK.match(name)) is None or int(block[1]) < layers
    }
    total = sum(counted.values())
    routed = sum(count for name, count in counted.items() if "_exps." in name)
    number, active = whole(fields.get("expert_count")), whole(fields.get("expert_used_count"))
    if number is None:
        return {"params_total": total or None, "params_active": None if routed else total or None}
    facts: dict[str, object] = {"n_experts": number, "n_experts_active": active, "params_total": total or None}
    if routed and active is not None and active <= number:
        facts["params_active"] = total - routed + routed * active // number
    return facts


def _other_parts(path: Path, count: object) -> list[Path]:
    n = whole(count)
    if n is None or n == 1:
        return []
    named = _PART.search(path.name)
    if named is None or int(named[2]) != n or n > MAX_FILES:
        raise FileRefused(f"{path.name}: one of {n} parts, and its name does not give the others'")
    stem = path.name[: named.start()]
    parts = [path.with_name(f"{stem}-{i:05d}-of-{n:05d}.gguf") for i in range(1, n + 1)]
    return [part for part in parts if part != path]


class _Cursor:
    """Goes through a header; every length is checked before it is believed."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file, self._path = file, path
        self._bytes = HEADER_LIMIT
        self._items = MAX_ITEMS

    def refused(self, why: str) -> FileRefused:
        return FileRefused(f"{self._path.name}: {why}")

    def take(self, n: int) -> bytes:
        if n > self._bytes:
            raise self.refused("its header is too long")
        self._bytes -= n
        content = self._file.read(n)
        if len(content) < n:
            raise self.refused("its header is cut")
        return content

    def scalar(self, form: str) -> int:
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def count(self) -> int:
        """Return the number of items that follow."""
        n = self.scalar("<Q")
        if n > self._items:
            raise self.refused("its header has too many parts")
        self._items -= n
        return n

    def string(self) -> str:
        return self.take(self.scalar("<Q")).decode(errors="replace")

    def value(self, kind: int) -> object:
        """Return a value of this type; an array as a tuple, or None if it is long or of strings."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            if kind not in _SCALARS:
                raise self.refused("it has a value of no known type")
            return self.scalar(_SCALARS[kind])
        inner = self.scalar("<I")
        if inner == _STRING:
            for _ in range(self.count()):
                self.take(self.scalar("<Q"))
            return None
        if inner not in _SCALARS:
            raise self.refused("it has an array of no known type")
        n, size = self.scalar("<Q"), struct.calcsize(_SCALARS[inner])
        body = self.take(n * size)
        form = f"<{n}{_SCALARS[inner][1]}"
        return tuple(struct.unpack(form, body)) if n <= _KEPT_ELEMENTS else None
