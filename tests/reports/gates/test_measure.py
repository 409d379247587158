from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.costs.report.lines import TroubleKind
from pertoken.metrics import FIGURES, HEADLINES
from pertoken.proof.troubles import troubles
from pertoken.reports.gates.measure import Figures
from pertoken.settings.fleet import ServiceSettings
from pertoken.state.service import Slo
from pertoken.store.connect.open import open_store
from tests.reports.builders import END, HOURS, store_of
from tests.scenario import LOW_BATCH_70B, seed

SETTINGS = Settings(
    services=(ServiceSettings("chat", (LOW_BATCH_70B.model,), ttft_p95_ms=100.0),), budget_usd_per_month=165.12
)


def figures(folder: Path, usd_per_hour: float | None = 6.88) -> Figures:
    return Figures(store_of(folder, usd_per_hour), SETTINGS, HOURS * 3600, END, dated=True)


def test_figures_of_the_fleet_and_of_a_service(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db")
    fleet = {name: measured.of(name, "fleet")[""].value for name, spec in FIGURES.items() if "fleet" in spec.kinds}
    assert fleet["usd"] == pytest.approx(82.56) and fleet["usd_per_mtok"] == pytest.approx(19.111111, abs=1e-5)
    assert fleet["idle_share"] == pytest.approx(0.7) and fleet["idle_usd"] == pytest.approx(57.792)
    assert fleet["tokens"] == 3600 * 200 * 3 and fleet["stuck"] == 0 and fleet["regressions"] == 0
    assert fleet["budget_share"] == pytest.approx(0.5)
    chat = {
        name: measured.of(name, "service")["chat"].value for name, spec in FIGURES.items() if "service" in spec.kinds
    }
    assert chat["usd"] == pytest.approx(41.28) and chat["idle_share"] == pytest.approx(0.4)
    assert chat["usd_per_generated_mtok"] == pytest.approx(95.5555, abs=1e-3)
    assert chat["usd_per_1000_requests"] == pytest.approx(38.2222, abs=1e-3)
    assert chat["usd_per_good_mtok"] is None, "no request is within 100 ms for certain"
    assert chat["slo_ratio"] is not None and chat["slo_ratio"] > 1
    (age,) = measured.of("stale_s", "host").values()
    assert age.value is not None and 0 <= age.value < 3600


def test_a_changed_headline_leaves_figures_of_gates_and_alerts_on_their_basis(tmp_path: Path) -> None:
    store = store_of(tmp_path / "db")
    by_headline = {
        name: Figures(store, replace(SETTINGS, headline=name), HOURS * 3600, END, dated=True) for name in HEADLINES
    }
    for figure in ("usd_per_mtok", "usd_per_generated_mtok", "usd_per_1000_requests", "budget_share"):
        assert len({figures.of(figure, "fleet")[""] for figures in by_headline.values()}) == 1, figure
    easy = Figures(store, Settings(slo_ttft_ms=10_000.0), HOURS * 3600, END, dated=True)
    good, blended = easy.of("usd_per_good_mtok", "fleet")[""], easy.of("usd_per_mtok", "fleet")[""]
    assert good.value == pytest.approx(blended.value)


def test_an_engine_that_stopped_is_lost_telemetry_of_its_host_and_not_stuck(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db")
    line = replace(measured.report.deployments[0], ended=False, running_now=3.0, generated_tok_s_now=0.0)
    line = replace(line, prompt_tok_s_now=0.0, silent_s=3600, spark=(0.0,) * 60, late=())
    hosts = tuple(replace(host, age_s=1) for host in measured.report.hosts)
    reporting = {host.name: 0.0 for host in hosts}
    for fault, lost in ((None, 0.0), ("connection refused", 1.0)):
        measured.report = replace(measured.report, hosts=hosts, deployments=(replace(line, fault=fault),))
        assert measured.of("stuck", "fleet")[""].value == measured.of("stuck", "model")[line.model].value == 1 - lost
        assert measured.of("telemetry_lost", "fleet")[""].value == lost
        values = {name: figure.value for name, figure in measured.of("telemetry_lost", "host").items()}
        assert values == {**reporting, line.host: lost}
        (trouble,) = troubles(measured.report, (), lambda _: Slo())
        assert trouble.kind is (TroubleKind.SILENT if fault else TroubleKind.STUCK)


def test_an_unmeasured_figure_has_its_reason(tmp_path: Path) -> None:
    measured = figures(tmp_path / "db", None)
    assert "no device has a price" in (measured.of("usd", "fleet")[""].reason or "")
    assert "no rule has run" in (measured.of("bankable_usd_per_month", "fleet")[""].reason or "")
    assert "not for a host" in (measured.of("usd", "host")[""].reason or "")
    other = Figures(store_of(tmp_path / "other"), Settings(), 3600, END, dated=True)
    assert "no budget is set" in (other.of("budget_share", "fleet")[""].reason or "")
    (slo,) = other.of("slo_ratio", "model").values()
    assert "no objective is set" in (slo.reason or "")


def test_figures_of_owners_are_the_dollars_and_tokens_of_their_deployments(tmp_path: Path) -> None:
    owned = replace(LOW_BATCH_70B, knobs={**LOW_BATCH_70B.knobs, "label:team": "search"})
    where = seed(tmp_path / "db", owned, gpus=3, usd_per_hour=6.88, minutes=60, end_ts=END)
    seed(where, LOW_BATCH_70B, gpus=2, usd_per_hour=6.88, minutes=60, end_ts=END, host="b")
    budgets = Settings(budget_owners=(("label:team=search", 27.52), ("label:team=ads", 1.0), ("namespace=prod", 1.0)))
    measured = Figures(open_store(where), budgets, 3600, END)
    assert measured.bases == ("label:team",)
    names = [name for name, spec in FIGURES.items() if "owner" in spec.kinds and not name.startswith("budget")]
    search, unowned = (
        {name: measured.of(name, "label:team")[owner].value for name in names} for owner in ("search", "no owner")
    )
    assert search == unowned and search["usd"] == pytest.approx(13.76) and search["tokens"] == 3600 * 200
    assert search["usd_per_mtok"] == pytest.approx(19.111111, abs=1e-5) and search["idle_share"] == pytest.approx(0.4)
    shares = measured.of("budget_share", "label:team")
    assert shares["search"].value == pytest.approx(0.5) and shares["ads"].value is None and len(shares) == 2
    assert measured.of("waiting", "label:team")[""].value is None, "it has no owner"
    assert measured.of("usd", "namespace")["no owner"].value == pytest.approx(27.52)
