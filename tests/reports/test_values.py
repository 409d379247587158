from dataclasses import asdict, replace
from pathlib import Path

from pertoken.forecast.tiers import tiers
from pertoken.proof.recommendation import State, Variant
from pertoken.proof.verdicts import Judgement, Verdict, VerdictResult
from pertoken.reports.tables import advice_values, taken_table, verdict_values
from tests.reports.builders import figures
from tests.reports.test_figures import advice


def test_advice_that_was_taken_is_named_by_the_variant_that_was_applied(tmp_path: Path) -> None:
    taken = replace(advice(1, 10, "service:a", state=State.APPLIED), estimate=Variant("2", "weights bf16 → fp8"))
    assert advice_values(taken)["title"] == "weights bf16 → fp8"
    report = figures(tmp_path / "db")
    (shown,) = taken_table(replace(report, savings=replace(report.savings, taken=(taken,)))).rows
    assert shown[1] == "weights bf16 → fp8"


def test_advice_and_verdicts_are_plain_values_with_unknown_as_none() -> None:
    values = advice_values(advice(1, 2 * 10**9, "service:a"))
    assert values["bankable_usd_per_month"] == {"low": 2.0, "likely": 2.0, "high": 2.0}
    assert (
        values["if_confirmed_usd_per_month"] is None
        and values["pays_more"] is False
        and values["id"] == "0000000000000001"
    )
    verdict = Verdict(1, 2, 1, 60, "chat", judgement=Judgement(VerdictResult.CHEAPER, (-0.3, -0.2, -0.1)))
    assert verdict_values(verdict)["effect"] == {"low": -0.3, "likely": -0.2, "high": -0.1}
    assert verdict_values(Verdict(1, 2, 1, 60, "chat"))["effect"] is None


def test_advice_with_a_forecast_has_its_tier_with_the_measured_error_and_the_command_that_lifts_it() -> None:
    row = advice(1, 2 * 10**9, "service:a")
    assert advice_values(row)["forecast"] is None
    stated = replace(row, variants=(replace(row.variants[0], tier=tiers()["stated"]),))
    assert advice_values(stated)["forecast"] == asdict(tiers()["stated"])
