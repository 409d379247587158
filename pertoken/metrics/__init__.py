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

from pertoken.metrics.device import DEVICE as DEVICE
from pertoken.metrics.device import DEVICE_COLUMNS as DEVICE_COLUMNS
from pertoken.metrics.device import ENGINE as ENGINE
from pertoken.metrics.device import ENGINE_COUNTERS as ENGINE_COUNTERS
from pertoken.metrics.device import ENGINE_GAUGES as ENGINE_GAUGES
from pertoken.metrics.device import ENGINE_TIMES as ENGINE_TIMES
from pertoken.metrics.device import ENGINE_TOKENS as ENGINE_TOKENS
from pertoken.metrics.device import HISTOGRAMS as HISTOGRAMS
from pertoken.metrics.device import LATER as LATER
from pertoken.metrics.device import MAX_MEMORY_BYTES as MAX_MEMORY_BYTES
from pertoken.metrics.device import MAX_POWER_MW as MAX_POWER_MW
from pertoken.metrics.device import MEMORY_SOURCE as MEMORY_SOURCE
from pertoken.metrics.device import PER_REQUEST_TPOT as PER_REQUEST_TPOT
from pertoken.metrics.device import POWER_LIMITS as POWER_LIMITS
from pertoken.metrics.device import POWER_SOURCE as POWER_SOURCE
from pertoken.metrics.device import STORED_GAUGES as STORED_GAUGES
from pertoken.metrics.device import TENANT_LABELS as TENANT_LABELS
from pertoken.metrics.device import TENANT_TOKENS as TENANT_TOKENS
from pertoken.metrics.device import DeviceMetric as DeviceMetric
from pertoken.metrics.device import EngineMetric as EngineMetric
from pertoken.metrics.device import Plausible as Plausible
from pertoken.metrics.device import RollUp as RollUp
from pertoken.metrics.device import rolled as rolled
from pertoken.metrics.series import ENDED as ENDED
from pertoken.metrics.series import FINISH_REASONS as FINISH_REASONS
from pertoken.metrics.series import GFLOP_PER_BUSY_S as GFLOP_PER_BUSY_S
from pertoken.metrics.series import MB_PER_BUSY_S as MB_PER_BUSY_S
from pertoken.metrics.series import PREFIX_HIT_RATE as PREFIX_HIT_RATE
from pertoken.metrics.series import SERIES as SERIES
from pertoken.metrics.series import SPEC_ACCEPTANCE_LENGTH as SPEC_ACCEPTANCE_LENGTH
from pertoken.metrics.series import SPEC_ACCEPTANCE_RATE as SPEC_ACCEPTANCE_RATE


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure that gates and alerts may compare with a limit, and that exporters expose."""

    unit: str
    meaning: str
    kinds: tuple[str, ...]
    """Its subjects: `fleet`, `service`, `model`, `host`, `owner`."""


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
    """Return the label of a stored metric or an evidence series; any other name in words."""
    return _LABELS.get(name) or name.replace("_", " ")


_LABELS = (
    {metric.reading: metric.label for metric in DEVICE}
    | {name: metric.label for table in ENGINE for name, metric in table.items()}
    | {name: spec.label for name, spec in SERIES.items()}
)
