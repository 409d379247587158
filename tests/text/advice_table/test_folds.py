from dataclasses import replace

import pytest

from pertoken.costs.report.lines import Trouble, TroubleKind
from pertoken.proof.recommendation import short_id
from pertoken.savings.saving import Saving
from pertoken.text.advice_table import folded
from pertoken.units import NANO_USD
from tests.proof.rows import FP8, row

DEAR = replace(FP8, saving=Saving((900 * NANO_USD,) * 3))
UNPRICED = replace(FP8, saving=None, unpriced="nobody can price it")


def test_rows_without_a_figure_are_one_line_a_rule_and_the_others_stay() -> None:
    priced = row(variants=(DEAR,))
    unpriced = [row(rule_id="speculate", recommendation_id=n, variants=(UNPRICED,)) for n in range(1, 12)]
    once = row(rule_id="cache", recommendation_id=20, variants=(replace(FP8, saving=Saving()),))
    folds = folded([once, *unpriced, priced])
    assert folds.shown == (priced,)
    first, second = folds.lines
    assert "speculate: 11 targets could try it" in first and "cache: 1 target could" in second


def test_a_row_with_dollars_to_confirm_is_shown() -> None:
    confirmed = replace(UNPRICED, if_confirmed=DEAR.saving)
    assert folded([row(variants=(confirmed,))]).by_rule == ()


def test_a_row_that_mends_what_is_wrong_now_is_never_folded() -> None:
    restart = row(variants=(UNPRICED,))
    trouble = Trouble(TroubleKind.STUCK, "chat", "no token", f"pertoken advise show {short_id(restart)}")
    assert folded([restart], [trouble]).shown == (restart,)
    assert folded([restart]).shown == ()


@pytest.mark.parametrize(("effort", "usd_per_month"), [("low", 1.5), ("medium", 24.9), ("high", 149.9)])
def test_a_row_whose_work_pays_back_in_over_a_year_is_folded_with_the_count(effort: str, usd_per_month: float) -> None:
    saving = Saving((0, round(usd_per_month * NANO_USD), 0))
    late = row(variants=(replace(FP8, effort=effort, saving=saving),))
    folds = folded([late], hour_rate=75)
    assert folds.shown == () and folds.lines == ["  1 row pays back in over a year, with work at $75.00 an hour"]
    assert folded([late], hour_rate=70).shown == (late,)
    capacity = row(variants=(replace(FP8, effort=effort, saving=Saving(capacity=saving.net)),))
    assert folded([capacity], hour_rate=70).shown == (capacity,)
