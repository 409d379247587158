"""Whether a deployment starts on its devices, and how many sequences its KV cache holds."""

from dataclasses import dataclass

from pertoken.deployment import Deployment
from pertoken.forecast.efficiency import Efficiency, defaults
from pertoken.forecast.served import Served
from pertoken.units import format_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """KV cache of the whole deployment, all data-parallel replicas together."""

    kv_tokens: float
    """0 if it does not start."""
    refusal: str | None = None
    """Why the engine would not start."""


def capacity(deployment: Deployment, served: Served, efficiency: Efficiency) -> Capacity:
    """KV tokens that fit beside the weights in the share of device memory the engine may use.

    Memory is what the driver reports: an "80 GB" H100 has 85.5e9 bytes. An engine with a `max_model_len` refuses to
    start if one such sequence does not fit (vLLM's check at start-up).
    """
    share = deployment.gpu_memory_utilization or defaults().gpu_memory_utilization
    usable = served.accelerator.memory_bytes * share
    weights = served.weight_bytes / served.tp / served.pp
    free = usable - weights - efficiency.reserved_bytes
    if free <= 0:
        return Capacity(
            0.0,
            f"weights need {format_bytes(weights)} of each {served.accelerator.name}, and the engine may use "
            f"{format_bytes(usable)}, {format_bytes(efficiency.reserved_bytes)} of it for itself",
        )
    tokens = free / served.kv_bytes_per_token_per_device
    longest = deployment.max_model_len
    if longest is not None and tokens < longest:
        return Capacity(
            0.0,
            f"the KV cache would hold {tokens:.0f} tokens, fewer than max_model_len {longest}: "
            "a shorter max_model_len would start",
        )
    return Capacity(tokens * served.dp)
