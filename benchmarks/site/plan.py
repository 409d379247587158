"""Configurations, durations and repeats of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.site.engines.engine import Engine
from benchmarks.site.models import Shape

ROUNDS = 3
SPARE = 0.1
"""Share of the time that is kept for rounds that have to be repeated."""
BISECTIONS = 30


@dataclass(frozen=True, slots=True)
class Plan:
    """Work of a run, and the time it may take."""

    seed: int
    budget_s: float
    probe_s: float
    """Of each part of the probe of one configuration of each model."""
    format_probe_s: float
    """Of each other format."""
    engine: Engine
    shapes: tuple[Shape, ...]
    rates_shapes: tuple[Shape, ...]
    """A dense and, for an engine that serves one, a MoE model, with which rates of the CPUs are measured."""
    n: int
    threads: int
    cpu_time: bool
    """Whether times are of the server's CPU time, for a machine that others use."""


def requests_each(cycles_s: Sequence[float], left_s: float) -> list[int]:
    """Return how many requests each client sends in a round.

    `cycles_s`: seconds from one request of a client to its next, by configuration. Rounds of all last about as long,
    and all of them together fit into `left_s`; one request is the least.
    """

    def counts(round_s: float) -> list[int]:
        return [max(1, int(round_s / cycle_s)) for cycle_s in cycles_s]

    def total_s(round_s: float) -> float:
        return ROUNDS * sum(n * cycle_s for n, cycle_s in zip(counts(round_s), cycles_s, strict=True))

    low, high = 0.0, left_s
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if total_s(middle) <= (1 - SPARE) * left_s else (low, middle)
    return counts(low)
