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
    """KV heads of a layer that caches; the fewest where layers differ."""
    head_dim: int | None = None
    """With MLA, `n_kv_heads` is 1 and `head_dim` half the cached values per token and layer. None if layers differ."""
    n_experts: int | None = None
    n_experts_active: int | None = None
    sliding_window: int | None = None
    """Tokens back that `n_windowed_layers` attend to; None where every layer attends to all tokens."""
    n_windowed_layers: int | None = None
    kv_values: int | None = None
    """Cached values per token over all layers, where layers differ."""
    windowed_kv_values: int | None = None
    """Cached values of `n_windowed_layers`."""
    n_attention_layers: int | None = None
    """Layers that attend to all tokens and cache them, where layers differ."""
    n_linear_layers: int | None = None
    """Layers with recurrent state instead of a cache: linear attention, state-space and convolution layers."""
    state_bytes: int | None = None
    """Recurrent state of one sequence over all layers, which does not grow with its tokens."""

    @property
    def layer_kinds(self) -> dict[str, int] | None:
        """Number of layers by kind: attention, sliding, linear and none (no cache of their own); None if unknown."""
        if self.n_layers is None or self.kv_values_per_token is None:
            return None
        sliding, linear = self.n_windowed_layers or 0, self.n_linear_layers or 0
        attention = self.n_attention_layers
        if attention is None:
            attention = self.n_layers - sliding - linear
        return {
            "attention": attention,
            "sliding": sliding,
            "linear": linear,
            "none": self.n_layers - attention - sliding - linear,
        }

    @property
    def kv_values_per_token(self) -> int | None:
        """Cached values per token over all layers; None if unknown."""
        if self.kv_values is not None or self.n_layers is None or self.n_kv_heads is None or self.head_dim is None:
            return self.kv_values
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim

    @property
    def kv_values_per_layer(self) -> float | None:
        """Cached values per token of a layer that attends, on average; None if unknown."""
        kinds, values = self.layer_kinds, self.kv_values_per_token
        return None if kinds is None or values is None else values / max(kinds["attention"] + kinds["sliding"], 1)

    @property
    def windowed_share(self) -> float:
        """Share of the cached values that lie in layers with a window."""
        if not self.sliding_window or not self.n_windowed_layers or not self.n_layers:
            return 0.0
        if self.kv_values and self.windowed_kv_values is not None:
            return self.windowed_kv_values / self.kv_values
        return self.n_windowed_layers / self.n_layers

    @property
    def known(self) -> bool:
        """Whether bytes and FLOPs per token can be computed."""
        shape = (self.params_total, self.params_active, self.n_layers, self.n_kv_heads, self.kv_values_per_token)
        return None not in shape
