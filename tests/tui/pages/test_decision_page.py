"""Decisions on a recommendation, by their keys at 80×24."""

from dataclasses import replace

from pertoken.proof.recommendation import Recommendation, State
from pertoken.tui.pages.decision_page import AdvicePage, DecisionPage, numbers
from tests.tui.reports import ADVICE, NOW, QUANTIZE, FixedSource
from tests.tui.screens import check_golden, notices, running, text_of, until, until_gone, until_shown

BEST = QUANTIZE.variants[0]
ACCEPTED = replace(QUANTIZE, recommendation_id=401, state=State.ACCEPTED, estimate=BEST, variant=BEST.key)
DISMISSED = replace(QUANTIZE, recommendation_id=402, state=State.DISMISSED, until_ts=NOW + 90 * 86_400)
REALIZED = replace(
    ACCEPTED, recommendation_id=403, state=State.REALIZED, reason="-21.0% (-24.0% to -18.0%) per token (chat on gpu-a)"
)
DECIDED: tuple[Recommendation, ...] = (*ADVICE, ACCEPTED, DISMISSED, REALIZED)


async def test_a_decision_is_confirmed_and_enter_stores_it() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("2", "down", "a")
        await until_shown(pilot, "Accept this recommendation?")
        await until_shown(pilot, "20.0% or more after one week")
        await check_golden(pilot, "accept-80x24")
        await pilot.press("enter")
        await until(pilot, lambda: bool(source.decisions), "a decision")
        assert source.decisions == [(QUANTIZE.recommendation_id, "accept")]
        await until_shown(pilot, "bankable $/month")
        assert await notices(pilot) == ["accept: stored"]


async def test_a_trial_is_confirmed_and_details_show_what_to_restart() -> None:
    source = FixedSource(recommendations=(ACCEPTED,))
    async with running(source, (120, 60)) as pilot:
        await pilot.press("2", "tab")
        await until_shown(pilot, "accepted")
        await pilot.press("T")
        await until_shown(pilot, "Try this recommendation?")
        await until_shown(pilot, "Nothing is executed; the details list what to restart.")
        await until_shown(pilot, "What its history could prove")
        await pilot.press("enter")
        await until(pilot, lambda: source.decisions == [(401, "trial")], "a decision")
        await pilot.press("enter")
        await until_shown(pilot, "Now: waiting for the canary, chat on gpu-a, to run with weight_dtype fp8")
        await until_shown(pilot, "1. Restart the canary, chat on gpu-a (http://gpu-a:8000), with the change")


async def test_escape_goes_back_without_a_decision() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("2", "down", "d")
        await until_shown(pilot, "counts as declined dollars until")
        await pilot.press("a")
        assert await notices(pilot) == ["Press enter to confirm, or esc to go back."]
        await pilot.press("escape")
        await until_gone(pilot, "Dismiss this recommendation?")
        assert source.decisions == []


async def test_details_are_decided_on_by_the_same_keys() -> None:
    source = FixedSource(recommendations=(ACCEPTED,))
    async with running(source) as pilot:
        await pilot.press("2", "tab")
        await until_shown(pilot, "accepted")
        await pilot.press("enter")
        await until_shown(pilot, "read more")
        await pilot.press("u")
        assert await notices(pilot) == ["It is accepted: possible now: T trial, b reopen, m applied."]
        await pilot.press("m")
        await until_shown(pilot, "Was this recommendation applied?")
        await pilot.press("enter")
        await until(pilot, lambda: source.decisions == [(401, "applied")], "a decision")
        assert not isinstance(pilot.app.screen, DecisionPage)


async def test_a_decision_that_is_not_possible_shows_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("a")
        assert await notices(pilot) == ["This key is for a recommendation: press 2 and choose one."]
        await pilot.press("2", "b")
        possible = "a accept, T trial, z snooze, d dismiss, m applied"
        assert (await notices(pilot))[-1] == f"It is open: possible now: {possible}."
        await pilot.press("tab")
        await until_shown(pilot, "use-spot")
        await pilot.press("z")
        assert "there is nothing to decide" in (await notices(pilot))[-1]


async def test_decided_and_done_advice_have_tabs_and_declined_dollars_a_line() -> None:
    async with running(FixedSource(recommendations=DECIDED)) as pilot:
        await pilot.press("2")
        await until_shown(pilot, "Declined (1): bankable $1,200 to $1,818, capacity $0 to $400 a month.")
        await until_shown(pilot, "Decided (2)  Done (1)")
        await pilot.press("tab")
        await until_shown(pilot, "dismissed")
        await check_golden(pilot, "decided-80x24")
        await pilot.press("tab")
        await until_shown(pilot, "realized")
        await check_golden(pilot, "done-80x24")


async def test_a_tab_that_loses_its_last_row_stays_until_it_is_left() -> None:
    source = FixedSource(recommendations=(*ADVICE, ACCEPTED))
    async with running(source, refresh_s=0.05) as pilot:
        await pilot.press("2", "tab")
        await until_shown(pilot, "accepted")
        source.recommendations = ADVICE
        await until_shown(pilot, "Decided (0)")
        await pilot.press("tab")
        await until_gone(pilot, "Decided (0)")
        assert "use-spot" in text_of(pilot)


async def test_details_show_the_assumptions_and_a_typed_value_prices_it_again() -> None:
    source = FixedSource()
    async with running(source, (120, 90)) as pilot:
        await pilot.press("2", "down", "enter")
        await until_shown(pilot, "2.  the load stays as measured (0.8 times the load: $2,900")
        await until_shown(pilot, "Decode waits on memory.")  # the page of its rule
        await until_shown(pilot, "20.0% or more after one week")
        assert source.details == [(QUANTIZE.recommendation_id, {})]
        await pilot.press("w", *"2=0.5", "enter")
        await until_shown(pilot, "With the load stays as measured = 0.5: bankable $750, capacity none found a month.")
        assert source.details[-1] == (QUANTIZE.recommendation_id, {"the load stays as measured": 0.5})
        await pilot.press("w", "ctrl+u", *"9=1", "enter")
        assert "9: no such assumption; they are numbered 1 to 2" in (await notices(pilot))[-1]
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, AdvicePage)


def test_numbers_that_cannot_be_read_are_refused_with_an_example() -> None:
    assert numbers("2=0.5 1=3", ["a", "b"]) == {"b": 0.5, "a": 3.0}
    assert numbers("", ["a"]) == {}
    for text in ("x", "1=", "1=nan", "1=-1", "0=1"):
        assert isinstance(numbers(text, ["a"]), str)
