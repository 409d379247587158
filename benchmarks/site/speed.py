"""Speed of this machine, by loops that never change: it tells a slower machine from a fault of the forecast."""

import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.report import Row

SIDE = 1024
"""Of the matrices that are multiplied: three fit into the shared cache."""
COPIED_BYTES = 1 << 27
"""Copied from memory to memory: more than the caches hold."""
TRIES = 7
Speed = tuple[float, float]
"""Rate of products in FLOP/s, and of a copy in bytes/s."""


def speed() -> Speed:
    """Return the median of a few short loops, about a third of a second together."""
    matrix = np.full((SIDE, SIDE), 0.5, np.float32)
    source = np.zeros(COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    source[:] = 1
    target[:] = 0
    products_s, copy_s = [], []
    for _ in range(TRIES):
        began_s = time.perf_counter()
        matrix @ matrix
        multiplied_s = time.perf_counter()
        np.copyto(target, source)
        copied_s = time.perf_counter()
        products_s.append(multiplied_s - began_s)
        copy_s.append(copied_s - multiplied_s)
    return 2 * SIDE**3 / statistics.median(products_s), 2 * COPIED_BYTES / statistics.median(copy_s)


def speed_rows(speeds: Mapping[str, Sequence[Speed]]) -> list[Row]:
    """Return the speed of each phase of a run over that of its probes, the median of a phase."""
    probes = speeds.get("probes")
    if not probes:
        return []
    rows = []
    for place, name in enumerate(("products", "copies")):
        at_probes = statistics.median(one[place] for one in probes)
        rows += [
            Row(
                "machine",
                f"speed of {name}, {phase}",
                statistics.median(one[place] for one in of_phase) / at_probes,
                "ratio",
                "of a fixed loop, over the speed while probes ran",
            )
            for phase, of_phase in speeds.items()
            if of_phase
        ]
    return rows
