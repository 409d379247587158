"""A deployment resolved against the catalog: every number the serving model needs, or the reason it is not known."""

from dataclasses import dataclass

from pertoken.catalog.market import Accelerator, Market
from pertoken.deployment import Deployment
from pertoken.forecast.efficiency import Format, kv_bytes_per_value, weight_format


class Abstained(Exception):
    """The serving model does not know enough to give a number; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Served:
    """Shape, hardware and layout of one deployment; nothing in it is unknown."""

    params_total: int
    params_active: int
    n_layers: int
    n_kv_heads: int
    n_experts: int
    """0 for a dense model."""
    n_experts_active: int
    kv_bytes_per_token: float
    """Of one sequence, all layers, before it is split over ranks."""
    format: Format
    accelerator: Accelerator
    tp: int
    pp: int
    dp: int

    @property
    def width(self) -> float:
        """Hidden size, from parameters = 12 x layers x width^2 of a standard transformer block."""
        dense = self.params_active if self.n_experts else self.params_total
        return float((dense / (12 * self.n_layers)) ** 0.5)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights of one data-parallel replica."""
        return self.params_total * self.format.bytes_per_param

    @property
    def kv_bytes_per_token_per_device(self) -> float:
        """Heads are split over tensor-parallel ranks until each has one; then they are copied."""
        return self.kv_bytes_per_token / min(self.tp, self.n_kv_heads) / self.pp

    @property
    def flops(self) -> float:
        """Peak rate of its matrix products on one device, FLOP/s: weight-only formats compute in 16 bits."""
        rates = {
            "fp16": self.accelerator.fp16_flops,
            "fp8": self.accelerator.fp8_flops,
            "int8": self.accelerator.int8_flops,
            "fp4": self.accelerator.fp4_flops,
        }
        native = rates[self.format.flops_path]
        if native is None:
            return self.accelerator.fp16_flops * self.format.weight_only_flops_share
        return native * self.format.flops_share


def resolve(deployment: Deployment, market: Market) -> Served:
    """The deployment with every number the serving model needs.

    Raises Abstained naming the first thing that is not known.
    """
    name = deployment.served_model or deployment.model.name
    model = deployment.model
    if (
        model.params_total is None
        or model.params_active is None
        or model.n_layers is None
        or model.n_kv_heads is None
        or model.head_dim is None
    ):
        raise Abstained(f"the shape of {name} is not known: neither its engine nor the catalog tells it")
    mixture = model.params_active < model.params_total
    if mixture and (model.n_experts is None or model.n_experts_active is None):
        raise Abstained(f"the experts of {name} are not known")
    accelerator = market.accelerator(deployment.accelerator)
    if accelerator is None:
        raise Abstained(f"{name} runs on a device the catalog does not know")
    if deployment.weight_dtype is None:
        raise Abstained(f"the weight dtype of {name} is not known")
    weights, kv_bytes = weight_format(deployment.weight_dtype), kv_bytes_per_value(deployment.kv_dtype)
    if weights is None or kv_bytes is None:
        unknown = deployment.weight_dtype if weights is None else deployment.kv_dtype
        raise Abstained(f"the serving model does not know the dtype {unknown}")
    seen = len(deployment.device_ids) or 1
    parallel = (deployment.tp, deployment.pp, deployment.dp)
    return Served(
        params_total=model.params_total,
        params_active=model.params_active,
        n_layers=model.n_layers,
        n_kv_heads=model.n_kv_heads,
        n_experts=model.n_experts or 0 if mixture else 0,
        n_experts_active=model.n_experts_active or 0 if mixture else 0,
        kv_bytes_per_token=2 * model.n_layers * model.n_kv_heads * model.head_dim * kv_bytes,
        format=weights,
        accelerator=accelerator,
        tp=seen if parallel == (None, None, None) else deployment.tp or 1,
        pp=deployment.pp or 1,
        dp=deployment.dp or 1,
    )
