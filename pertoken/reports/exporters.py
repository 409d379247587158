"""Dollars for other tools: a metrics page, and the price maps of gateways.

Front door: `Dollars` (metrics page) and `price_map`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from pertoken.config import Settings
from pertoken.costs.bill import bill
from pertoken.costs.fleet import objectives
from pertoken.costs.ledger import token_weights
from pertoken.costs.month import RecentMonths
from pertoken.costs.report.figures import POOLING, EnergyTerms, ModelFigures, model_figures
from pertoken.errors import StoreError
from pertoken.exposition import Family, text_of
from pertoken.metrics import FIGURES, HEADLINES
from pertoken.reports.gates import Figures, Values
from pertoken.store.connect.location import StoreLocation
from pertoken.store.connect.open import Store, open_store
from pertoken.units import MTOK, NANO_USD
from pertoken.window.reading import fault_counts

Samples = Sequence[tuple[Mapping[str, str], float]]
WINDOW_S = 3600
"""Window of the fleet screen, so that both show the same figures."""
KEPT_S = 55.0
ENERGY_KEPT_S = 600.0
"""Energy is read from each minute of each device."""
ENERGY: Mapping[str, tuple[str, str]] = {
    "pertoken_model_window_kwh": ("kwh", "energy of the servers of a model at their plugs, times PUE"),
    "pertoken_model_joules_per_token": ("j_per_token", "that energy per prompt and generated token"),
    "pertoken_model_window_co2e_kg": ("co2e_kg", "kilograms of CO2 equivalent, by energy.grid"),
}
"""Metrics of energy -> the figure of `ServerEnergy`, and its meaning."""
HEADLINE = "pertoken_headline_usd"
NAMES: Mapping[str, str] = {
    "usd_per_mtok": "pertoken_usd_per_mtok",
    "usd_per_generated_mtok": "pertoken_usd_per_generated_mtok",
    "usd_per_1000_requests": "pertoken_usd_per_1000_requests",
    "usd_per_good_mtok": "pertoken_usd_per_good_mtok",
    "usd": "pertoken_window_usd",
    "usd_per_hour": "pertoken_usd_per_hour",
    "idle_usd": "pertoken_window_idle_usd",
    "idle_share": "pertoken_idle_usd_ratio",
    "slo_ratio": "pertoken_slo_ratio",
    "stuck": "pertoken_stuck_engines",
    "stale_s": "pertoken_host_age_seconds",
    "telemetry_lost": "pertoken_telemetry_lost_hosts",
    "price_lost": "pertoken_price_lost_devices",
    "budget_share": "pertoken_budget_spent_ratio",
    "budget_expected_share": "pertoken_budget_expected_ratio",
    "bankable_usd_per_month": "pertoken_bankable_usd_per_month",
    "regressions": "pertoken_window_regressions",
    "output_changes": "pertoken_window_output_changes",
}
"""Figures of `metrics.FIGURES` -> metrics. An unknown figure has no sample, never 0."""


class Dollars:
    """The metrics page of the advisor service."""

    def __init__(
        self,
        where: StoreLocation,
        settings: Settings,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where, self._settings, self._now, self._monotonic = where, settings, clock, monotonic
        self._lock = threading.Lock()
        self._months = RecentMonths()
        self._cached: tuple[float, list[Family]] | None = None
        self._energy: tuple[float, list[Family]] | None = None

    def families(self) -> list[Family]:
        """Return the metrics; if the database cannot be read, only the one that shows this."""
        with self._lock:
            if self._cached is None or self._monotonic() - self._cached[0] > KEPT_S:
                self._cached = self._monotonic(), self._read()
            return self._cached[1]

    def page(self) -> str:
        """Return the metrics page."""
        return text_of(self.families())

    def _read(self) -> list[Family]:
        try:
            store, now_ts = open_store(self._where), int(self._now())
            figures = Figures(store, self._settings, WINDOW_S, now_ts, months=self._months)
            return [
                *_families(figures, self._settings.headline),
                *self._energy_families(store, now_ts),
                _faults(fault_counts(store, now_ts - WINDOW_S, now_ts)),
                _up(True),
            ]
        except StoreError:
            return [_up(False)]

    def _energy_families(self, store: Store, now_ts: int) -> list[Family]:
        if self._energy is None or self._monotonic() - self._energy[0] > ENERGY_KEPT_S:
            slo_of, terms = partial(objectives, settings=self._settings), EnergyTerms.of(self._settings)
            with bill(store, now_ts - WINDOW_S, now_ts) as priced:
                models = model_figures(priced, priced.window.energy(), slo_of, terms)
            self._energy = self._monotonic(), list(_energy_of(models))
        return self._energy[1]


def _energy_of(models: Sequence[ModelFigures]) -> Iterator[Family]:
    for name, (figure, meaning) in ENERGY.items():
        values = [(model, getattr(model.server, figure).value) for model in models]
        samples: Samples = [
            ({"model": model.model, "kind": model.kind}, value) for model, value in values if value is not None
        ]
        yield Family(name, "gauge", _help(meaning), samples)


def _families(figures: Figures, headline: str) -> list[Family]:
    families = []
    for figure, name in NAMES.items():
        for kind in ("fleet", "service", "host"):
            if kind in FIGURES[figure].kinds:
                # The fleet's metrics have another name, so that a sum over services never includes them.
                metric = _name_of("fleet", name) if kind == "fleet" else name
                families.append(_gauge(metric, figure, _samples(figures.of(figure, kind), kind)))
    return [*families, *_owner_families(figures), _headline(figures, headline)]


def _owner_families(figures: Figures) -> Iterator[Family]:
    """Yield the figures of owners, with the basis by which they are: sums over owners are of one basis."""
    for figure, name in NAMES.items():
        if "owner" in FIGURES[figure].kinds:
            by_basis = (_samples(figures.of(figure, basis), "owner", basis=basis) for basis in figures.bases)
            yield _gauge(_name_of("owner", name), figure, [*chain.from_iterable(by_basis)])


def _gauge(name: str, figure: str, samples: Samples) -> Family:
    return Family(name, "gauge", _help(FIGURES[figure].meaning), samples)


def _samples(values: Values, kind: str, **labels: str) -> Samples:
    """Return the known values with a label for their target; the fleet has no name."""
    return [
        ({**labels, **({kind: target} if target else {})}, figure.value)
        for target, figure in sorted(values.items())
        if figure.value is not None
    ]


def _name_of(kind: str, name: str) -> str:
    return name.replace("pertoken_", f"pertoken_{kind}_", 1)


def _headline(figures: Figures, headline: str) -> Family:
    """Return the headline of the screens, of the fleet and of each service, with the figure that it is."""
    spec = HEADLINES[headline]
    values = {"": figures.of(spec.figure, "fleet")[""], **figures.of(spec.figure, "service")}
    samples = _samples(values, "service", headline=headline, figure=spec.figure)
    return Family(HEADLINE, "gauge", _help(f"the headline of the screens, in {FIGURES[spec.figure].unit}"), samples)


def known_dollars() -> list[Family]:
    """Return every metric that the page may have, without samples."""
    fleet = [_name_of("fleet", name) for figure, name in NAMES.items() if "fleet" in FIGURES[figure].kinds]
    named = [name for figure, name in NAMES.items() if {"service", "host"} & set(FIGURES[figure].kinds)]
    owned = [_name_of("owner", name) for figure, name in NAMES.items() if "owner" in FIGURES[figure].kinds]
    names = (*fleet, *named, *owned, *ENERGY, HEADLINE, "pertoken_row_faults", "pertoken_store_readable")
    return [Family(name, "gauge", name.replace("_", " "), []) for name in names]


def _help(meaning: str) -> str:
    return f"{meaning[0].upper()}{meaning[1:]}; windows are of {WINDOW_S // 60} minutes."


def _faults(counts: Mapping[str, int]) -> Family:
    meaning = "Kinds of stored values that are not used as they came, by the host that stored them."
    return Family("pertoken_row_faults", "gauge", meaning, [({"host": host}, n) for host, n in sorted(counts.items())])


def _up(readable: bool) -> Family:
    return Family("pertoken_store_readable", "gauge", "Whether the database can be read.", [({}, float(readable))])


LITELLM, LANGFUSE = "litellm", "langfuse"
DIGITS = 6
GTOK = 10**9
"""Tokens to which `TokenWeights` refer."""
LANGFUSE_CACHED = ("input_cached_tokens", "input_cache_read")
"""Usage types by which its integrations report cached tokens, apart from `input`."""


def price_map(kind: str, figures: Sequence[ModelFigures], as_of: str, provider: str = "openai") -> object:
    """Return the map of a tool as values for JSON. `as_of`: ISO 8601. Raises KeyError for another tool."""
    prices = [_prices_of(model) for model in figures if model.usd_per_mtok.value is not None]
    return {LITELLM: _litellm, LANGFUSE: _langfuse}[kind](prices, as_of, provider)


def unknown(figures: Sequence[ModelFigures]) -> list[str]:
    """Return a sentence for each model that has no price."""
    return [f"{model.model}: {model.usd_per_mtok.reason}" for model in figures if model.usd_per_mtok.value is None]


class _Prices(NamedTuple):
    """USD per token of one model."""

    model: str
    pooling: bool
    computed: float
    cached: float | None
    """None: no token was cached, or its engine does not count them."""
    generated: float


def _prices_of(figures: ModelFigures) -> _Prices:
    blended, pooling = (figures.usd_per_mtok.value or 0.0) / MTOK, figures.kind == POOLING
    prompt, cached, generated = figures.counts
    weights = token_weights(
        figures.kinds, {"prompt_tokens": prompt, "cached_tokens": cached, "generated_tokens": generated}
    )
    if pooling or isinstance(weights, str) or figures.kinds is None:
        return _Prices(figures.model, pooling, _digits(blended), None, 0.0 if pooling else _digits(blended))
    scale = figures.kinds.total / (figures.kinds.busy - figures.kinds.unsplit) / NANO_USD / GTOK
    computed, of_cached, of_generated, _ = (_digits(weight * scale) for weight in weights)
    return _Prices(figures.model, False, computed, of_cached if cached else None, of_generated)


def _digits(usd: float) -> float:
    return float(f"{usd:.{DIGITS}g}")


def _litellm(prices: Sequence[_Prices], as_of: str, provider: str) -> dict[str, object]:
    return {
        price.model: {
            "litellm_provider": provider,
            "mode": "embedding" if price.pooling else "chat",
            "input_cost_per_token": price.computed,
            **({} if price.cached is None else {"cache_read_input_token_cost": price.cached}),
            "output_cost_per_token": price.generated,
            "metadata": {"source": "measured by pertoken", "as_of": as_of},
        }
        for price in prices
    }


def _langfuse(prices: Sequence[_Prices], as_of: str, provider: str) -> list[dict[str, object]]:
    return [
        {
            "modelName": price.model,
            "matchPattern": f"(?i)^({re.escape(price.model)})$",
            "startDate": as_of,
            "unit": "TOKENS",
            **_langfuse_prices(price),
        }
        for price in prices
    ]


def _langfuse_prices(price: _Prices) -> dict[str, object]:
    """Return the prices of a model: flat ones, or one tier where cached tokens have a price of their own."""
    if price.cached is None:
        return {"inputPrice": price.computed, "outputPrice": price.generated}
    prices = {"input": price.computed, **dict.fromkeys(LANGFUSE_CACHED, price.cached), "output": price.generated}
    tier = {"name": "Standard", "isDefault": True, "priority": 0, "conditions": [], "prices": prices}
    return {"pricingTiers": [tier]}
