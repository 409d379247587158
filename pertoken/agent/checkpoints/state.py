"""Recurrent state that a linear layer keeps of one sequence, by the fields of its `config.json`.

Shapes: vLLM 0.33, `model_executor/layers/mamba/mamba_utils.py`. The recurrent part counts in 32 bits, as vLLM's
Qwen3-Next, SGLang and llama.cpp keep it, unless the file names another type; the convolution's part in 16 bits.
"""

from collections.abc import Callable, Mapping

from pertoken.agent.checkpoints.bounded import whole
from pertoken.agent.checkpoints.facts import ShapeUnknown

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
    """Return the field; of several names with a bar between them the first that there is."""
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
"""Of MiniMax's lightning attention, whose fields other models have too."""
