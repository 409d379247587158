"""The plan as text."""

from dataclasses import replace

import pytest

from pertoken.advisor.plan.plan import Headroom, LeftOut
from pertoken.advisor.plan.what_if import WhatIf, what_if_of
from pertoken.forecast.tiers import tiers
from pertoken.savings.sensitivity import At
from pertoken.text.export import PlanFormat, exported, plan_values
from pertoken.text.plan import (
    EXAMPLE,
    SCREEN_BAR,
    capacity_line,
    headline,
    headroom_words,
    left_out_sheet,
    money,
    others_left_out,
    plan_lines,
    plan_text,
    sensitivity_line,
    step_sheet,
    values_words,
    weakest,
    what_if_words,
)
from tests.tui.studies import PLAN, PRICE, STEPS, shown_plan, usd

SHOWN = shown_plan(None, PLAN)


def test_the_headline_holds_the_range_and_the_weakest_assumption_both_of_its_ends() -> None:
    assert headline(PLAN) == "Bankable $3,318 ($3,018 to $3,636) a month of a bill of $7,270 (3 steps)."
    assert weakest(PLAN) == "Least certain: the list price is paid (70% of it: $2,323; 100% of it: $3,318)."
    assert weakest(replace(PLAN, sensitivity=())) is None
    one = replace(PLAN, steps=STEPS[:1])
    assert "(1 step)" in headline(one)


def test_a_plan_without_savings_is_a_sentence() -> None:
    assert money((0, 0, 0)) == money(None) == "none found"
    nothing = replace(PLAN, bankable=(0, 0, 0), capacity=(0, 0, 0))
    assert headline(nothing) == "The bill of $7,270 a month stays (3 steps)."
    assert headline(replace(nothing, steps=())) == "No step lowers the bill of $7,270 a month."
    assert capacity_line(nothing) == "The same bill serves no more than now."
    assert headline(replace(PLAN, spend=0)).startswith("No host has a price: `pertoken prices set`")


def test_an_end_without_a_saving_shows_the_reason() -> None:
    refused = replace(PRICE, low=At("70% of it", 0, 0, "it would not start"))
    assert "70% of it: nothing, it would not start" in sensitivity_line(refused)
    capacity = replace(PRICE, swing=(0, 5))
    assert "100% of it: $200 of capacity" in sensitivity_line(capacity)


@pytest.mark.parametrize("text", [EXAMPLE, 'price="H100 80GB"=2 slo=a:tpot_p50<5ms,tpot_p95<9ms', ""])
def test_an_assumption_is_written_as_it_is_typed(text: str) -> None:
    assumed = what_if_of(text)
    assert what_if_of(what_if_words(assumed)) == assumed
    assert what_if_words(WhatIf()) == ""


def test_the_waterfall_goes_from_the_bill_now_to_the_bill_after() -> None:
    lines = plan_lines(SHOWN, frozenset())
    assert [(line.label.split()[0], line.usd) for line in lines] == [
        ("bill", "$7,270"),
        ("Release", "-$1,818"),
        ("Serve", "-$1,500"),
        ("Raise", "$0"),
        ("bill", "$3,952"),
    ]
    assert len(lines[0].bar) == SCREEN_BAR and lines[1].bar.endswith("▒") and len(lines[1].bar) == SCREEN_BAR
    assert lines[3].bar.strip() == ""
    rising = replace(SHOWN, steps=(replace(SHOWN.steps[0], spend_after=SHOWN.spend + usd(1, 1, 1)[0]),))
    assert plan_lines(rising, frozenset())[1].usd == "+$1.00"


def test_a_step_that_a_person_left_out_stays_among_the_steps() -> None:
    left = (*PLAN.left_out, LeftOut("use-spot", 9, "on spot", "chat", "you left it out"))
    plan = replace(SHOWN, left_out=left)
    lines = plan_lines(plan, frozenset({9}))
    assert [line.mark for line in lines] == ["", "[x]", "[x]", "[x]", "[ ]", ""]
    assert lines[-2].recommendation_id == 9
    assert [row.recommendation_id for row in others_left_out(plan, frozenset({9}))] == [102]
    assert plan_lines(replace(plan, steps=(), left_out=()), frozenset()) == ()


def test_an_accepted_step_is_ticked_and_counted_in_the_headline() -> None:
    plan = replace(PLAN, steps=(replace(STEPS[0], accepted=True), *STEPS[1:]))
    _, accepted, other, *_ = plan_lines(plan, frozenset())
    assert (accepted.mark, other.mark) == ("[✓]", "[x]")
    assert "accepted" in str(step_sheet(accepted)) and "accepted" not in str(step_sheet(other))
    assert headline(plan).endswith("(3 steps, 1 accepted).")
    printed = plan_text(plan, 3600)
    assert printed.count(", accepted ✓") == 1 and " 1  ✓ " in printed
    steps = plan_values(plan, 3600)["steps"]
    assert isinstance(steps, list) and [step["accepted"] for step in steps] == [True, False, False]
    assert "| 1 ✓ |" in exported(plan, 3600, PlanFormat.MARKDOWN)


def test_headroom_is_left_or_over() -> None:
    assert headroom_words(Headroom("TTFT p95", 704, 900, 800)) == "12% left"
    assert headroom_words(Headroom("TTFT p95", 880, 900, 800)) == "10% over"
    assert headroom_words(None) == "–"


def test_a_step_in_full_names_its_conflicts_and_what_uses_up_capacity() -> None:
    line = plan_lines(SHOWN, frozenset())[2]
    titles = [section.title for section in step_sheet(line)]
    assert titles[0] == "Step 2: Serve FP8 weights" and "Changes that it excludes" in titles
    assert line.step is not None
    using = replace(line, step=replace(line.step, capacity=usd(-9, -5, -1)))
    assert ("capacity", "uses up $5.00 a month that an earlier step freed") in step_sheet(using)[0].lines
    assert step_sheet(plan_lines(SHOWN, frozenset())[0]) == ()
    (_, why) = left_out_sheet(PLAN.left_out[0])
    assert why.lines == ("conflicts with step 2: both",)


def test_numbers_set_by_a_person_are_named() -> None:
    assert values_words({"the load stays as measured": 0.5}) == "the load stays as measured = 0.5"


def test_a_step_states_what_its_forecast_rests_on_and_a_step_without_a_forecast_does_not() -> None:
    tier = tiers()["physics"]
    step = replace(STEPS[0], tier=tier)
    plan = replace(PLAN, steps=(step, *STEPS[1:]))
    (line,) = [line for line in plan_lines(plan, frozenset()) if line.step is step]
    assert any(fact == ("forecast", tier.words) for section in step_sheet(line) for fact in section.lines)
    printed = " ".join(plan_text(plan, 3600).split())
    assert printed.count("physics only, off by") == 1 and "`pertoken probe` at the load in question" in printed
    assert "off by" not in plan_text(PLAN, 3600)
