"""Energy and carbon of servers, by hand."""

import pytest

from pertoken.costs.report.figures import NO_ENERGY, NO_GRID, EnergyTerms, server_energy
from pertoken.costs.report.lines import Figure
from pertoken.provenance import Provenance
from pertoken.settings.fleet import GridCarbon
from pertoken.window.energy import EpochEnergy, NodeEnergy

HOUR_MS = 3_600_000
NODE = NodeEnergy(7.2e6, HOUR_MS, 1.8e6, 5.4e6, 0.9e6)
ENERGY = EpochEnergy(3.6e6, HOUR_MS, HOUR_MS, Provenance.COUNTER, NODE)
GRID = GridCarbon(400.0, "Ember", "2025-01-23")
TOKENS = Figure(2e6)


def test_pue_multiplies_the_energy_at_the_plug() -> None:
    energy = server_energy(ENERGY, TOKENS, "none", EnergyTerms(pue=1.5))
    assert energy.kwh.value == pytest.approx(2 * 1.5) and energy.above_idle_kwh.value == pytest.approx(0.5 * 1.5)
    assert energy.j_per_token.value == pytest.approx(7.2e6 * 1.5 / 2e6)
    assert energy.at_plug.value == pytest.approx(0.75) and energy.modelled.value == pytest.approx(0.125)


def test_carbon_is_operational_and_embodied_per_token() -> None:
    energy = server_energy(ENERGY, TOKENS, "none", EnergyTerms(1.5, GRID, embodied_g_per_hour=30.0))
    assert energy.co2e_kg.value == pytest.approx((3 * 400 + 30) / 1000)
    assert energy.co2e_g_per_mtok.value == pytest.approx((3 * 400 + 30) / 2)
    without = server_energy(ENERGY, TOKENS, "none", EnergyTerms())
    assert without.co2e_kg == without.co2e_g_per_mtok == Figure(None, NO_GRID)


def test_time_in_which_the_energy_is_unknown_draws_as_much_as_the_rest_up_to_half() -> None:
    half = EpochEnergy(3.6e6, HOUR_MS, 2 * HOUR_MS, Provenance.COUNTER, NODE)
    assert server_energy(half, TOKENS, "none", EnergyTerms()).kwh.value == pytest.approx(4)
    little = EpochEnergy(3.6e6, HOUR_MS, 2.1 * HOUR_MS, Provenance.COUNTER, NODE)
    for energy in (little, None, EpochEnergy(0.0, 0.0, 0.0, Provenance.COUNTER)):
        assert server_energy(energy, TOKENS, "none", EnergyTerms(1.0, GRID)).co2e_kg == Figure(None, NO_ENERGY)


def test_a_model_without_tokens_has_energy_and_no_figure_per_token() -> None:
    energy = server_energy(ENERGY, Figure(0), "no token was served", EnergyTerms(1.0, GRID))
    assert energy.kwh.value == pytest.approx(2)
    assert energy.j_per_token.reason == energy.co2e_g_per_mtok.reason == "no token was served"
