from pathlib import Path

import pytest

from pertoken.config import Settings
from pertoken.proof.recommendation import Recommendation, State, Variant
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult, read_verdicts, with_judgement, write
from pertoken.reports.figures import read_figures
from pertoken.reports.gates import Figures
from pertoken.savings.saving import Saving
from pertoken.store.connect.open import open_store
from pertoken.store.repository import AdviceRepository
from pertoken.units import NANO_USD
from tests.reports.builders import END, figures, period, recorded


def advice(number: int, bankable: int, *touches: str, state: State = State.OPEN) -> Recommendation:
    money = (bankable, bankable, bankable)
    variant = Variant(key=str(number), title=f"change {number}", saving=Saving(money), touches=touches)
    return Recommendation(number, "rule", state, variant.title, "chat", variants=(variant,))


def test_a_report_has_the_bill_the_models_and_the_cost_of_a_token(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    assert report.bill is not None and report.bill.paid == pytest.approx(4 * 3 * 6.88 * NANO_USD)
    assert report.nano_usd_per_mtok == pytest.approx(2 * 6.88 / (3600 * 200) * 1e6 * NANO_USD)
    assert report.tokens == 3600 * 200 * 3
    assert {line.name for line in report.teams.lines} == {"search", "unattributed", "unallocated"}
    assert sum(line.nano_usd for line in report.tenants.lines) == report.bill.paid
    (days,) = report.daily_prices(3).values()
    assert [price for _, price in days if price is not None] == [report.nano_usd_per_mtok] * 2


def test_without_a_price_dollars_are_unknown_and_not_nought(tmp_path: Path) -> None:
    report = figures(tmp_path / "db", usd_per_hour=None)
    assert report.bill is None and report.nano_usd_per_mtok is None and report.tokens > 0


def test_a_report_has_the_verdicts_that_were_passed_in_its_time_whenever_the_change_was(tmp_path: Path) -> None:
    where = recorded(tmp_path / "db")
    changed_ts = END - 9 * 86_400
    with AdviceRepository(where).writing() as connection:
        write(connection, [Verdict(8, 9, 7, changed_ts, "chat", created_ts=changed_ts)])
        (waiting,) = read_verdicts(connection)
        write(connection, [with_judgement(waiting, Judgement(VerdictResult.DEARER, (0.1, 0.2, 0.3)), END - 7200)])
    (verdict,) = read_figures(open_store(where), Settings(), period()).regressions
    assert (verdict.changed_ts, verdict.judged_ts) == (changed_ts, END - 7200)
    assert read_figures(open_store(where), Settings(), period("1h")).verdicts == ()
    of_window = [
        Figures(open_store(where), Settings(), window_s, END).of("regressions", "fleet") for window_s in (3600, 7200)
    ]
    assert [values[""].value for values in of_window] == [0, 1]
    assert Figures(open_store(where), Settings(), 7200, END).of("output_changes", "fleet")[""].value == 0
