"""An engine: how it stores weights, how its servers are started, and what a site varies with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.site.engines.server import Command, ServerSettings
from benchmarks.site.models import Shape

DENSE_RATES = Shape("rates", 1024, 16, 4, 6, 3072, 512)
MIXTURE_RATES = Shape("rates-moe", 1024, 16, 4, 3, 1536, 512, experts=8, used=2)
"""Served by no configuration; large enough that their weights do not fit in the caches of a core."""
SETTLE_S = 2.0
"""Pause before a server is measured while others stay up: a worker of vLLM polls for a second after its last request.
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, and what can be varied with it."""

    name: str
    """As discovery names it."""
    weight_dtypes: tuple[str, ...]
    kv_dtypes: tuple[str, ...]
    format_changes: tuple[tuple[str, ...], ...]
    """What the configurations change that differ in format: keys of `configurations.changed`."""
    shapes: tuple[Shape, ...]
    rates_shapes: tuple[Shape, ...]
    """A dense model, and a MoE model where any of the shapes is one, with which rates of the CPUs are measured."""
    n: int
    """Configurations that are predicted."""
    minutes: float
    """Default time of a run."""
    start_s: float
    """Time that starting a server takes: an estimate, to share the budget out."""
    stays: bool
    """Whether servers of all configurations stay up between rounds, as starting them takes longer than a round."""
    write: Callable[[Path, Shape, str], Path]
    """Write a model of random weights into a folder, unless it is there; return its path."""
    command: Callable[[ServerSettings], Command]
