"""Serving configurations as columns: everything the serving model computes with, one array entry per candidate.

A plan search asks about thousands of configurations at once; a `Candidates` value holds them side by side, so that
every formula of the model is written once, for arrays of any length. Nothing in it is unknown: `served.resolve`
names missing values before a candidate is made.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Columns of equal length `n`; floats throughout. Rates are per device and as listed, not as reached."""

    params_total: Array
    params_active: Array
    """Parameters a token passes; equals `params_total` for a dense model."""
    n_layers: Array
    attending_layers: Array
    """Layers that attend to cached tokens: all but those with recurrent state or none of their own."""
    kv_values: Array
    """Cached values per token over all layers, of one sequence, before it is split over ranks."""
    state_bytes: Array
    """Recurrent state of one sequence over all layers, before it is split over ranks; 0 without linear layers."""
    n_kv_heads: Array
    hidden_size: Array
    n_experts: Array
    """0 for a dense model."""
    n_experts_active: Array
    windowed_share: Array
    """Share of the cached values of layers that attend to the last `window` tokens only, 0 to 1."""
    window: Array
    """Tokens; any number where `windowed_share` is 0."""

    weight_bits: Array
    """Stored bits per parameter with scales and unquantized parts."""
    weight_only: Array
    """1 where weights are unpacked to 16 bits before each product, else 0."""
    kv_bytes: Array
    """Bytes of one cached value."""

    memory_bytes: Array
    """As the driver reports it."""
    memory_bytes_per_s: Array
    flops: Array
    """Dense peak of the path its matrix products run at, FLOP/s."""
    fp16_flops: Array
    attention_flops: Array
    """Of the products of one query with the cache, FLOP/s; infinite where they are hidden behind reading it."""
    row_cost: Array
    """Time of the products of one token of a step over that of a token of a prompt: 1 but on CPUs, see `rows_cost`."""
    tile_cost: Array
    """The same of `ROWS_OF_TILE` tokens of a step together: `ROWS_OF_TILE` but on CPUs."""
    expert_cost: Array
    """Time of a prompt's products with experts over that with other weights: 1 but on CPUs."""
    link_bytes_per_s: Array
    """One way, between devices of one replica inside a host."""
    devices_per_host: Array
    """Devices that reach each other at `link_bytes_per_s`."""

    tp: Array
    pp: Array
    dp: Array
    """Replicas; with `shared_experts` the ranks that copy attention and share the experts."""
    shared_experts: Array
    """1 where the data-parallel ranks split one copy of the experts, else 0."""

    concurrency: Array
    """Requests available to run; infinite where the memory alone limits them."""
    prompt_len: Array
    generated_len: Array
    cached_share: Array
    """Prompt tokens found in the prefix cache, 0 to 1."""
    image_flops: Array
    """FLOPs per request of encoding its images, in 16 bits whatever the format of the weights; 0 without images."""
    max_num_seqs: Array
    memory_share: Array
    """Share of device memory the engine may use, 0 to 1."""
    share_of_free: Array
    """1 where the engine takes `memory_share` of the memory beside its weights for the cache, 0 where of all memory."""
    whole_requests: Array
    """1 where a request starts only once the cache has room for all it may generate, 0 where its prompt is enough."""
    whole_prompts: Array
    """1 where prompts are computed in steps without decode, 0 where their chunks share steps with decode."""
    accepted_len: Array
    """Tokens generated per step of a sequence: 1 without speculative decoding."""
    drafted_len: Array
    """Tokens proposed per step: 0 without speculative decoding."""
    clock_share: Array
    """SM clock as a share of the one the listed rates are given at, 0 to 1."""

    tags: NDArray[np.float64] = field()
    """Shape (n, number of `efficiency.TAGS`): 1 where a tag holds (dtype, architecture, engine, mixture)."""

    def __len__(self) -> int:
        return len(self.params_total)

    def take(self, index: NDArray[np.intp]) -> "Candidates":
        """Return the candidates at these places."""
        return Candidates(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def spread(self) -> "Candidates":
        """Return the same with columns of shape (n, 1), for several points of each candidate in one array."""
        columns = {name: getattr(self, name)[:, None] for name in COLUMNS}
        return Candidates(**columns, tags=self.tags)


COLUMNS = tuple(field.name for field in fields(Candidates) if field.name != "tags")


def stack(rows: Iterable[Mapping[str, float]], tags: Iterable[Iterable[float]]) -> Candidates:
    """Candidates of rows that each give every one of `COLUMNS`, with their tags beside them."""
    named_rows = list(rows)
    columns = {name: np.array([row[name] for row in named_rows], dtype=float) for name in COLUMNS}
    return Candidates(**columns, tags=np.array(list(map(list, tags)), dtype=float))
