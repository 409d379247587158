"""Start check of a deployment on its devices, and the number of sequences its KV cache holds."""

from collections.abc import Sequence

import numpy as np

from pertoken.catalog.market import Market
from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.formats import defaults
from pertoken.forecast.terms import cached_tokens, context, kv_bytes_per_token, parts, state_tokens
from pertoken.state.deployment import Deployment
from pertoken.units import format_bytes


def weight_bytes(c: Candidates) -> Array:
    """Bytes of weights on each device."""
    always, experts = parts(c)
    expert_ranks = c.tp * np.where(c.shared_experts > 0, c.dp, 1.0)
    return (always / c.tp + experts / expert_ranks) * c.weight_bits / 8 / c.pp


def free_bytes(c: Candidates) -> Array:
    """Bytes each device has for its KV cache; below 0 where the weights do not fit.

    The driver reports the memory: an "80 GB" H100 has 85.5e9 bytes.
    """
    taken = weight_bytes(c) + defaults().reserved_bytes
    return np.where(
        c.share_of_free > 0, (c.memory_bytes - taken) * c.memory_share, c.memory_bytes * c.memory_share - taken
    )


def kv_tokens(c: Candidates) -> Array:
    """Tokens of KV cache of the whole deployment, all replicas together; 0 where the weights do not fit."""
    return np.maximum(free_bytes(c), 0.0) / kv_bytes_per_token(c) * c.dp


def filling_sequences(c: Candidates) -> Array:
    """Sequences of the load's mean length with cached tokens that fill the cache; 0 where the weights do not fit."""
    return kv_tokens(c) / (cached_tokens(c, context(c)) + state_tokens(c))


def held_tokens(c: Candidates) -> Array:
    """Return the tokens of cache that a running sequence reserves: those it has, or those it may come to have.

    Recurrent state counts as the tokens that its bytes would hold.
    """
    tokens = np.where(c.whole_requests > 0, c.prompt_len + c.generated_len, context(c))
    return cached_tokens(c, tokens) + state_tokens(c)


def fitting_sequences(c: Candidates) -> Array:
    """Sequences of the load's mean length that the cache holds; 0 where the weights do not fit."""
    return kv_tokens(c) / held_tokens(c)


def refusals(deployments: Sequence[Deployment], c: Candidates, market: Market) -> list[str | None]:
    """Return the reason why each deployment would not start, None where it would; `c` has a row for each.

    Weights that do not fit are a reason, and so is a KV cache smaller than one sequence of `max_model_len`.
    """
    free, needed, usable = free_bytes(c), weight_bytes(c), c.memory_bytes * c.memory_share
    tokens = kv_tokens(c) / c.dp
    reasons: list[str | None] = []
    for row, deployment in enumerate(deployments):
        longest, reason = deployment.max_model_len, None
        if free[row] <= 0:
            accelerator = market.accelerator(deployment.accelerator)
            reason = (
                f"weights need {format_bytes(float(needed[row]))} of each "
                f"{accelerator.name if accelerator else 'device'}, and the engine may use "
                f"{format_bytes(float(usable[row]))}, {format_bytes(defaults().reserved_bytes)} of it for itself"
            )
        elif longest is not None and tokens[row] < longest:
            reason = (
                f"the KV cache would hold {tokens[row]:.0f} tokens, fewer than max_model_len {longest}: "
                "a shorter max_model_len would start"
            )
        reasons.append(reason)
    return reasons
