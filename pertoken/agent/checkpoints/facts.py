"""Facts of a checkpoint, and the memory that each layer keeps of a sequence."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path

MOST = 2**60
"""No count of parameters, layers or bytes is larger."""


class FileRefused(Exception):
    """A file has another form than expected. The message names the file and never holds a part of it."""


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a regular file for reading; neither a pipe nor a device, which might never end.

    Raises FileRefused for those, OSError if it cannot be opened.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise FileRefused(f"{path.name}: not a regular file")
        yield file


def read_json(path: Path, limit: int) -> object:
    """Return the JSON in a file of at most `limit` bytes. Raises FileRefused, OSError."""
    with opened(path) as file:
        return parse_json(file.read(limit + 1), path, limit)


def parse_json(body: bytes, path: Path, limit: int) -> object:
    """Return JSON of at most `limit` bytes. Raises FileRefused."""
    if len(body) > limit:
        raise FileRefused(f"{path.name}: larger than {limit / 1e6:g} MB, so it was not read")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise FileRefused(f"{path.name}: not JSON") from None


def whole(value: object) -> int | None:
    """Return the value if it is a whole number above 0 and of a size that can be."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST else None


MAX_LAYERS = 10_000
"""No model has more."""
ATTENTION, SLIDING, LINEAR, NONE = "attention", "sliding", "linear", "none"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts read from the files of a model. A fact that the files do not hold is absent."""

    facts: Mapping[str, object] = field(default_factory=dict)
    """Fields of `Model`."""
    quantized: bool = False
    """Whether its weights are stored in fewer bits, which fixes `dtype` whatever the engine's flags ask for."""
    dtype: str | None = None
    """Weight dtype, in our words."""
    reason: str | None = None
    """Why nothing could be read."""
    unknown: tuple[str, ...] = ()
    """Why facts are absent although the files were read: one sentence each for the KV cache and the parameters."""


class ShapeUnknown(Exception):
    """A file does not state the memory of a layer. The message names the key or type that is not understood."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Memory of one layer for one sequence."""

    kind: str
    """attention, sliding (a window of tokens), linear (recurrent state) or none."""
    kv_heads: int = 0
    """0 for a layer that keeps no keys and values of its own."""
    head_values: int = 0
    """Values of one token in one KV head, key and value together."""
    state_bytes: int = 0
    """Recurrent state, which does not grow with the tokens; some layers keep it beside keys and values."""


def fields_of(layers: Sequence[Layer], window: int | None) -> dict[str, object]:
    """Return the fields of `Model` that describe its KV cache and recurrent state. Raises ShapeUnknown.

    `window`: tokens that a sliding layer keeps; without one it counts as attention to all tokens.
    """
    caching = [layer for layer in layers if layer.kv_heads]
    if not caching:
        raise ShapeUnknown("no layer keeps keys and values, and capacity is counted in tokens of a KV cache")
    sizes = {(layer.kv_heads, layer.head_values) for layer in caching}
    fields: dict[str, object] = {"n_layers": len(layers), "n_kv_heads": min(layer.kv_heads for layer in caching)}
    counts = Counter(ATTENTION if layer.kind == SLIDING and not window else layer.kind for layer in layers)
    if counts[SLIDING]:
        fields |= {"sliding_window": window, "n_windowed_layers": counts[SLIDING]}
    head_values, values = caching[0].head_values, sum(layer.kv_heads * layer.head_values for layer in caching)
    state = sum(layer.state_bytes for layer in layers)
    if max(values, state) >= MOST:
        raise ShapeUnknown("a token would take an impossible number of bytes in the cache")
    if len(sizes) == 1 and len(caching) == len(layers) and head_values % 2 == 0:
        fields["head_dim"] = head_values // 2
    else:
        fields["kv_values"] = values
        fields["n_attention_layers"] = counts[ATTENTION]
        if counts[SLIDING]:
            windowed = [layer for layer in caching if layer.kind == SLIDING]
            fields["windowed_kv_values"] = sum(layer.kv_heads * layer.head_values for layer in windowed)
    if state:
        fields |= {"n_linear_layers": counts[LINEAR], "state_bytes": state}
    return fields


COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")
ACTIVE = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
    *("top_k_experts", "moe_experts_per_token", "moe_router_topk", "num_experts_per_topk"),
)
"""Names of both in configurations that transformers 5.24 and vLLM 0.33 read."""
_OTHER = re.compile(r"expert|^(ffn|moe)_config$")
"""Keys that may count experts under another name."""
_BESIDE = re.compile(
    r"shared?_|per_tok|zero_|redundant|bias|size|dim|width|expert_layer|capacity|group|fn$|limit|policy|sink|scal|parallel"
)


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer; 1 of a dense model. None is unknown."""

    count: int | None = 1
    active: int | None = 1

    def active_parameters(self, total: int, routed: int) -> int | None:
        """Return the parameters that one token passes; `routed`: parameters of all experts together."""
        if self.count == 1:
            return total if not routed else None
        if not routed or self.count is None or self.active is None:
            return None
        return total - routed + routed * self.active // self.count


def experts_of(config: Mapping[str, object]) -> Experts:
    """Return the experts of a text model's configuration. Raises ShapeUnknown where they are written otherwise."""
    counts = {name: config[name] for name in COUNTS if config.get(name)}
    if not counts:
        unread = next((key for key, value in config.items() if _may_count(key, value)), None)
        name = unread or next((name for name in ACTIVE if config.get(name)), None)
        if name is not None:
            raise ShapeUnknown(f"config.json has {name}, and how many experts there are is not known")
        return Experts()
    number = whole(next(iter(counts.values())))
    active = whole(next((config[name] for name in ACTIVE if config.get(name)), None))
    if number is None or len({str(count) for count in counts.values()}) > 1:
        raise ShapeUnknown(f"config.json has no single number of experts in {' and '.join(counts)}")
    if number == 1:
        return Experts()
    if active is None or active > number:
        raise ShapeUnknown(f"config.json names no number of active experts ({ACTIVE[0]}) of its {number}")
    return Experts(number, active)


def _may_count(key: str, value: object) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 1
    if not is_number and not (isinstance(value, dict | list) and value):
        return False
    return _OTHER.search(key) is not None and _BESIDE.search(key) is None


_CONV_BYTES = 2
_RECURRENT_BYTES = {"bfloat16": 2, "float16": 2}


def state_bytes(config: Mapping[str, object]) -> int:
    """Return the bytes of one layer for one sequence. Raises ShapeUnknown for a layer of no known form."""
    nested = config.get("linear_attn_config")
    fields = {**nested, **config} if isinstance(nested, dict) else config
    if isinstance(nested, dict):
        fields = {**fields, "kda_head_dim": nested.get("head_dim"), "kda_num_heads": nested.get("num_heads")}
    forms = (_LIGHTNING,) if str(config.get("model_type")).startswith("minimax") else _FORMS
    for names, values in forms:
        sizes = [_size(fields, name) for name in names]
        if None not in sizes:
            recurrent, conv = values(*(size for size in sizes if size is not None))
            return recurrent * _RECURRENT_BYTES.get(str(config.get("mamba_ssm_dtype")), 4) + conv * _CONV_BYTES
    raise ShapeUnknown(
        "the recurrent state of its linear layers is not known: config.json has no fields of a known form"
    )


def _size(fields: Mapping[str, object], name: str) -> int | None:
    """Return the first field that exists among names separated by a bar."""
    return next((size for part in name.split("|") if (size := whole(fields.get(part))) is not None), None)


def _mamba2(heads: int, size: int, state: int, groups: int, kernel: int) -> tuple[int, int]:
    return heads * size * state, (heads * size + 2 * groups * state) * (kernel - 1)


def _mamba1(expand: int, width: int, state: int, kernel: int) -> tuple[int, int]:
    return expand * width * state, expand * width * (kernel - 1)


def _delta_net(v_heads: int, v_size: int, k_heads: int, k_size: int, kernel: int) -> tuple[int, int]:
    return v_heads * v_size * k_size, (2 * k_heads * k_size + v_heads * v_size) * (kernel - 1)


_FORMS: tuple[tuple[tuple[str, ...], Callable[..., tuple[int, int]]], ...] = (
    (
        (
            "linear_num_value_heads",
            "linear_value_head_dim",
            "linear_num_key_heads",
            "linear_key_head_dim",
            "linear_conv_kernel_dim",
        ),
        _delta_net,
    ),
    (
        ("kda_num_heads", "kda_head_dim", "short_conv_kernel_size"),
        lambda heads, size, kernel: (heads * size * size, 3 * heads * size * (kernel - 1)),
    ),
    (
        (
            "mamba_n_heads|mamba_num_heads|n_mamba_heads",
            "mamba_d_head|mamba_head_dim|mamba_headdim",
            "mamba_d_state|ssm_state_size",
            "mamba_n_groups|n_groups|mamba_ngroups",
            "mamba_d_conv|conv_kernel",
        ),
        _mamba2,
    ),
    (("mamba_expand", "hidden_size", "mamba_d_state", "mamba_d_conv"), _mamba1),
    (("lru_width", "conv1d_width"), lambda width, kernel: (width, width * (kernel - 1))),
    (("hidden_size", "conv_L_cache"), lambda width, kernel: (0, width * (kernel - 1))),
)
"""Fields of a layer, and (recurrent, convolution) values of their sizes."""
_LIGHTNING: tuple[tuple[str, ...], Callable[..., tuple[int, int]]] = (
    ("num_attention_heads", "head_dim"),
    lambda heads, size: (heads * size * size, 0),
)
"""Form of MiniMax's lightning attention; other models have its fields, too."""
