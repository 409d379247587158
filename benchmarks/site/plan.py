"""Configurations, durations and repeats of a run."""

from dataclasses import dataclass

from benchmarks.site.models import Shape

ROUNDS = 3
ROUND_SEED = 100
"""Between the seeds of the lengths of two rounds."""
MIN_ROUND_S = 1.0
START_S = 3.0
"""Time that starting a server takes beside what it is measured for: an estimate, to share the budget out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does and how long it may take."""

    seed: int
    budget_s: float
    probe_s: float
    """Of the configuration that is probed of each model."""
    format_probe_s: float
    """Of each other format."""
    shapes: tuple[Shape, ...]
    rates_shape: Shape
    n: int
    threads: int
    cpu_time: bool
    """Whether times are of the server's CPU time, for a machine that others use."""

    @property
    def seeds(self) -> list[int]:
        """Seeds of the lengths in each round."""
        return [ROUND_SEED * number for number in range(ROUNDS)]
