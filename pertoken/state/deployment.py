"""One engine at one endpoint: placement, knobs (settings with type, range and risk), and the shape of its model."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from pertoken.settings.owners import BASES, JOB, JOB_FACTS, LABEL, SLICE

WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "int8": 1.0, "fp4": 0.5} | {
    f"int{bits}": bits / 8 for bits in (2, 3, 4, 5, 6)
}
"""Bytes of one parameter by weight dtype, without scales and without the layers that stay in 16 bits."""


@dataclass(frozen=True, slots=True)
class Model:
    """Shape of a served model. None is unknown. Counts are exact parameters, not billions."""

    name: str
    params_total: int | None = None
    params_active: int | None = None
    """Parameters a token passes through; equals `params_total` for a dense model."""
    n_layers: int | None = None
    n_kv_heads: int | None = None
    """KV heads of a layer that caches; the fewest where layers differ."""
    head_dim: int | None = None
    """With MLA, `n_kv_heads` is 1 and `head_dim` half the cached values per token and layer. None if layers differ."""
    n_experts: int | None = None
    n_experts_active: int | None = None
    sliding_window: int | None = None
    """Tokens back that `n_windowed_layers` attend to; None where every layer attends to all tokens."""
    n_windowed_layers: int | None = None
    kv_values: int | None = None
    """Cached values per token over all layers, where layers differ."""
    windowed_kv_values: int | None = None
    """Cached values of `n_windowed_layers`."""
    n_attention_layers: int | None = None
    """Layers that attend to all tokens and cache them, where layers differ."""
    n_linear_layers: int | None = None
    """Layers with recurrent state instead of a cache: linear attention, state-space and convolution layers."""
    state_bytes: int | None = None
    """Recurrent state of one sequence over all layers, which does not grow with its tokens."""

    @property
    def layer_kinds(self) -> dict[str, int] | None:
        """Number of layers by kind: attention, sliding, linear and none (no cache of their own); None if unknown."""
        if self.n_layers is None or self.kv_values_per_token is None:
            return None
        sliding, linear = self.n_windowed_layers or 0, self.n_linear_layers or 0
        attention = self.n_attention_layers
        if attention is None:
            attention = self.n_layers - sliding - linear
        return {
            "attention": attention,
            "sliding": sliding,
            "linear": linear,
            "none": self.n_layers - attention - sliding - linear,
        }

    @property
    def kv_values_per_token(self) -> int | None:
        """Cached values per token over all layers; None if unknown."""
        if self.kv_values is not None or self.n_layers is None or self.n_kv_heads is None or self.head_dim is None:
            return self.kv_values
        return 2 * self.n_layers * self.n_kv_heads * self.head_dim

    @property
    def kv_values_per_layer(self) -> float | None:
        """Cached values per token of a layer that attends, on average; None if unknown."""
        kinds, values = self.layer_kinds, self.kv_values_per_token
        return None if kinds is None or values is None else values / max(kinds["attention"] + kinds["sliding"], 1)

    @property
    def windowed_share(self) -> float:
        """Share of the cached values that lie in layers with a window."""
        if not self.sliding_window or not self.n_windowed_layers or not self.n_layers:
            return 0.0
        if self.kv_values and self.windowed_kv_values is not None:
            return self.windowed_kv_values / self.kv_values
        return self.n_windowed_layers / self.n_layers

    @property
    def known(self) -> bool:
        """Whether bytes and FLOPs per token can be computed."""
        shape = (self.params_total, self.params_active, self.n_layers, self.n_kv_heads, self.kv_values_per_token)
        return None not in shape


class InvalidEdit(ValueError):
    """An edit names something that does not exist, or a value outside its type or range."""


class UnknownKnob(InvalidEdit):
    """A name that is not a knob of a deployment."""


MAX_NAME = 255
"""Characters of a name."""
MAX_NAMES = 256
"""Names in a list."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of `knobs.toml`; the file's header explains each field."""

    name: str
    label: str
    type: str
    restart: bool
    risk: str
    priced_by: str
    scope: str = "engine"
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    values: tuple[str, ...] = ()
    trial: str = "some hours"

    def check(self, value: object) -> object:
        """Return `value` as it is stored. Raises InvalidEdit if it is of another type or outside the range."""
        if self.type == "model" and isinstance(value, Model):
            return value
        if self.type == "text" and is_name(value):
            return value
        if self.type == "word" and isinstance(value, str) and value in self.values:
            return value
        if self.type == "bool" and isinstance(value, bool):
            return value
        if self.type == "names" and isinstance(value, list | tuple) and _are_names(value):
            return tuple(value)
        if self.type == "int" and type(value) is int and self._in_range(value):
            return value
        if self.type == "float" and (type(value) is int or type(value) is float) and self._in_range(value):
            return float(value)
        raise InvalidEdit(f"{self.name}={_shown(value)} is not possible: {self.label} must be {self.domain}")

    @property
    def domain(self) -> str:
        """Description of the values that this knob accepts."""
        if self.type == "word":
            return f"one of {', '.join(self.values)}"
        if self.type in ("int", "float"):
            kind = "a whole number" if self.type == "int" else "a number"
            unit = f" {self.unit}" if self.unit else ""
            return f"{kind} from {self.low:g} to {self.high:g}{unit}"
        return {"model": "a Model", "text": "a name", "bool": "True or False", "names": "a list of names"}[self.type]

    def _in_range(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@cache
def knobs() -> Mapping[str, Knob]:
    """Return every knob by name, in the order of the table."""
    rows = tomllib.loads(files("pertoken.state").joinpath("knobs.toml").read_text(encoding="utf-8"))["knob"]
    return {row["name"]: Knob(**{**row, "values": tuple(row.get("values", ()))}) for row in rows}


_INSTEAD = {
    "replicas": ": use service.scaled_to(n) or service.resized()",
    **dict.fromkeys(
        ("accelerator", "provider", "region", "purchase", "instance_type"), ": use on(Placement(...)) of a service"
    ),
    "devices": ": use on_devices(ids)",
}
"""Remedies for names that are no knobs, but that a rule may look for."""


def checked(changes: Mapping[str, object]) -> dict[str, Any]:
    """Return the changes with each value as it is stored.

    Raises UnknownKnob for a name that is not a knob, InvalidEdit for a value that is not possible.
    """
    for name in changes:
        if name not in knobs():
            raise UnknownKnob(
                f"{name!r} is not a knob of a deployment{_INSTEAD.get(name, '')}; known: {', '.join(knobs())}"
            )
    return {name: knobs()[name].check(value) for name, value in changes.items()}


def is_name(value: object) -> bool:
    """Return whether a value can name something on a screen and in a command."""
    return isinstance(value, str) and bool(value.strip()) and len(value) <= MAX_NAME and value.isprintable()


def _are_names(values: Sequence[object]) -> bool:
    return len(values) <= MAX_NAMES and all(is_name(value) for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


PURCHASES = ("on_demand", "spot", "reserved", "owned", "per_token")
"""Ways a device-hour is paid for; `per_token` is a serverless API, which has no devices."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Provider, region, instance and purchase of devices. None is unknown, or not asked for in a proposal."""

    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    accelerator: str | None = None
    """Catalog name."""
    devices_per_instance: int | None = None
    purchase: str | None = None
    """One of `PURCHASES`."""
    offer: str | None = None
    """Identifier of a listed offer, where a rule means one in particular."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            if name == "devices_per_instance":
                if type(value) is not int or value < 1:
                    raise InvalidEdit(f"devices_per_instance={value!r} is not possible: use a whole number above 0")
            elif not is_name(value):
                raise InvalidEdit(f"{name}={value!r} of a placement is not a name")
        if self.purchase is not None and self.purchase not in PURCHASES:
            raise InvalidEdit(f"purchase={self.purchase!r} is not possible: use one of {', '.join(PURCHASES)}")

    def over(self, present: Placement) -> Placement:
        """Return this placement completed by the present one.

        A proposal names its changes: the provider, region and purchase it leaves out stay. The instance (type, size,
        offer) stays only while accelerator and provider do.
        """
        if self.purchase == "per_token":  # an API has no devices, and its regions are its own
            return replace(self, accelerator=None, instance_type=None, devices_per_instance=None)
        accelerator, provider = self.accelerator or present.accelerator, self.provider or present.provider
        stays = (accelerator, provider) == (present.accelerator, present.provider)
        return Placement(
            provider=provider,
            region=self.region or present.region,
            instance_type=self.instance_type or (present.instance_type if stays else None),
            accelerator=accelerator,
            devices_per_instance=self.devices_per_instance or (present.devices_per_instance if stays else None),
            purchase=self.purchase or present.purchase,
            offer=self.offer,  # of one purchase and region: it is never carried over
        )


@dataclass(frozen=True, slots=True)
class Commitment:
    """Instances paid for until a date, used or not; it belongs to the fleet, not to a deployment."""

    provider: str
    region: str | None
    instance_type: str
    count: int
    nano_usd_per_instance_hour: int
    end_ts: int | None = None
    """Epoch seconds, UTC; None if it is only proposed: its term starts when it is bought."""
    years: int | None = None
    """Term of one that is proposed."""

    def __post_init__(self) -> None:
        if (self.end_ts is None) == (self.years is None):
            raise InvalidEdit("a commitment has either an end or a term in years")
        if self.years is not None and (type(self.years) is not int or self.years < 1):
            raise InvalidEdit(f"years={self.years!r} of a commitment is not possible: use a whole number above 0")
        if type(self.count) is not int or self.count < 1:
            raise InvalidEdit(f"count={self.count!r} of a commitment is not possible: use a whole number above 0")
        if type(self.nano_usd_per_instance_hour) is not int or self.nano_usd_per_instance_hour < 0:
            raise InvalidEdit("the price of a commitment is a whole number of nano-dollars, 0 or more")

    def runs_after(self, ts: int) -> bool:
        """Return whether it is paid for after an instant; one that is only proposed is."""
        return self.end_ts is None or self.end_ts > ts


NEW = 0
"""`deployment_id` of a deployment that is not part of a fleet yet; `Fleet.replace` numbers it."""

MAX_RATIO = 100
"""Largest ratio that a rule may expect (see `Expectation`). A judgement."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected ratio of tokens per device-second after a change to before it, at equal load, with its source."""

    low: float
    likely: float
    high: float
    source: str

    def __post_init__(self) -> None:
        numbers = (self.low, self.likely, self.high)
        if any(type(value) not in (int, float) or not 0 < value <= MAX_RATIO for value in numbers):
            raise InvalidEdit(f"expecting{numbers} is not possible: use ratios above 0 and up to {MAX_RATIO}")
        if not self.low <= self.likely <= self.high:
            raise InvalidEdit(f"expecting{numbers} is not possible: low ≤ likely ≤ high")
        if not isinstance(self.source, str) or not self.source.strip():
            raise InvalidEdit("an expectation names its source")


@dataclass(frozen=True)
class Deployment:
    """One engine at one endpoint. A knob that was not observed is None.

    The fields from `model` to `role` are the knobs of `state.knobs`; `but()` changes them. Every edit returns a copy.
    """

    model: Model
    engine: str
    """`vllm`, `llama.cpp`, ..."""
    _: KW_ONLY
    engine_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    max_num_seqs: int | None = None
    """Sequences the engine batches at most (llama.cpp: slots)."""
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    enforce_eager: bool | None = None
    attention_backend: str | None = None
    """`flash`, `generic` (fused, written for no device), or `plain` (scores go through memory); None: the engine's."""
    enable_prefix_caching: bool | None = None
    num_speculative_tokens: int | None = None
    speculative_method: str | None = None
    draft_model: str | None = None
    lora_adapters: tuple[str, ...] | None = None
    kv_offload_bytes: int | None = None
    sm_clock_mhz: int | None = None
    power_cap_w: int | None = None
    sleep: bool | None = None
    role: str | None = None
    """`both`, `prefill` or `decode`."""
    deployment_id: int = NEW
    epoch_id: int = 0
    served_model: str = ""
    """Name that clients send."""
    device_ids: tuple[int, ...] = ()
    placement: Placement = field(default_factory=Placement)
    serves: tuple[tuple[str, float | None], ...] = ()
    """(service, share of its demand); None: an even part of the demand that other deployments leave."""
    share_source: str | None = None
    """Source of the measured share of a demand that a proposal gives it; None while that is a guess."""
    restart: bool = False
    """Whether a proposal restarts it as it is."""
    expected: Expectation | None = None
    edited: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Knobs that edits set, also to the present value: the refusal of a proposal that changes nothing lists them."""

    @property
    def accelerator(self) -> str | None:
        """Catalog name of the devices it runs on."""
        return self.placement.accelerator

    @property
    def n_devices(self) -> int | None:
        """Devices its ranks occupy: the product of the known parallel sizes, else those it was seen on."""
        if self.tp is None and self.pp is None and self.dp is None:
            return len(self.device_ids) or None
        return (self.tp or 1) * (self.pp or 1) * (self.dp or 1)

    def but(self, **changes: Any) -> Deployment:
        """Return this deployment with other knobs: `now.but(weight_dtype="fp8", tp=1)`.

        Raises UnknownKnob for a name that is not a knob, InvalidEdit for a value outside its type or range.
        """
        return replace(self, **checked(changes), edited=(*self.edited, *changes))

    def on(self, placement: Placement) -> Deployment:
        """Return this deployment on another placement; fields that `placement` leaves out stay. Its devices are
        cleared."""
        moved = placement.over(self.placement)
        return self if moved == self.placement else replace(self, placement=moved, device_ids=())

    def on_devices(self, device_ids: tuple[int, ...]) -> Deployment:
        """Return this deployment on other devices of the fleet.

        Raises InvalidEdit for no device or one named twice.
        """
        ids = tuple(device_ids)
        if not ids or len(set(ids)) != len(ids):
            raise InvalidEdit(f"{self.name} cannot run on devices {ids}: name each device once, and at least one")
        return replace(self, device_ids=ids)

    def serving_share(self, share: float, service: str | None = None, source: str | None = None) -> Deployment:
        """Return this deployment taking `share` (0 to 1) of a service's demand; `service` where it serves several.

        `source` states who measured that it can take so much; without one the proposal has no money in it.
        Raises InvalidEdit for another share, or a service it does not serve.
        """
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise InvalidEdit(f"a share of {share!r} is not possible: use a number from 0 to 1")
        names = [name for name, _ in self.serves]
        if service is None and len(names) == 1:
            service = names[0]
        if service not in names:
            raise InvalidEdit(f"{self.name} serves {', '.join(names) or 'nothing'}: name one of its services")
        serves = tuple((name, share if name == service else old) for name, old in self.serves)
        return replace(self, serves=serves, share_source=source)

    def restarted(self) -> Deployment:
        """Return this deployment restarted as it is."""
        return replace(self, restart=True)

    def expecting(self, low: float, likely: float, high: float, source: str) -> Deployment:
        """Return this deployment with a rule's own expectation of its speed; see `Expectation`."""
        return replace(self, expected=Expectation(low, likely, high, source))

    @property
    def name(self) -> str:
        """Served model name, else the model's name."""
        return self.served_model or self.model.name

    def knob_changes(self, other: Deployment) -> dict[str, tuple[Any, Any]]:
        """Return the knobs that differ, as `{knob: (here, there)}`, in the order of the knob table."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in knobs()}
        return {name: (value, other_value) for name, (value, other_value) in pairs.items() if value != other_value}


_TEXT = re.compile(r"(\S+) ([^\s/]+)/([^\s/]+)")
UNKNOWN = "?"
WORKLOAD = "workload"
"""Knob of an epoch for the object that its pod belongs to, as the text of a `Workload`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that creates pods. Unknown fields are None."""

    kind: str | None = None
    """`Deployment`, `LLMInferenceService` or `DynamoGraphDeployment`; inferred from the name of the pod."""
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        """Return the text that `parsed` reads: `Deployment prod/llama-70b`."""
        return f"{self.kind or UNKNOWN} {self.namespace or UNKNOWN}/{self.name or UNKNOWN}"


def parsed(text: object) -> Workload | None:
    """Return the workload a text is of; None for any other value."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else Workload(*(None if group == UNKNOWN else group for group in match.groups()))


def is_owner_knob(name: str) -> bool:
    """Return whether a knob of an epoch names an owner: it changes nothing of the engine."""
    return name in (WORKLOAD, JOB, *JOB_FACTS, SLICE) or name.startswith(LABEL)


def owner_of(knobs: Mapping[str, object], basis: str) -> str | None:
    """Return the owner of a deployment by one of the bases; None where it has none that is known.

    A workload is named with its namespace, as names repeat among them.
    """
    if basis not in ("namespace", "workload"):
        return str(knobs[basis]) if knobs.get(basis) else None
    workload = parsed(knobs.get(WORKLOAD)) or Workload()
    if basis == "namespace":
        return workload.namespace
    return "/".join(filter(None, (workload.namespace, workload.name))) if workload.name else None


def bases_of(all_knobs: Collection[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the bases by which any of these deployments has an owner, labels last."""
    labels = sorted({name for knobs in all_knobs for name in knobs if name.startswith(LABEL)})
    return tuple(basis for basis in (*BASES, *labels) if any(owner_of(knobs, basis) for knobs in all_knobs))


def changed_owner(present: Mapping[str, object], proposed: Mapping[str, object]) -> bool:
    """Return whether somebody else pays; an owner that is not known on either side has not changed."""
    bases = (*BASES, *(name for name in present if name.startswith(LABEL)))
    pairs = ((owner_of(present, basis), owner_of(proposed, basis)) for basis in bases)
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)
