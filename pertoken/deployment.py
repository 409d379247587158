"""What runs where, with which knobs: the value rules receive as `now` and propose changes to.

A knob that nobody could see is None. `Deployment.but()` is the only way to make a candidate, so that a change
is always a difference of two whole states, which the advisor prices and turns into commands.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from pertoken.evidence import Evidence

WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5} | {
    f"int{bits}": bits / 8 for bits in (2, 3, 4, 5, 6)
}
"""Bytes of one parameter by `Deployment.weight_dtype`, without scales and whatever stays in 16 bits."""


class UnknownKnob(ValueError):
    """A rule asked to change something that is not a knob of a deployment."""


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of a served model. None is unknown. Counts are exact parameters, not billions."""

    name: str
    params_total: int | None = None
    params_active: int | None = None
    """Parameters a token passes through: equals `params_total` for a dense model."""
    n_layers: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    """With MLA, `n_kv_heads` is 1 and `head_dim` half the cached values per token and layer."""
    n_experts: int | None = None
    n_experts_active: int | None = None
    sliding_window: int | None = None
    """Tokens back that `n_windowed_layers` attend to; None where every layer attends to all."""
    n_windowed_layers: int | None = None

    @property
    def known(self) -> bool:
        """Whether bytes and FLOPs per token can be computed."""
        shape = (self.params_total, self.params_active, self.n_layers, self.n_kv_heads, self.head_dim)
        return None not in shape


@dataclass(frozen=True, slots=True)
class Deployment:
    """One model served at one endpoint. Fields after `model` and before `deployment_id` are its knobs."""

    model: Model
    engine: str
    """`vllm`, `llama.cpp`, ..."""
    accelerator: str | None = None
    """Catalog name of the device it runs on; None if the catalog does not know it."""
    tp: int | None = None
    """Tensor-parallel ranks."""
    pp: int | None = None
    """Pipeline-parallel ranks."""
    dp: int | None = None
    """Data-parallel ranks."""
    weight_dtype: str | None = None
    """`bf16`, `fp16`, `fp32`, `fp8`, `int8`, `int4`, `fp4`; of llama.cpp also `int2`, `int3`, `int5`, `int6`."""
    kv_dtype: str | None = None
    """`bf16`, `fp16`, `fp8` (E4M3), `fp8_e5m2`, `int8`, ..."""
    max_num_seqs: int | None = None
    """Most sequences the engine batches (llama.cpp: slots)."""
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    """Whether prompts are computed in steps that also generate, up to `max_num_batched_tokens` of them at once."""
    max_model_len: int | None = None
    """Tokens."""
    gpu_memory_utilization: float | None = None
    """Share of device memory the engine may use, 0 to 1."""
    enforce_eager: bool | None = None
    enable_prefix_caching: bool | None = None
    num_speculative_tokens: int | None = None
    """Tokens drafted in each step of a sequence (speculative decoding); 0 for none."""
    purchase: str | None = None
    """How its devices are paid: `on_demand`, `spot`, `reserved`, `owned`; None where nobody said."""
    deployment_id: int = 0
    epoch_id: int = 0
    host: str = ""
    served_model: str = ""
    engine_version: str | None = None
    replicas: int = 1
    """Deployments of the same model seen in the fleet, this one included."""
    device_ids: tuple[int, ...] = ()
    usd_per_hour_nano: int | None = None
    """What its devices cost now, for display to people; rules do not compute with it."""

    def but(self, **changes: Any) -> "Deployment":
        """This deployment with other knobs: `now.but(weight_dtype="fp8", tp=1)`.

        Raises UnknownKnob for a name that is not a knob.
        """
        for name in changes:
            if name not in KNOBS:
                raise UnknownKnob(f"{name!r} is not a knob of a deployment; known: {', '.join(KNOBS)}")
        return replace(self, **changes)

    def changes_to(self, other: "Deployment") -> dict[str, tuple[Any, Any]]:
        """Knobs that differ, as `{knob: (here, there)}`, in the order of the fields."""
        return {
            name: (getattr(self, name), getattr(other, name))
            for name in KNOBS
            if getattr(self, name) != getattr(other, name)
        }

    @property
    def n_devices(self) -> int | None:
        """Devices its ranks occupy: the product of the known parallel sizes, else those it was seen on."""
        if self.tp is None and self.pp is None and self.dp is None:
            return len(self.device_ids) or None
        return (self.tp or 1) * (self.pp or 1) * (self.dp or 1)


_IDENTITY = {
    "engine",
    "deployment_id",
    "epoch_id",
    "host",
    "served_model",
    "engine_version",
    "replicas",
    "device_ids",
    "usd_per_hour_nano",
}
KNOBS: tuple[str, ...] = tuple(f.name for f in fields(Deployment) if f.name not in _IDENTITY)
"""Names `Deployment.but()` accepts, the model among them."""


@dataclass(frozen=True, slots=True)
class FleetDevice:
    """One device of the fleet as rules see it; `seen` holds what was measured on it."""

    device_id: int
    name: str
    host: str
    accelerator: str | None
    seen: Evidence
    deployment_ids: tuple[int, ...] = ()
    """Deployments that held it, or a part of it, at the end of the window."""


@dataclass(frozen=True, slots=True)
class FleetPart:
    """A part of a device, in which it is divided: a MIG device, a partition. It is paid for with the whole."""

    device_id: int
    name: str
    whole: FleetDevice
    share_1e6: int | None
    """What part of the whole it is, and so of its price."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All deployments and devices of one advice run. A candidate is a fleet too."""

    deployments: tuple[Deployment, ...] = ()
    devices: tuple[FleetDevice, ...] = ()
    released: tuple[int, ...] = field(default=())
    """Ids of devices this candidate no longer pays for."""
    parts: tuple[FleetPart, ...] = ()
    """What devices are divided in: deployments hold these, and only whole devices can be given back."""

    def replace(self, now: Deployment, to: Deployment) -> "Fleet":
        """This fleet with one deployment replaced.

        Raises ValueError if `now` is not part of it.
        """
        if now not in self.deployments:
            raise ValueError(f"{now.served_model or now.model.name} is not a deployment of this fleet")
        return replace(self, deployments=tuple(to if each == now else each for each in self.deployments))

    def release(self, device: FleetDevice) -> "Fleet":
        """This fleet without one device.

        Raises ValueError if the device is not part of it or was released before.
        """
        if device.device_id not in {each.device_id for each in self.devices}:
            raise ValueError(f"{device.name} is not a device of this fleet")
        if device.device_id in self.released:
            raise ValueError(f"{device.name} was released already")
        return replace(self, released=(*self.released, device.device_id))
