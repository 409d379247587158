"""Shapes of the transformers that the decode loop runs and the forecast is asked about."""

from dataclasses import dataclass

from pertoken.state.deployment import Model


@dataclass(frozen=True, slots=True)
class Shape:
    """A dense transformer with grouped-query attention and gated products."""

    n_layers: int
    hidden_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int

    @property
    def params(self) -> int:
        """All of them, embeddings counted once on the way in and once on the way out."""
        attention = self.hidden_size * self.head_dim * 2 * (self.n_heads + self.n_kv_heads)
        layer = attention + 3 * self.hidden_size * self.feed_forward
        return self.n_layers * layer + 2 * self.vocabulary * self.hidden_size

    def model(self, name: str) -> Model:
        """As the forecast knows it."""
        return Model(name, self.params, self.params, self.n_layers, self.n_kv_heads, self.head_dim)
