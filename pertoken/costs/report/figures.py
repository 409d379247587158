"""Figures beside dollars per Mtok, by model: goodput, tokens per dollar, requests, energy and idle dollars."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import NamedTuple, Self

from pertoken.config import Settings
from pertoken.costs.bill import Bill, bill
from pertoken.costs.ledger import (
    KINDS,
    NO_PRICE,
    NO_TOKENS,
    KindDollars,
    KindPrice,
    ServedCost,
    TokenCounts,
    kind_prices,
)
from pertoken.costs.report.fleet_report import SloOf, epochs_with_workers, good_share_of, served
from pertoken.costs.report.lines import Figure, GoodShare, per
from pertoken.printable import natural_key
from pertoken.settings.fleet import GridCarbon
from pertoken.store.connect.open import Store
from pertoken.units import MTOK, NANO_USD, first_hour
from pertoken.window.energy import EpochEnergy
from pertoken.window.inventory import KnownEpoch

J_PER_KWH = 3.6e6
MS_PER_H = 3.6e6
MIN_SHARE = 0.5
"""Share of the held device time in which energy must be known; the rest is taken to draw as much."""
NO_ENERGY = "the energy of its devices was not measured"
NO_GRID = "no intensity of the grid is set: energy.grid"


@dataclass(frozen=True, slots=True)
class EnergyTerms:
    """Factors from energy at the plug to facility energy and carbon."""

    pue: float = 1.0
    grid: GridCarbon | None = None
    embodied_g_per_hour: float = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the terms that a person set."""
        return cls(settings.energy_pue, settings.energy_grid, settings.energy_embodied_g_per_hour)


NO_TERMS = EnergyTerms()


@dataclass(frozen=True, slots=True)
class ServerEnergy:
    """Energy of the servers of a model, by its share of their devices, times PUE."""

    kwh: Figure
    above_idle_kwh: Figure
    """Part above the idle level of its devices and their part of the servers."""
    j_per_token: Figure
    co2e_kg: Figure
    """Operational and, where it is set, embodied."""
    co2e_g_per_mtok: Figure
    at_plug: Figure
    """Share of `kwh` that was measured at the plug, 0 to 1."""
    modelled: Figure
    """Share of `kwh` of which the rest of the server was modelled. What is left has its CPUs alone: it is a minimum."""


def server_energy(energy: EpochEnergy | None, tokens: Figure, none_served: str, terms: EnergyTerms) -> ServerEnergy:
    """Return the figures of some epochs together; of `tokens` prompt (cached included) and generated."""
    node = None if energy is None else energy.node
    if energy is None or node is None or not energy.held_ms or node.known_ms < MIN_SHARE * energy.held_ms:
        unknown = Figure(None, NO_ENERGY)
        return ServerEnergy(*[unknown] * 7)
    factor = terms.pue * energy.held_ms / node.known_ms
    kwh = Figure(node.joules * factor / J_PER_KWH)
    carbon = _carbon_kg(kwh, energy.held_ms, terms)
    return ServerEnergy(
        kwh=kwh,
        above_idle_kwh=Figure(node.above_idle_joules * factor / J_PER_KWH),
        j_per_token=per(Figure(node.joules * factor), tokens, none_served),
        co2e_kg=carbon,
        co2e_g_per_mtok=per(carbon, per(tokens, Figure(1000 * MTOK), none_served), none_served),
        at_plug=per(Figure(node.measured_joules), Figure(node.joules), NO_ENERGY),
        modelled=per(Figure(node.modelled_joules), Figure(node.joules), NO_ENERGY),
    )


def _carbon_kg(kwh: Figure, held_ms: float, terms: EnergyTerms) -> Figure:
    if terms.grid is None or kwh.value is None:
        return Figure(None, NO_GRID)
    embodied_g = terms.embodied_g_per_hour * held_ms / MS_PER_H
    return Figure((kwh.value * terms.grid.g_per_kwh + embodied_g) / 1000)


GENERATION, POOLING = "generation", "embedding or rerank"
NONE_SERVED = "no token was served"
NO_REQUESTS = "its engine counts no ended requests"


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """One model over a window. Tokens are prompt (cached included) and generated; of a pooling model prompt alone."""

    model: str
    kind: str
    """`GENERATION` or `POOLING`. A model of both kinds has a value for each."""
    deployments: int
    usd: Figure
    tokens: Figure
    requests: Figure
    usd_per_mtok: Figure
    usd_per_generated_mtok: Figure
    usd_per_goodput_mtok: Figure
    """Per Mtok of requests inside the SLO: its low end."""
    usd_per_goodput_mtok_high: Figure
    good_share: GoodShare
    """Share of requests inside the SLO."""
    tokens_per_usd: Figure
    usd_per_1000_requests: Figure
    j_per_token: Figure
    kwh: Figure
    idle_usd: Figure
    prefill_usd_per_mtok: KindPrice
    """Of computed prompt tokens. Idle dollars are in none of the three."""
    cached_usd_per_mtok: KindPrice
    """Of cached prompt tokens: their lookup and transfer, as far as it is not within prefill."""
    decode_usd_per_mtok: KindPrice
    """Of generated tokens."""
    usd_per_mtok_at_full_use: Figure
    """Without idle dollars."""
    kinds: KindDollars | None
    """Dollars by kind, nano-USD; they sum to `usd`. None without a price."""
    counts: TokenCounts
    server: ServerEnergy
    """Energy and carbon of its servers; `kwh` and `j_per_token` are of its devices alone."""


class _DeploymentFigures(NamedTuple):
    """Figures of one deployment."""

    use: ServedCost
    idle_nano_usd: int
    energy: EpochEnergy | None
    good: GoodShare
    kinds: KindDollars | None
    cached_tokens: int | None


def model_figures(
    priced: Bill, energy: Mapping[int, EpochEnergy], slo_of: SloOf, terms: EnergyTerms = NO_TERMS
) -> tuple[ModelFigures, ...]:
    """Return the figures of every model in the window, dearest first.

    `energy`: of `Window.energy`. `slo_of`: objectives of a served model name. A figure of several deployments is known
    if it is known of each.
    """
    groups: dict[tuple[str, bool], list[_DeploymentFigures]] = defaultdict(list)
    for row in priced.inventory.newest.values():
        part = _part(priced, row, energy, slo_of)
        groups[row.served_model, part.use.pooling].append(part)
    lines = (_figures(model, pooling, parts, terms) for (model, pooling), parts in groups.items())
    return tuple(sorted(lines, key=lambda line: (-(line.usd.value or 0), natural_key(line.model), line.kind)))


def figures_of(
    store: Store,
    hours: int,
    now_ts: int,
    slo_of: SloOf,
    *,
    dated: bool = False,
    terms: EnergyTerms = NO_TERMS,
) -> tuple[ModelFigures, ...]:
    """Return the figures of the last hours of the clock, the one under way included.

    `dated`: `now_ts`, a whole minute, is in the past, and everything is as of then. Raises StoreError.
    """
    with bill(store, first_hour(hours, now_ts), now_ts, dated=dated) as priced, priced.pipelined():
        return model_figures(priced, priced.window.energy(), slo_of, terms)


def plain(figures: ModelFigures, terms: EnergyTerms = NO_TERMS) -> dict[str, object]:
    """Return the figures as plain values for JSON; an unknown one is None, with its reason in `unknown`."""
    value_by_name = {name: getattr(figures, name) for name in (field.name for field in fields(ModelFigures))}
    unknown = {
        name: figure.reason
        for name, figure in value_by_name.items()
        if isinstance(figure, Figure | GoodShare | KindPrice) and figure.reason
    }
    values = {name: figure.value if isinstance(figure, Figure) else figure for name, figure in value_by_name.items()}
    for name in KINDS:
        price = value_by_name[name]
        values[name] = {"value": price.value, "low": price.low, "high": price.high}
    server = {field.name: getattr(figures.server, field.name) for field in fields(ServerEnergy)}
    unknown |= {f"server.{name}": figure.reason for name, figure in server.items() if figure.reason}
    share, kinds = figures.good_share, figures.kinds
    dollars = None if kinds is None else {name: getattr(kinds, name) / NANO_USD for name in KindDollars.NAMES}
    return values | {
        "good_share": {"low": share.low, "high": share.high},
        "kinds": dollars,
        "counts": figures.counts._asdict(),
        "server": {name: figure.value for name, figure in server.items()} | {"terms": asdict(terms)},
        "unknown": unknown,
    }


def _part(priced: Bill, row: KnownEpoch, energy: Mapping[int, EpochEnergy], slo_of: SloOf) -> _DeploymentFigures:
    epochs = epochs_with_workers(priced, row.deployment_id)
    measured = [energy[epoch] for epoch in epochs if epoch in energy]
    together = measured[0] if measured else None
    for epoch_energy in measured[1:]:
        together = epoch_energy if together is None else together.plus(epoch_energy)
    return _DeploymentFigures(
        served(priced, row.deployment_id),
        sum(priced.money.idle_by_epoch.get(epoch, 0) for epoch in epochs),
        together,
        good_share_of(priced, row.deployment_id, slo_of),
        priced.kinds.get(row.deployment_id),
        priced.totals.of(row.deployment_id).get("cached_tokens"),
    )


def _figures(model: str, pooling: bool, parts: Sequence[_DeploymentFigures], terms: EnergyTerms) -> ModelFigures:
    usd = _sum([None if part.use.nano_usd is None else part.use.nano_usd / NANO_USD for part in parts], NO_PRICE)
    prompt = _sum([part.use.prompt_tokens for part in parts], NO_TOKENS)
    generated = _sum([part.use.generated_tokens for part in parts], NO_TOKENS)
    tokens = prompt if pooling else _plus(prompt, generated)
    requests = _sum([part.use.requests for part in parts], NO_REQUESTS)
    joules = _sum([_joules(part.energy) for part in parts], NO_ENERGY)
    good = GoodShare(None, None, "it generates nothing") if pooling else _together(parts)
    mtok = per(tokens, Figure(MTOK), NONE_SERVED)
    kinds = None if usd.value is None else sum((part.kinds or KindDollars() for part in parts), KindDollars())
    counts = TokenCounts(
        _total([part.use.prompt_tokens for part in parts]),
        0 if pooling else _total([part.cached_tokens for part in parts]),
        _total([part.use.generated_tokens for part in parts]),
    )
    return ModelFigures(
        model=model,
        kind=POOLING if pooling else GENERATION,
        deployments=len(parts),
        usd=usd,
        tokens=tokens,
        requests=requests,
        usd_per_mtok=per(usd, mtok, NONE_SERVED),
        usd_per_generated_mtok=Figure(None, "it generates nothing")
        if pooling
        else per(usd, per(generated, Figure(MTOK), NONE_SERVED), NONE_SERVED),
        usd_per_goodput_mtok=_good(usd, mtok, good.high, good.reason),
        usd_per_goodput_mtok_high=_good(usd, mtok, good.low, good.reason),
        good_share=good,
        tokens_per_usd=per(tokens, usd, "nothing was paid"),
        usd_per_1000_requests=per(usd, per(requests, Figure(1000), "no request ended"), "no request ended"),
        j_per_token=per(joules, tokens, NONE_SERVED),
        kwh=per(joules, Figure(J_PER_KWH), NO_ENERGY),
        idle_usd=usd if usd.value is None else Figure(sum(part.idle_nano_usd for part in parts) / NANO_USD),
        **kind_prices(kinds, counts),
        usd_per_mtok_at_full_use=per(usd if kinds is None else Figure(kinds.busy / NANO_USD), mtok, NONE_SERVED),
        kinds=kinds,
        counts=counts,
        server=server_energy(_energy(parts), tokens, NONE_SERVED, terms),
    )


def _energy(parts: Sequence[_DeploymentFigures]) -> EpochEnergy | None:
    """Return the energy of all parts; None if a part has none."""
    together = None
    for part in parts:
        if part.energy is None:
            return None
        together = part.energy if together is None else together.plus(part.energy)
    return together


def _total(counts: Sequence[int | None]) -> int | None:
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if len(known_counts) == len(counts) else None


def _joules(energy: EpochEnergy | None) -> float | None:
    """Return the energy of all the held time, that in which it was not measured drawing as much as the rest."""
    if energy is None or energy.measured_share < MIN_SHARE:
        return None
    return energy.joules / energy.measured_share


def _together(parts: Sequence[_DeploymentFigures]) -> GoodShare:
    """Return the share of requests of several deployments inside their SLO, each by its tokens."""
    reason = next((part.good.reason for part in parts if part.good.reason is not None), None)
    if reason is not None:
        return GoodShare(None, None, reason)
    weights = [(part.use.prompt_tokens or 0) + (part.use.generated_tokens or 0) for part in parts]
    if not sum(weights):
        return GoodShare(None, None, NONE_SERVED)
    low, high = (
        sum((share or 0.0) * weight for share, weight in zip(shares, weights, strict=True)) / sum(weights)
        for shares in ([part.good.low for part in parts], [part.good.high for part in parts])
    )
    return GoodShare(low, high)


def _good(usd: Figure, mtok: Figure, share: float | None, reason: str | None) -> Figure:
    if reason is not None:
        return Figure(None, reason)
    if mtok.value is None:
        return mtok
    return per(usd, Figure(mtok.value * (share or 0.0)), "no request is inside the SLO for certain")


def _sum(values: Sequence[float | None], reason: str) -> Figure:
    known_values = [value for value in values if value is not None]
    return Figure(sum(known_values)) if len(known_values) == len(values) else Figure(None, reason)


def _plus(first: Figure, second: Figure) -> Figure:
    if first.value is None or second.value is None:
        return Figure(None, first.reason or second.reason)
    return Figure(first.value + second.value)
