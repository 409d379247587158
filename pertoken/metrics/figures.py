"""Figures that gates and alerts compare with a limit, and that exporters expose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


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
