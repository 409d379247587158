from dataclasses import replace

from pertoken.costs.ledger import KindDollars, KindPrice, TokenCounts
from pertoken.costs.report.figures import GENERATION, POOLING, EnergyTerms, ModelFigures, ServerEnergy
from pertoken.costs.report.lines import Figure, GoodShare
from pertoken.settings.fleet import GridCarbon
from pertoken.text.billing import figures_text

CHAT = ModelFigures(
    model="llama-70b",
    kind=GENERATION,
    deployments=1,
    usd=Figure(12.0),
    tokens=Figure(2e6),
    requests=Figure(4000),
    usd_per_mtok=Figure(6.0),
    usd_per_generated_mtok=Figure(20.0),
    usd_per_goodput_mtok=Figure(7.0),
    usd_per_goodput_mtok_high=Figure(8.0),
    good_share=GoodShare(0.75, 0.86),
    tokens_per_usd=Figure(166_667),
    usd_per_1000_requests=Figure(3.0),
    j_per_token=Figure(0.5),
    kwh=Figure(None, "not measured"),
    idle_usd=Figure(4.8),
    prefill_usd_per_mtok=KindPrice(2.0, 1.0, 3.0),
    cached_usd_per_mtok=KindPrice(None, reason="its engine counts no cached tokens"),
    decode_usd_per_mtok=KindPrice(9.0, 9.0, 9.0),
    usd_per_mtok_at_full_use=Figure(3.6),
    kinds=KindDollars(1, 2, 3, 4, 5),
    counts=TokenCounts(1, None, 1),
    server=ServerEnergy(
        kwh=Figure(3.25),
        above_idle_kwh=Figure(1.5),
        j_per_token=Figure(5.85),
        co2e_kg=Figure(1.18),
        co2e_g_per_mtok=Figure(590.0),
        at_plug=Figure(0.75),
        modelled=Figure(0.25),
    ),
)
GRID = GridCarbon(363.0, "Ember, Germany in 2024", "2025-01-23")


def test_energy_of_servers_has_its_sources_and_carbon_its_grid() -> None:
    text = figures_text([CHAT], None, EnergyTerms(1.3, GRID, 25.0))
    assert "Energy of the servers" in text and "times PUE 1.3" in text
    assert "3.25" in text and "590" in text and "75%" in text and "25%" in text
    assert "363 g/kWh (Ember, Germany in 2024," in text and "25 g an hour of each device" in text
    without = figures_text([CHAT], None)
    assert "CO2e" not in without and "Carbon needs energy.grid" in without


def test_dollars_by_kind_of_token_have_their_bounds_where_requests_overlap() -> None:
    text = figures_text([CHAT], None)
    assert "computed prompt" in text and "$2.00 ($1.00–$3.00)" in text and " $9.00 " in text and "$3.60" in text
    assert "llama-70b: $/cached prompt Mtok: its engine counts no cached tokens" in text


def test_figures_are_one_line_a_model_and_unknown_ones_have_their_reason() -> None:
    text = figures_text([CHAT], None)
    assert "llama-70b   $6.00  $7.00–$8.00      167k     $3.00      0.5    –   $4.80" in text
    assert "  llama-70b: kWh: not measured" in text
    assert max(map(len, figures_text([CHAT], 80).splitlines())) <= 80
    assert figures_text([], 80) == "No model was served in this time.\n"


def test_a_share_that_may_be_nothing_leaves_the_high_end_open_and_pooling_models_are_named_so() -> None:
    assert "≥ $7.00" in figures_text([replace(CHAT, usd_per_goodput_mtok_high=Figure(None, "none"))], None)
    assert "llama-70b (prompt tokens)" in figures_text([replace(CHAT, kind=POOLING)], None)
    assert "embed or rank" in figures_text([replace(CHAT, kind=POOLING)], None)
    assert "embed or rank" not in figures_text([CHAT], None)
