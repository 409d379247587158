"""Energy and carbon of the servers behind a model, at their plugs and with their facility.

Carbon is by SCI for AI of the Green Software Foundation: (energy x intensity of the grid + embodied) per token.
"""

from dataclasses import dataclass
from typing import Self

from pertoken.config import Settings
from pertoken.costs.report.figure import Figure, per
from pertoken.settings.fleet import Grid
from pertoken.units import MTOK
from pertoken.window.energy import EpochEnergy

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
    grid: Grid | None = None
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
