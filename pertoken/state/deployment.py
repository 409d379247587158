"""One engine at one endpoint, with its knobs, devices and placement."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any

from pertoken.state.errors import InvalidEdit
from pertoken.state.knobs import checked, knobs
from pertoken.state.model import Model
from pertoken.state.placement import Placement

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
    """(service, share of its demand); None: an even part of what the service's other deployments leave."""
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

    def but(self, **changes: Any) -> "Deployment":
        """Return this deployment with other knobs: `now.but(weight_dtype="fp8", tp=1)`.

        Raises UnknownKnob for a name that is not a knob, InvalidEdit for a value outside its type or range.
        """
        return replace(self, **checked(changes), edited=(*self.edited, *changes))

    def on(self, placement: Placement) -> "Deployment":
        """Return this deployment on another placement; fields that `placement` leaves out stay. Its devices are
        cleared."""
        moved = placement.over(self.placement)
        return self if moved == self.placement else replace(self, placement=moved, device_ids=())

    def on_devices(self, device_ids: tuple[int, ...]) -> "Deployment":
        """Return this deployment on other devices of the fleet.

        Raises InvalidEdit for no device or one named twice.
        """
        ids = tuple(device_ids)
        if not ids or len(set(ids)) != len(ids):
            raise InvalidEdit(f"{self.name} cannot run on devices {ids}: name each device once, and at least one")
        return replace(self, device_ids=ids)

    def serving_share(self, share: float, service: str | None = None, source: str | None = None) -> "Deployment":
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

    def restarted(self) -> "Deployment":
        """Return this deployment restarted as it is."""
        return replace(self, restart=True)

    def expecting(self, low: float, likely: float, high: float, source: str) -> "Deployment":
        """Return this deployment with a rule's own expectation of its speed; see `Expectation`."""
        return replace(self, expected=Expectation(low, likely, high, source))

    @property
    def name(self) -> str:
        """Served model name, else the model's name."""
        return self.served_model or self.model.name

    def knob_changes(self, other: "Deployment") -> dict[str, tuple[Any, Any]]:
        """Return the knobs that differ, as `{knob: (here, there)}`, in the order of the knob table."""
        own, others = _knobs(self), _knobs(other)
        if own == others:
            return {}
        # Edits leave most knobs as they are: these are passed over without a step of Python for each.
        places = compress(range(len(own)), map(is_not, own, others))
        names = tuple(knobs())
        return {names[at]: (own[at], others[at]) for at in places if own[at] != others[at]}


@cache
def _getter() -> Callable[[Deployment], tuple[Any, ...]]:
    return attrgetter(*knobs())


def _knobs(of: Deployment) -> tuple[Any, ...]:
    """Return the knobs of a deployment, in the order of the knob table."""
    return _getter()(of)
