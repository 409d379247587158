"""Facts of a checkpoint, and the memory that each layer keeps of a sequence."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pertoken.agent.checkpoints.bounded import MOST

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
    """A file does not state what a layer keeps. The message names the key or type that is not understood."""


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
