"""Metrics, each defined once: name, label, unit, storage, roll-up, and the evidence series that rules read.

- `metrics.device`: `ENGINE_TOKENS`, `ENGINE_COUNTERS`, `ENGINE_TIMES`, `ENGINE_GAUGES` and `HISTOGRAMS`. Adapters map
  the engines' own names onto these. A new counter is a row of `ENGINE_COUNTERS` and a `Counter` in the adapter of an
  engine that exposes it.
- `metrics.device`: `DEVICE`, the values that probes read of a device. A new one is a row, a probe that reads it, and a
  migration that adds its columns. Samples and documents follow from the row; roll-ups too, unless they keep `NOTHING`
  of it; and, for a gauge, screens and evidence.
- `metrics.series`: `Rate`, `Ratio`, `Gauge` and the other ways in which a series is computed.
- `metrics.series`: `SERIES`, which rules read as `seen.NAME`: label, unit, and one computation each, which evidence,
  plots and reports share. Series of devices come from `DEVICE`.
- Here: `FIGURES` of gates, alerts and exporters, and `label_of`, the name of a metric for people.

Nothing here is imported by a migration: revisions are frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pertoken.metrics.device import (
    DEVICE,
    DEVICE_COLUMNS,
    ENGINE,
    ENGINE_COUNTERS,
    ENGINE_GAUGES,
    ENGINE_TIMES,
    ENGINE_TOKENS,
    HISTOGRAMS,
    LATER,
    MAX_MEMORY_BYTES,
    MAX_POWER_MW,
    MEMORY_SOURCE,
    PER_REQUEST_TPOT,
    POWER_LIMITS,
    POWER_SOURCE,
    STORED_GAUGES,
    TENANT_LABELS,
    TENANT_TOKENS,
    DeviceMetric,
    EngineMetric,
    Plausible,
    RollUp,
    rolled,
)
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


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure that gates and alerts may compare with a limit, and that exporters expose."""

    unit: str
    meaning: str
    kinds: tuple[str, ...]
    """What it is known of: `fleet`, `service`, `model`, `host`, `owner`."""


MIN_STUCK_S = 300
"""Time without a token after which an engine with requests counts as stuck (judgement)."""
_SERVED = ("fleet", "service", "model")
_OWNED = (*_SERVED, "owner")
FIGURES: Mapping[str, FigureSpec] = {
    "usd_per_mtok": FigureSpec("USD/Mtok", "allocated dollars per million prompt and generated tokens", _OWNED),
    "usd_per_generated_mtok": FigureSpec("USD/Mtok", "allocated dollars per million generated tokens", _OWNED),
    "usd_per_1000_requests": FigureSpec("USD/1000", "allocated dollars per 1,000 requests that ended", _OWNED),
    "usd_per_good_mtok": FigureSpec(
        "USD/Mtok", "allocated dollars per million tokens of requests within the SLO, at most", _SERVED
    ),
    "usd": FigureSpec("USD", "dollars of the window", _OWNED),
    "usd_per_hour": FigureSpec("USD/h", "what the devices cost now", _SERVED),
    "idle_usd": FigureSpec("USD", "dollars of the window for which nothing ran", _OWNED),
    "idle_share": FigureSpec("ratio", "share of the dollars for which nothing ran", _OWNED),
    "tokens": FigureSpec("tokens", "prompt (cached included) and generated tokens of the window", _OWNED),
    "generated_tok_s": FigureSpec("tokens/s", "tokens generated now", _SERVED),
    "power_w": FigureSpec("W", "power drawn now", _SERVED),
    "ttft_p95_ms": FigureSpec("ms", "p95 time to first token, of the slowest deployment", ("service", "model")),
    "tpot_p50_ms": FigureSpec("ms", "median time per output token, of the slowest deployment", ("service", "model")),
    "slo_ratio": FigureSpec(
        "ratio", "worst latency over its objective: above 1 the SLO is missed", ("service", "model")
    ),
    "waiting": FigureSpec("requests", "requests queued now", ("service", "model")),
    "stuck": FigureSpec("engines", "engines with requests that generated nothing for five minutes", _SERVED),
    "stale_s": FigureSpec("s", "age of the newest row of a host; of the fleet the oldest", ("fleet", "host")),
    "telemetry_lost": FigureSpec(
        "hosts",
        "hosts that stopped reporting in the last week, or with an engine that cannot be read now",
        ("fleet", "host"),
    ),
    "price_lost": FigureSpec("devices", "devices that had a price in the last week and have none now", ("fleet",)),
    "budget_share": FigureSpec("ratio", "spend of this month over the budget", ("fleet", "owner")),
    "budget_expected_share": FigureSpec("ratio", "likely spend of this month over the budget", ("fleet", "owner")),
    "bankable_usd_per_month": FigureSpec("USD", "bankable dollars of open advice", ("fleet",)),
    "regressions": FigureSpec(
        "changes", "changes after which a token costs more, by verdicts passed in the window", ("fleet",)
    ),
    "output_changes": FigureSpec(
        "changes", "changes after which outputs are not what they were, by verdicts passed in the window", ("fleet",)
    ),
}
"""Figures by name. Those of a window are of the window that a command or an alert looks at."""


class HeadlineSpec(NamedTuple):
    """A price that screens and reports can have at their head."""

    name: str
    figure: str
    """Name in `FIGURES`, which gates and alerts use whatever the headline is."""
    caption: str
    unit: str


HEADLINES: Mapping[str, HeadlineSpec] = {
    spec.name: spec
    for spec in (
        HeadlineSpec("blended", "usd_per_mtok", "$/Mtok", "Mtok"),
        HeadlineSpec("generated", "usd_per_generated_mtok", "$/gen Mtok", "generated Mtok"),
        HeadlineSpec("per_request", "usd_per_1000_requests", "$/1k req", "1,000 requests"),
        HeadlineSpec("good", "usd_per_good_mtok", "$/good Mtok", "good Mtok"),
    )
}
"""Headlines by their name in the settings."""


def label_of(name: str) -> str:
    """Return what people call a stored metric or an evidence series; any other name in words."""
    return _LABELS.get(name) or name.replace("_", " ")


_LABELS = (
    {metric.reading: metric.label for metric in DEVICE}
    | {name: metric.label for table in ENGINE for name, metric in table.items()}
    | {name: spec.label for name, spec in SERIES.items()}
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
