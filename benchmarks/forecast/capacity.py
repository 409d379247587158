"""Sequences that ran in a measured row, and memory that an engine keeps free for its largest step."""

import numpy as np

from pertoken.forecast.candidates import Array, Candidates
from pertoken.forecast.capacity import held_tokens, kv_tokens
from pertoken.forecast.terms import ACTIVATION_BYTES, kv_bytes_per_token

WIDE_ACTIVATIONS, HIDDEN_COPIES = 10.5, 4.0
"""Values alive per token at the peak of a layer, in hidden sizes: three times the width of a gated feed-forward layer,
3.5 hidden sizes as in Llama 3, and residual, normalized input, attention and output."""
CONTEXT_BYTES = 6e8
"""CUDA context, workspaces and communication buffers: a judgement."""
MIN_FREE_FRACTION = 0.02
"""Share of a device's memory that is assumed free on a deployment that runs although the arithmetic leaves none."""


def profiled_bytes(c: Candidates, step_tokens: float) -> Array:
    """Return the bytes of each device that an engine keeps free for a step of `tokens` tokens, shape (n,).

    Engines run the largest step once before they give the rest to the cache (vLLM `determine_available_memory`): what
    is alive at its peak is the output of the gate and up projections and its product, split over ranks, beside a few
    copies of the hidden states.
    """
    width = WIDE_ACTIVATIONS / c.tp + HIDDEN_COPIES
    return np.asarray(step_tokens * c.hidden_size * width * ACTIVATION_BYTES + CONTEXT_BYTES)


def running_sequences(c: Candidates) -> Array:
    """Return the sequences that run at once: those available, within the batch limit of each replica and the cache.

    At least 1: whether a deployment starts at all is asked before.
    """
    room = np.maximum(kv_tokens(c), MIN_FREE_FRACTION * c.memory_bytes / kv_bytes_per_token(c) * c.dp)
    most = np.minimum(c.max_num_seqs * c.dp, room / held_tokens(c))
    return np.maximum(1.0, np.minimum(c.concurrency, most))
