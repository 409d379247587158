"""Time of one decode step and of a prefill: a roofline whose terms are summed, since they hardly overlap.

Sources of the terms: weights and KV cache read per step, 2 FLOPs per active parameter and token, causal attention
(roofline of Williams et al., 2009, applied to decoding as in Pope et al., 2022, arXiv 2211.05102); a mixture layer
reads the experts that a batch touches, E x (1 - (1 - k/E)^batch) of E.
"""

from pertoken.forecast.efficiency import Efficiency
from pertoken.forecast.served import Served

ACTIVATION_BYTES = 2
"""Bytes of one activation passed between ranks."""


def weight_bytes_read(served: Served, batch: float) -> float:
    """Weight bytes all ranks together read in one step over `batch` sequences."""
    params = float(served.params_total)
    if served.n_experts:
        expert = (served.params_total - served.params_active) / (served.n_experts - served.n_experts_active)
        always = served.params_active - served.n_experts_active * expert
        untouched = (1 - served.n_experts_active / served.n_experts) ** max(batch, 1.0)
        params = always + expert * served.n_experts * (1 - untouched)
    return params * served.format.bytes_per_param


def decode_step_s(served: Served, efficiency: Efficiency, batch: float, context: float) -> float:
    """Seconds for one token of each of `batch` sequences of one replica, `context` tokens long on average.

    Pipeline stages work on a `pp`-th of the batch each; a token passes all of them.
    """
    micro = max(1.0, batch / served.pp)
    device = served.accelerator
    bandwidth = device.memory_bytes_per_s * efficiency.memory_bandwidth_share
    weights = weight_bytes_read(served, micro) / served.tp / (bandwidth * served.format.bandwidth_share)
    cache = micro * context * served.kv_bytes_per_token_per_device * served.pp / bandwidth
    products = 2 * served.params_active * micro / (served.tp * served.flops * efficiency.decode_flops_share)
    layers = served.n_layers * efficiency.layer_overhead_s
    if served.n_experts:
        layers += served.n_layers * efficiency.moe_layer_overhead_s
    fixed = efficiency.step_overhead_s + micro * efficiency.sequence_overhead_s
    return weights + cache + products + layers + fixed + _all_reduce_s(served, efficiency, micro)


def prefill_s(served: Served, efficiency: Efficiency, tokens: float) -> float:
    """Device seconds to compute a prompt of `tokens` on one replica."""
    products = 2 * served.params_active * tokens + 2 * served.n_layers * served.width * tokens**2
    compute = products / (served.tp * served.pp * served.flops * efficiency.prefill_flops_share)
    return compute + _all_reduce_s(served, efficiency, tokens)


def _all_reduce_s(served: Served, efficiency: Efficiency, tokens: float) -> float:
    if served.tp == 1:
        return 0.0
    one_way = (served.accelerator.interconnect_bytes_per_s or 32e9) / 2 * efficiency.link_share
    moved = 2 * (served.tp - 1) / served.tp * tokens * served.width * ACTIVATION_BYTES
    return 2 * served.n_layers * (efficiency.allreduce_latency_s + moved / one_way)
