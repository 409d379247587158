"""Figures beside dollars per Mtok, worked out by hand of seeded hosts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pertoken.costs.bill import bill
from pertoken.costs.ledger import NO_PRICE, NO_TIMES
from pertoken.costs.report.figures import (
    GENERATION,
    NO_ENERGY,
    POOLING,
    EnergyTerms,
    ModelFigures,
    figures_of,
    model_figures,
)
from pertoken.costs.report.figures import plain as plain_figures
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.provenance import Provenance
from pertoken.settings.fleet import GridCarbon
from pertoken.state.service import Slo
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import Store, open_store
from pertoken.window.energy import EpochEnergy
from tests.scenario import LOW_BATCH_70B, seed

END = 1_790_000_040 // 3600 * 3600 + 3600
EMBEDDING = replace(LOW_BATCH_70B, model="BAAI/bge-m3", generated_tok_s=0.0, prompt_tok_s=5000.0)
SLO = Slo(ttft_p95_ms=250)


def plain(line: ModelFigures, terms: EnergyTerms = EnergyTerms()) -> Any:  # noqa: B008
    return json.loads(json.dumps(plain_figures(line, terms)))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("figures")
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    seed(folder, EMBEDDING, gpus=2, usd_per_hour=None, minutes=60, end_ts=END, host="gpu-2")
    return open_store(locate(str(folder)))


def figures(store: Store, kind: str) -> ModelFigures:
    (figures,) = (figures for figures in figures_of(store, 2, END, lambda _: SLO) if figures.kind == kind)
    return figures


def test_tokens_requests_and_idle_dollars_of_a_generating_model_by_hand(store: Store) -> None:
    line = figures(store, GENERATION)
    dollars, tokens, requests = 2 * 6.88, 200 * 3600, 60 * (60 * 40 // 400)
    assert line.usd.value == pytest.approx(dollars) and line.tokens.value == tokens
    assert line.tokens_per_usd.value == pytest.approx(tokens / dollars)
    assert line.usd_per_1000_requests.value == pytest.approx(dollars / requests * 1000)
    assert line.usd_per_generated_mtok.value == pytest.approx(dollars / (40 * 3600) * 1e6)
    assert line.idle_usd.value == pytest.approx(0.4 * dollars), "busy is 60 % of the time"


def test_each_kind_of_token_costs_the_device_time_that_it_took_and_idle_is_apart(tmp_path: Path) -> None:
    serving = replace(LOW_BATCH_70B, prefill=0.25, cached=0.75)
    seed(tmp_path, serving, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    (line,) = figures_of(open_store(locate(str(tmp_path))), 2, END, lambda _: SLO)
    dollars, busy = 2 * 6.88, 0.6 * 2 * 6.88
    prompt, generated = 160 * 3600, 40 * 3600
    computed, cached = prompt / 4, prompt * 3 / 4
    assert line.prefill_usd_per_mtok.value == pytest.approx(0.25 * busy / computed * 1e6)
    assert line.decode_usd_per_mtok[:3] == pytest.approx([0.75 * busy / generated * 1e6] * 3)
    # No time is left for cached tokens: they cost nothing beyond prefill, and at most as much as computed ones.
    assert line.cached_usd_per_mtok[:3] == pytest.approx((0, 0, 0.25 * busy / prompt * 1e6))
    assert line.prefill_usd_per_mtok.low == pytest.approx(0.25 * busy / prompt * 1e6)
    assert line.usd_per_mtok_at_full_use.value == pytest.approx(busy / (prompt + generated) * 1e6)
    assert line.kinds is not None and line.kinds.total == pytest.approx(dollars * 1e9)
    assert line.counts == (prompt, cached, generated)
    values = plain(line)
    assert sum(values["kinds"].values()) == pytest.approx(dollars)
    assert values["decode_usd_per_mtok"]["value"] == line.decode_usd_per_mtok.value
    assert values["counts"]["cached"] == cached


def test_kinds_are_unknown_with_the_reason_where_an_engine_counts_no_times(store: Store) -> None:
    line = figures(store, GENERATION)
    assert line.decode_usd_per_mtok == (None, None, None, NO_TIMES)
    assert plain(line)["unknown"]["prefill_usd_per_mtok"] == NO_TIMES
    pooling = figures(store, POOLING)
    assert pooling.prefill_usd_per_mtok.value == pytest.approx(0.6 * 2 * 6.88 / (5000 * 3600) * 1e6)


def test_dollars_per_goodput_mtok_need_an_slo_and_count_requests_within_it(store: Store) -> None:
    line = figures(store, GENERATION)
    assert (line.good_share.low, line.good_share.high) == (1, 1)
    assert line.usd_per_goodput_mtok == line.usd_per_goodput_mtok_high == line.usd_per_mtok
    (vague,) = (
        figures for figures in figures_of(store, 2, END, lambda _: Slo(ttft_p95_ms=200)) if figures.kind == GENERATION
    )
    assert vague.usd_per_goodput_mtok == line.usd_per_mtok and vague.usd_per_goodput_mtok_high.value is None
    (without,) = (figures for figures in figures_of(store, 2, END, lambda _: Slo()) if figures.kind == GENERATION)
    assert "no SLO is set" in (without.usd_per_goodput_mtok.reason or "")


def test_a_model_that_embeds_has_prompt_tokens_and_enters_no_figure_of_generation(store: Store) -> None:
    line = figures(store, POOLING)
    assert line.model == "BAAI/bge-m3" and line.tokens.value == 5000 * 3600
    assert line.usd_per_mtok.value == pytest.approx(2 * 6.88 / (5000 * 3600) * 1e6)
    assert line.usd_per_generated_mtok.value is None and line.usd_per_goodput_mtok.value is None
    report = fleet_report(store, 3600, END)
    assert report.nano_usd_per_mtok == pytest.approx(2 * 6.88 / (200 * 3600) * 1e6 * 1e9)
    assert [line.pooling for line in report.deployments] == [True, False]


def test_energy_is_that_of_the_measured_time_scaled_to_the_held_time_and_unknown_below_half(store: Store) -> None:
    with bill(store, END - 3600, END) as priced:

        def of(measured_ms: float) -> ModelFigures:
            energy = EpochEnergy(900_000.0, measured_ms, 100.0, Provenance.COUNTER)
            epochs = dict.fromkeys((epoch.epoch_id for epoch in priced.inventory.epochs), energy)
            (figures,) = (
                model_figure
                for model_figure in model_figures(priced, epochs, lambda _: SLO)
                if model_figure.kind == GENERATION
            )
            return figures

        assert of(100.0).kwh.value == pytest.approx(0.25)
        assert of(50.0).kwh.value == pytest.approx(0.5)
        assert of(100.0).j_per_token.value == pytest.approx(900_000 / (200 * 3600))
        assert of(49.0).kwh == of(49.0).j_per_token == (None, NO_ENERGY)


def test_energy_of_the_servers_is_measured_at_the_plug_or_modelled(tmp_path: Path) -> None:
    metered = replace(LOW_BATCH_70B, metered=True)
    seed(tmp_path / "model", metered, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    modelled = figures(open_store(locate(str(tmp_path / "model"))), GENERATION).server
    per_device_w = 0.37 * 700 + 1.095 * LOW_BATCH_70B.power_w
    assert modelled.kwh.value == pytest.approx(2 * per_device_w / 1000)
    assert (modelled.at_plug.value, modelled.modelled.value) == (0, 1)

    seed(tmp_path / "plug", replace(metered, plug_w=2000.0), gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    terms = EnergyTerms(1.5, GridCarbon(400.0, "Ember", "2025-01-23"), 100.0)
    (line,) = figures_of(open_store(locate(str(tmp_path / "plug"))), 2, END, lambda _: SLO, terms=terms)
    assert line.server.kwh.value == pytest.approx(2 * 1.5) and line.server.at_plug.value == 1
    assert line.server.co2e_kg.value == pytest.approx((3 * 400 + 2 * 100) / 1000), "of two devices for an hour"
    assert line.server.j_per_token.value == pytest.approx(3 * 3.6e6 / (200 * 3600))
    values = plain(line, terms)["server"]
    assert values["kwh"] == line.server.kwh.value
    assert values["terms"]["grid"] == {"g_per_kwh": 400.0, "source": "Ember", "as_of": "2025-01-23"}


def test_a_model_without_a_price_has_tokens_and_reasons(tmp_path: Path) -> None:
    seed(tmp_path, LOW_BATCH_70B, gpus=2, usd_per_hour=None, minutes=10, end_ts=END)
    (figures,) = figures_of(open_store(locate(str(tmp_path))), 1, END - 1, lambda _: SLO)
    assert figures.usd == figures.usd_per_mtok == figures.idle_usd == (None, NO_PRICE)
    assert figures.tokens.value is not None and figures.tokens_per_usd.reason == NO_PRICE
    values = plain(figures)
    assert values["usd"] is None and values["unknown"]["usd"] == NO_PRICE and values["good_share"]["high"] == 1
