"""Metrics, each defined once: name, label, unit, storage, roll-up, and the evidence series that rules read.

- `metrics.engine`: `ENGINE_TOKENS`, `ENGINE_COUNTERS`, `ENGINE_TIMES`, `ENGINE_GAUGES` and `HISTOGRAMS`. Adapters map
  the engines' own names onto these. A new counter is a row of `ENGINE_COUNTERS` and a `Counter` in the adapter of an
  engine that exposes it.
- `metrics.device`: `DEVICE`, the values that probes read of a device. A new one is a row, a probe that reads it, and a
  migration that adds its columns. Samples and documents follow from the row; roll-ups too, unless they keep `NOTHING`
  of it; and, for a gauge, screens and evidence.
- `metrics.computations`: `Rate`, `Ratio`, `Gauge` and the other ways in which a series is computed.
- `metrics.series`: `SERIES`, which rules read as `seen.NAME`: label, unit, and one computation each, which evidence,
  plots and reports share. Series of devices come from `DEVICE`.
- `metrics.figures`: `FIGURES` of gates, alerts and exporters.
- `metrics.labels`: `label_of`, the name of a metric for people.

Nothing here is imported by a migration: revisions are frozen.
"""

from pertoken.metrics.device import (
    DEVICE,
    DEVICE_COLUMNS,
    LATER,
    MAX_MEMORY_BYTES,
    MAX_POWER_MW,
    MEMORY_SOURCE,
    POWER_LIMITS,
    POWER_SOURCE,
    DeviceMetric,
    Plausible,
    RollUp,
    rolled,
)
from pertoken.metrics.engine import (
    ENGINE,
    ENGINE_COUNTERS,
    ENGINE_GAUGES,
    ENGINE_TIMES,
    ENGINE_TOKENS,
    HISTOGRAMS,
    PER_REQUEST_TPOT,
    STORED_GAUGES,
    TENANT_LABELS,
    TENANT_TOKENS,
    EngineMetric,
)
from pertoken.metrics.figures import FIGURES, HEADLINES, MIN_STUCK_S, FigureSpec, HeadlineSpec
from pertoken.metrics.labels import label_of
from pertoken.metrics.series import (
    ENDED,
    FINISH_REASONS,
    GFLOP_PER_BUSY_S,
    MB_PER_BUSY_S,
    PREFIX_HIT_RATE,
    QUOTIENTS,
    SERIES,
    SPEC_ACCEPTANCE_LENGTH,
    SPEC_ACCEPTANCE_RATE,
    SeriesSpec,
)

__all__ = [
    "DEVICE",
    "DEVICE_COLUMNS",
    "ENDED",
    "ENGINE",
    "ENGINE_COUNTERS",
    "ENGINE_GAUGES",
    "ENGINE_TIMES",
    "ENGINE_TOKENS",
    "FIGURES",
    "FINISH_REASONS",
    "GFLOP_PER_BUSY_S",
    "HEADLINES",
    "HISTOGRAMS",
    "LATER",
    "MAX_MEMORY_BYTES",
    "MAX_POWER_MW",
    "MB_PER_BUSY_S",
    "MEMORY_SOURCE",
    "MIN_STUCK_S",
    "PER_REQUEST_TPOT",
    "POWER_LIMITS",
    "POWER_SOURCE",
    "PREFIX_HIT_RATE",
    "QUOTIENTS",
    "SERIES",
    "SPEC_ACCEPTANCE_LENGTH",
    "SPEC_ACCEPTANCE_RATE",
    "STORED_GAUGES",
    "TENANT_LABELS",
    "TENANT_TOKENS",
    "DeviceMetric",
    "EngineMetric",
    "FigureSpec",
    "HeadlineSpec",
    "Plausible",
    "RollUp",
    "SeriesSpec",
    "label_of",
    "rolled",
]
