from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pertoken.config import Settings
from pertoken.costs import month
from pertoken.costs.report.fleet_report import fleet_report
from pertoken.exposition import MetricsServer
from pertoken.reports.exporters import WINDOW_S, Dollars, known_dollars
from pertoken.settings.fleet import GridCarbon
from pertoken.store.connect.location import locate
from pertoken.store.connect.open import open_store
from tests.browser import wait_for
from tests.promtool import PROMETHEUS, PROMTOOL, complaints, scraping
from tests.reports.builders import END, recorded
from tests.scenario import LOW_BATCH_70B, seed


def dollars(tmp_path: Path) -> Dollars:
    return Dollars(recorded(tmp_path / "db"), Settings(), clock=lambda: END)


def values(page: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(page) for sample in family.samples}


def test_dollars_are_those_of_the_screens(tmp_path: Path) -> None:
    page = dollars(tmp_path)
    exposed, report = values(page.page()), fleet_report(open_store(locate(str(tmp_path / "db"))), WINDOW_S, END)
    assert report.nano_usd_per_mtok is not None and report.bill is not None
    assert exposed["pertoken_fleet_usd_per_mtok"] == report.nano_usd_per_mtok / 1e9 == exposed["pertoken_usd_per_mtok"]
    assert exposed["pertoken_fleet_window_usd"] == report.bill.paid / 1e9 and exposed["pertoken_store_readable"] == 1
    assert "pertoken_fleet_budget_spent_ratio" not in exposed, "what is not known has no sample"
    assert page.families() is page.families(), "one reading a minute"
    assert {family.name for family in page.families()} == {family.name for family in known_dollars()}


def test_dollars_of_owners_have_their_basis(tmp_path: Path) -> None:
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "label:team": 'a "b"', "job": "7"})
    where = seed(tmp_path / "db", owned, gpus=3, usd_per_hour=6.88, minutes=60, end_ts=END)
    families = {family.name: family for family in Dollars(where, Settings(), clock=lambda: END).families()}
    samples = families["pertoken_owner_window_usd"].samples
    labels = [{"basis": "job", "owner": "7"}, {"basis": "label:team", "owner": 'a "b"'}]
    assert [dict(label) for label, _ in samples] == labels
    assert [value for _, value in samples] == [pytest.approx(13.76)] * 2


def test_budgets_of_owners_are_read_once_an_hour_and_other_figures_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "job": "7"})
    where = seed(tmp_path / "db", owned, gpus=3, usd_per_hour=6.88, minutes=60, end_ts=END)
    settings = Settings(budget_usd_per_month=100.0, budget_owners=(("job=7", 50.0),))
    read: list[str] = []

    def counted(name: str) -> None:
        own = getattr(month, name)

        def reads(*arguments: object, **options: object) -> object:
            read.append(name)
            return own(*arguments, **options)

        monkeypatch.setattr(month, name, reads)

    counted("month_spend")
    counted("spend_by_owner")
    now = [END]
    page = Dollars(where, settings, clock=lambda: now[0], monotonic=lambda: now[0])
    for minute in range(0, 60, 20):
        now[0] = END + 60 * minute
        exposed = values(page.page())
        assert exposed["pertoken_owner_budget_spent_ratio"] == pytest.approx(2 * 6.88 / 50)
        assert exposed["pertoken_fleet_budget_spent_ratio"] == pytest.approx(3 * 6.88 / 100)
    assert sorted(read) == ["month_spend", "spend_by_owner"]
    now[0] = END + 3600
    page.page()
    assert len(read) == 4


def test_energy_and_carbon_of_models_are_those_of_costs(tmp_path: Path) -> None:
    metered = replace(LOW_BATCH_70B, metered=True, plug_w=2000.0)
    where = seed(tmp_path / "db", metered, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END)
    grid = GridCarbon(400.0, "Ember", "2025-01-23")
    exposed = values(Dollars(where, Settings(energy_pue=1.5, energy_grid=grid), clock=lambda: END).page())
    assert exposed["pertoken_model_window_kwh"] == pytest.approx(3)
    assert exposed["pertoken_model_window_co2e_kg"] == pytest.approx(1.2)
    assert exposed["pertoken_model_joules_per_token"] == pytest.approx(3 * 3.6e6 / (200 * 3600))
    unknown = values(Dollars(where, Settings(), clock=lambda: END).page())
    assert "pertoken_model_window_kwh" in unknown and "pertoken_model_window_co2e_kg" not in unknown


def test_without_a_database_only_its_absence_is_exposed(tmp_path: Path) -> None:
    assert values(Dollars(locate(str(tmp_path)), Settings()).page()) == {"pertoken_store_readable": 0}


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool (Debian: prometheus)")
def test_promtool_finds_nothing_to_complain_of(tmp_path: Path) -> None:
    assert complaints(dollars(tmp_path).page()) == ""


@pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus (Debian: prometheus)")
def test_a_real_prometheus_scrapes_the_same_dollars(tmp_path: Path) -> None:
    page, token = dollars(tmp_path), tmp_path / "token"
    token.write_text("s3cret\n")
    server = MetricsServer(("127.0.0.1", 0), page.page, token_file=str(token))
    server.start()
    try:
        with scraping(tmp_path, {"advisor": server.port}, token) as prometheus:
            wait_for(lambda: bool(prometheus.values("pertoken_fleet_usd_per_mtok")), "Prometheus to scrape")
            (scraped,) = prometheus.values("pertoken_fleet_usd_per_mtok")
            assert scraped == values(page.page())["pertoken_fleet_usd_per_mtok"]
    finally:
        server.stop()
