from dataclasses import replace
from pathlib import Path

from pertoken.costs.report.lines import Trouble, TroubleKind
from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import Variant
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.reports.tables import (
    advice_values,
    found_table,
    judgement_text,
    money_text,
    now_table,
    tables,
)
from pertoken.text.advice_table import folded
from pertoken.units import NANO_USD
from tests.reports.builders import figures
from tests.reports.test_figures import advice


def test_each_table_has_rows_of_its_columns_and_the_command_that_shows_it(tmp_path: Path) -> None:
    report_tables = tables(figures(tmp_path / "db"))
    assert [table.title for table in report_tables][:3] == ["Now", "Models", "Figures by model"]
    for table in report_tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert table.command.startswith("pertoken ") and (table.rows or table.empty)
    assert report_tables[1].rows[-1] == ("together", "$82.56", "100.0%", "", "")


def test_a_report_begins_with_what_was_wrong_at_its_end(tmp_path: Path) -> None:
    stuck = Trouble(TroubleKind.STUCK, "chat on gpu-a", "no token came", "pertoken advise show 1", 2 * NANO_USD)
    report = replace(figures(tmp_path / "db"), troubles=(stuck, replace(stuck, nano_usd_per_hour=None)))
    known, unknown = now_table(report).rows
    assert known == ("stuck", "chat on gpu-a", "no token came", "$2.00", "pertoken advise show 1")
    assert unknown[3] == "–"


def test_a_verdict_and_money_are_written_with_their_intervals() -> None:
    verdict = Verdict(1, 2, 1, 0, "chat", judgement=Judgement(VerdictResult.DEARER, (0.05, 0.12, 0.2)))
    assert judgement_text(verdict) == ("dearer", "+12.0% (+5.0% to +20.0%)")
    assert judgement_text(Verdict(1, 2, 1, 0, "chat")) == ("pending", "–")
    assert money_text(None) == "–"
    assert money_text((10**9, 2 * 10**9, 3 * 10**9)) == "$2.00 ($1.00–$3.00)"


def test_advice_without_a_figure_or_with_a_late_payback_is_folded_with_its_count(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    large, late = advice(1, 900 * NANO_USD, "host:x"), advice(2, 100, "host:y")
    silent = replace(late, recommendation_id=3, variants=(Variant("3", "a cache"),))
    proposed = (large, late, silent)
    savings = replace(report.savings, proposed=proposed, folds=folded(proposed, hour_rate=75.0))
    table = found_table(replace(report, savings=savings))
    assert [row[1] for row in table.rows] == ["change 1"]
    late_line, silent_line = table.notes[:2]
    assert late_line == "1 row pays back in over a year, with work at $75.00 an hour"
    assert silent_line.startswith("rule: 1 target could try it, without a figure")


def test_a_proposal_answers_why_how_sure_what_gets_slower_what_breaks_and_who_is_affected(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    row = replace(advice(1, 900 * NANO_USD, "service:chat"), reason="Run fewer replicas where the load is small.")
    savings = replace(report.savings, folds=folded([row]))
    (shown,) = (table := found_table(replace(report, savings=savings))).rows
    answers = dict(zip(table.columns, shown, strict=True))
    assert answers["why"] == "Run fewer replicas where the load is small."
    assert answers["what gets slower"] == "latency not known: none was forecast"
    assert answers["what could break"] == "nothing that is known" and answers["affected"].startswith("clients of chat")
    values = advice_values(row)
    assert list(values).index("why") < list(values).index("slower") < list(values).index("commands")


def test_unconfirmed_advice_is_marked_and_in_no_sum(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    counted, other = advice(1, 10 * NANO_USD, "host:x"), advice(2, 90 * NANO_USD, "host:y")
    marked = (replace(other, unconfirmed="no telemetry"),)
    savings = replace(report.savings, proposed=(counted,), folds=folded([counted]), unconfirmed=marked)
    table = found_table(replace(report, savings=savings))
    assert [row[1] for row in table.rows] == ["change 1", "not confirmed: change 2"]
    assert "in no total" in table.notes[-1] and savings.bankable == (10 * NANO_USD,) * 3


def test_found_changes_state_what_their_forecasts_rest_on_and_what_lifts_it(tmp_path: Path) -> None:
    report = figures(tmp_path / "db")
    row = advice(1, 10 * NANO_USD, "host:x")
    stated = replace(row, variants=(replace(row.variants[0], tier=tiers()["stated"]),))
    table = found_table(replace(report, savings=replace(report.savings, proposed=(stated,), folds=folded([stated]))))
    assert table.rows[0][table.columns.index("forecast")] == tiers()["stated"].short
    assert "`pertoken probe` lifts them" in table.notes[-1]
    plain = found_table(replace(report, savings=replace(report.savings, proposed=(row,), folds=folded([row]))))
    assert plain.rows[0][plain.columns.index("forecast")] == "" and not any("probe" in note for note in plain.notes)
