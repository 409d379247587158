"""Shape of a served model."""

from dataclasses import dataclass

WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "fp4": 0.5} | {
    f"int{bits}": bits / 8 for bits in (2, 3, 4, 5, 6)
}
"""Bytes of one parameter by weight dtype, without scales and without the layers that stay in 16 bits."""


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of a served model. None is unknown. Counts are exact parameters, not billions."""

    name: str
    params_total: int | None = None
    params_active: int | None = None
    """Parameters a token passes through; equals `params_total` for a dense model."""
    n_layers: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    """With MLA, `n_kv_heads` is 1 and `head_dim` half the cached values per token and layer."""
    n_experts: int | None = None
    n_experts_active: int | None = None
    sliding_window: int | None = None
    """Tokens back that `n_windowed_layers` attend to; None where every layer attends to all tokens."""
    n_windowed_layers: int | None = None

    @property
    def known(self) -> bool:
        """Whether bytes and FLOPs per token can be computed."""
        shape = (self.params_total, self.params_active, self.n_layers, self.n_kv_heads, self.head_dim)
        return None not in shape
