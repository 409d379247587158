"""Experts of a mixture: their number, and how many compute a token. A mixture is never taken for a dense model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pertoken.agent.checkpoints.bounded import whole
from pertoken.agent.checkpoints.facts import ShapeUnknown

COUNTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_routed_experts")
ACTIVE = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"),
    *("top_k_experts", "moe_experts_per_token", "moe_router_topk", "num_experts_per_topk"),
)
"""Names of both in configurations that transformers 5.24 and vLLM 0.33 read."""
_OTHER = re.compile(r"expert|^(ffn|moe)_config$")
"""Keys that may count experts under another name."""
_BESIDE = re.compile(
    r"shared?_|per_tok|zero_|redundant|bias|size|dim|width|expert_layer|capacity|group|fn$|limit|policy|sink|scal|parallel"
)


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer; 1 of a dense model. None is unknown."""

    count: int | None = 1
    active: int | None = 1

    def active_parameters(self, total: int, routed: int) -> int | None:
        """Return the parameters that one token passes, of which `routed` are those of all experts together."""
        if self.count == 1:
            return total if not routed else None
        if not routed or self.count is None or self.active is None:
            return None
        return total - routed + routed * self.active // self.count


def experts_of(config: Mapping[str, object]) -> Experts:
    """Return the experts of a text model's configuration. Raises ShapeUnknown where they are written otherwise."""
    counts = {name: config[name] for name in COUNTS if config.get(name)}
    if not counts:
        other = next((key for key, value in config.items() if _may_count(key, value)), None)
        named = other or next((name for name in ACTIVE if config.get(name)), None)
        if named is not None:
            raise ShapeUnknown(f"config.json has {named}, and how many experts there are is not known")
        return Experts()
    number = whole(next(iter(counts.values())))
    active = whole(next((config[name] for name in ACTIVE if config.get(name)), None))
    if number is None or len({str(count) for count in counts.values()}) > 1:
        raise ShapeUnknown(f"config.json has no single number of experts in {' and '.join(counts)}")
    if number == 1:
        return Experts()
    if active is None or active > number:
        raise ShapeUnknown(f"config.json names no number of active experts ({ACTIVE[0]}) of its {number}")
    return Experts(number, active)


def _may_count(key: str, value: object) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value > 1
    if not is_number and not (isinstance(value, dict | list) and value):
        return False
    return _OTHER.search(key) is not None and _BESIDE.search(key) is None
