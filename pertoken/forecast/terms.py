"""The time of one decode step as a sum of terms, each at the hardware's listed rate.

Decode and prefill share the device: a step over `batch` sequences carries the prefill of `batch / generated_len`
requests. Sources: weights and cache read per step, 2 FLOPs per active parameter and token, causal attention
(Pope et al., 2022, arXiv 2211.05102); a mixture layer reads the E x (1 - (1 - k/E)^batch) experts a batch touches; a
ring all-reduce of n ranks moves 2 (n - 1) / n of its input and takes latency that grows with the ranks. Prefill rides
along with decode steps (Agrawal et al., 2023, arXiv 2308.16369) unless prompts are computed whole.
"""

from functools import reduce
from typing import Final

import numpy as np

from pertoken.catalog.market import ROWS_OF_TILE
from pertoken.forecast.candidates import Array, Candidates

TERMS: Final = (
    "weights",
    "experts",
    "kv_cache",
    "decode_flops",
    "prefill_flops",
    "prefill_attention",
    "step",
    "layers",
    "sequences",
    "requests",
    "all_reduce_latency",
    "all_reduce_bytes",
    "mixture_layers",
    "draft",
)
"""Names of the columns of `seconds`."""
PREFILL: Final = ("prefill_flops", "prefill_attention", "requests")
"""Terms of prompts, which others' steps carry."""

ACTIVATION_BYTES = 2
OVERHEAD_S: Final = {"step": 1e-3, "layers": 1e-5, "sequences": 1e-5, "requests": 1e-3, "all_reduce_latency": 1e-5}
"""Units of the terms that no listed rate gives: a fitted 1 means this many seconds each."""
INTER_HOST_BYTES_PER_S = 50e9
"""One way and per device between hosts: a 400 Gbit/s adapter for each device, as in HGX reference designs."""

_INDEX: Final = {name: index for index, name in enumerate(TERMS)}


def total(term_s: Array) -> Array:
    """Add up the terms of each candidate, one after another: other candidates change no digit."""
    return reduce(np.add, (term_s[..., term] for term in range(term_s.shape[-1])))


def touched_share(c: Candidates, tokens: Array) -> Array:
    """Return the share of the experts that `tokens` tokens touch, 0 to 1, if routing is even."""
    share = np.divide(c.n_experts_active, c.n_experts, out=np.ones_like(c.n_experts), where=c.n_experts > 0)
    untouched = np.exp(np.maximum(tokens, 1.0) * np.log1p(-np.minimum(share, 1 - 1e-12)))
    return np.asarray(1 - untouched)


def parts(c: Candidates) -> tuple[Array, Array]:
    """Parameters every token passes, and parameters of all experts together."""
    mixture = c.n_experts > 0
    spread = np.where(mixture, np.maximum(c.n_experts - c.n_experts_active, 1e-9), 1.0)
    expert = np.where(mixture, (c.params_total - c.params_active) / spread, 0.0)
    experts = expert * c.n_experts
    return np.maximum(c.params_total - experts, 0.0), experts


def active_in_experts(c: Candidates) -> Array:
    """Parameters of the experts that one token passes."""
    always, _ = parts(c)
    return np.asarray(np.where(c.n_experts > 0, np.maximum(c.params_active - always, 0.0), 0.0))


def rows_cost(c: Candidates, tokens: Array) -> Array:
    """Return the time of the products of a step over the time of as many tokens of a prompt.

    Products with experts are computed row by row. Between two whole numbers of tokens it is interpolated.
    """
    full_rows = np.floor(tokens)

    def cost(rows: Array) -> Array:
        return np.asarray(rows % ROWS_OF_TILE * c.row_cost + rows // ROWS_OF_TILE * c.tile_cost)

    dense = cost(full_rows) + (tokens - full_rows) * (cost(full_rows + 1) - cost(full_rows))
    share = active_in_experts(c) / np.maximum(c.params_active, 1.0)
    return np.asarray((1 - share) * dense / np.maximum(tokens, 1e-9) + share * c.row_cost)


def context(c: Candidates) -> Array:
    """Mean tokens of a running sequence: its prompt, and half of its output."""
    return np.maximum(1.0, c.prompt_len + c.generated_len / 2)


def cached_tokens(c: Candidates, tokens: Array) -> Array:
    """Tokens that the cache of a sequence of this length keeps, averaged over layers: a window forgets the rest."""
    return tokens * (1 - c.windowed_share) + np.minimum(tokens, c.window) * c.windowed_share


def kv_bytes_per_token(c: Candidates) -> Array:
    """On one device: heads are split over tensor-parallel ranks until each has one; then they are copied."""
    return c.kv_values * c.kv_bytes / np.minimum(c.tp, c.n_kv_heads) / c.pp


def state_tokens(c: Candidates) -> Array:
    """Return the tokens of KV cache that take the place of the recurrent state of one sequence."""
    return np.asarray(c.state_bytes / c.tp / c.pp / kv_bytes_per_token(c))


def prefill_seconds(c: Candidates, requests: Array | float) -> tuple[Array, Array, Array]:
    """Return the seconds that a step spends on the prefill of requests: the terms `PREFILL`, in their order."""
    computed = c.prompt_len * (1 - c.cached_share)
    attended = np.where(computed > 0, cached_tokens(c, c.prompt_len) - computed / 2 * (1 - c.windowed_share), 0.0)
    causal = 4 * c.attending_layers * c.hidden_size * computed * np.maximum(attended, 0.0)
    params = c.params_active
    if (c.expert_cost != 1).any():
        params = params + (c.expert_cost - 1) * active_in_experts(c)
    return (
        2 * params / c.tp * requests * computed / (c.flops * c.clock_share),
        # Encoders of images keep 16 bits in every published format of the weights, as attention does.
        (causal + c.image_flops) * requests / c.tp / (c.fp16_flops * c.clock_share),
        OVERHEAD_S["requests"] * requests * c.dp,
    )


def seconds(c: Candidates, running: Array) -> Array:
    """Return the seconds of each term in one decode step at the listed rates, terms in the last axis.

    `running`: sequences of the whole deployment, shape (n,), or (n, points) of candidates that are `spread`. Pipeline
    stages work on a `pp`-th of a replica's batch each and a token passes all of them, so a step is what one token of
    one sequence takes.
    """
    out = np.zeros((len(TERMS), *np.broadcast_shapes(np.shape(running), c.dp.shape)))
    attention_ranks = c.dp
    batch = np.maximum(running / attention_ranks / c.pp, np.minimum(1.0, running))
    shared = c.shared_experts > 0
    expert_ranks = c.tp * np.where(shared, c.dp, 1.0)
    steps = 1 + c.drafted_len
    tokens = batch * steps
    requests = batch * c.accepted_len / np.maximum(c.generated_len, 1.0)
    computed = c.prompt_len * (1 - c.cached_share)
    always, experts = parts(c)
    stored = c.weight_bits / 8

    out[_INDEX["weights"]] = always * stored / c.tp / c.memory_bytes_per_s
    if (c.n_experts > 0).any():
        touched = touched_share(c, batch * np.where(shared, c.dp, 1.0) * steps)
        out[_INDEX["experts"]] = experts * touched * stored / expert_ranks / c.memory_bytes_per_s
    # A step reads the recurrent state of each sequence and writes the next one.
    cache = cached_tokens(c, context(c)) * kv_bytes_per_token(c) * c.pp + 2 * c.state_bytes / c.tp
    products = 4 * c.attending_layers * c.hidden_size * cached_tokens(c, context(c)) / c.tp
    out[_INDEX["kv_cache"]] = batch * (cache / c.memory_bytes_per_s + products / c.attention_flops)

    out[_INDEX["decode_flops"]] = 2 * c.params_active / c.tp * tokens / (c.flops * c.clock_share)
    if (c.row_cost != 1).any():
        out[_INDEX["decode_flops"]] *= rows_cost(c, tokens)
    for name, part_s in zip(PREFILL, prefill_seconds(c, requests), strict=True):
        out[_INDEX[name]] = part_s

    out[_INDEX["step"]] = OVERHEAD_S["step"] * c.pp
    out[_INDEX["layers"]] = OVERHEAD_S["layers"] * c.n_layers
    # Drafted tokens are verified and sampled one by one, so what speculation gains vanishes in a large batch.
    out[_INDEX["sequences"]] = OVERHEAD_S["sequences"] * tokens * c.dp
    ranks = expert_ranks
    inside = np.minimum(ranks, c.devices_per_host)
    hosts = np.maximum(ranks / c.devices_per_host, 1.0)
    hops = np.where(ranks > 1, 1 + np.log2(ranks), 0.0)
    out[_INDEX["all_reduce_latency"]] = OVERHEAD_S["all_reduce_latency"] * c.n_layers * hops
    moved = 2 * 2 * c.n_layers * c.hidden_size * ACTIVATION_BYTES * (tokens + requests * computed)
    wire = (inside - 1) / np.maximum(inside, 1) / c.link_bytes_per_s + (1 - 1 / hosts) / INTER_HOST_BYTES_PER_S
    # Between pipeline stages the hidden states of each token are sent once.
    sent = (c.pp - 1) * c.hidden_size * ACTIVATION_BYTES * (tokens + requests * computed)
    out[_INDEX["all_reduce_bytes"]] = moved * wire + sent / c.link_bytes_per_s
    out[_INDEX["mixture_layers"]] = OVERHEAD_S["layers"] * c.n_layers * (c.n_experts > 0)
    out[_INDEX["draft"]] = OVERHEAD_S["step"] * c.drafted_len

    if (c.whole_prompts > 0).any():
        # Prompts that came during a step are computed in one of their own, which reads all weights and is launched:
        # one follows each step in which at least one came, if they come at random.
        alone = -c.whole_prompts * np.expm1(-requests)
        for name in ("weights", "step", "layers", "all_reduce_latency", "mixture_layers"):
            out[_INDEX[name]] *= 1 + alone
        out[_INDEX["experts"]] += alone * experts * stored / expert_ranks / c.memory_bytes_per_s
    if (c.accepted_len != 1).any():
        out /= np.where(c.accepted_len > 0, c.accepted_len, 1.0)
    return np.moveaxis(out, 0, -1)
