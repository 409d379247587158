from dataclasses import replace

from pertoken.costs.report.lines import Trouble, TroubleKind
from pertoken.proof.recommendation import short_id
from pertoken.savings.saving import Saving
from pertoken.text.advice.folds import folded
from tests.proof.rows import FP8, row

UNPRICED = replace(FP8, saving=None, unpriced="nobody can price it")


def test_rows_without_a_figure_are_one_line_a_rule_and_the_others_stay() -> None:
    priced = row()
    unpriced = [row(rule_id="speculate", recommendation_id=n, variants=(UNPRICED,)) for n in range(1, 12)]
    once = row(rule_id="cache", recommendation_id=20, variants=(replace(FP8, saving=Saving()),))
    folds = folded([once, *unpriced, priced])
    assert folds.shown == (priced,)
    first, second = folds.lines
    assert "speculate: 11 targets could try it" in first and "cache: 1 target could" in second


def test_a_row_with_dollars_to_confirm_is_shown() -> None:
    confirmed = replace(UNPRICED, if_confirmed=Saving((1, 2, 3)))
    assert folded([row(variants=(confirmed,))]).by_rule == ()


def test_a_row_that_mends_what_is_wrong_now_is_never_folded() -> None:
    restart = row(variants=(UNPRICED,))
    trouble = Trouble(TroubleKind.STUCK, "chat", "no token", f"pertoken advise show {short_id(restart)}")
    assert folded([restart], [trouble]).shown == (restart,)
    assert folded([restart]).shown == ()
