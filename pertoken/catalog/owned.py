"""Default costs of owning a server in addition to its purchase."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Term:
    """One number of the cost of ownership that its owner may state."""

    value: float
    """Default value."""
    low: float
    high: float
    usual: str
    meaning: str


@dataclass(frozen=True, slots=True)
class NodePower:
    """Model of the power of a server at its plug."""

    rest_share: float
    """Watts of all but the accelerators without load, for each watt of their power limits."""
    load_factor: float
    """Watts at the plug for each watt of the accelerators."""

    def watts(self, accelerator_w: float, power_limit_w: float) -> float:
        """Return the watts at the plug."""
        return self.rest_share * power_limit_w + self.load_factor * accelerator_w


@cache
def node_power() -> NodePower:
    """Return the model where nothing was measured at the plug."""
    node = _table()["node"]
    return NodePower(node["rest_share"], node["load_factor"])


def measured_servers() -> Sequence[tuple[str, float, float]]:
    """Return published measurements: the server, its kilowatts at the plug, and the error of the model in kilowatts."""
    model = node_power()
    return [
        (row["server"], row["plug_kw"], model.watts(row["accelerator_kw"], row["power_limit_kw"]) - row["plug_kw"])
        for row in _table()["node"]["measured"]
    ]


@cache
def terms() -> Mapping[str, Term]:
    """Return the terms by name."""
    return {name: Term(**row) for name, row in _table()["terms"].items()}


def _table() -> Mapping[str, Any]:
    return tomllib.loads(files("pertoken.catalog").joinpath("owned.toml").read_text(encoding="utf-8"))
