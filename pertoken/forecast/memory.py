"""Fit of a deployment in device memory: its weights, and the KV cache they leave."""

from collections.abc import Sequence
from dataclasses import dataclass

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Candidates
from pertoken.forecast.capacity import fitting_sequences, free_bytes, kv_tokens, weight_bytes
from pertoken.forecast.served import Abstained, Load, for_each
from pertoken.state.deployment import Deployment


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of one deployment. Bytes are of each of its devices, tokens and sequences of the whole deployment."""

    weights_bytes: float
    usable_bytes: float
    """What the engine may use of the memory that the driver reports."""
    kv_cache_bytes: float
    """0 where the weights do not fit."""
    kv_cache_tokens: float
    sequences: float
    """Sequences of the load's mean length that the KV cache holds."""

    def holds(self, tokens: float) -> bool:
        """Return whether the KV cache holds one sequence of this length."""
        return self.kv_cache_tokens >= tokens


def memory_fits(deployments: Sequence[Deployment], load: Load, market: Market) -> list[MemoryFit | Abstained]:
    """Return how each deployment fits in its devices under a load; `Abstained` in place of a result."""

    def fits(_: Sequence[Deployment], c: Candidates) -> list[MemoryFit]:
        columns = (
            weight_bytes(c),
            c.memory_bytes * c.memory_share,
            free_bytes(c).clip(0),
            kv_tokens(c),
            fitting_sequences(c),
        )
        return [MemoryFit(*map(float, values)) for values in zip(*columns, strict=True)]

    return for_each(deployments, lambda deployment: (deployment, load), market, fits)
