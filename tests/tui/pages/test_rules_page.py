"""The rules on their screen: state, record and page; loaded again, and switched."""

from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, text_of, until, until_gone, until_shown


async def test_rules_are_loaded_when_they_are_looked_at_and_again_by_r() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        assert source.rules_asked == 0
        await pilot.press("4")
        await until_shown(pilot, "3 loaded, 1 broken. Put files with your own rules into")
        await until_shown(pilot, "0.92× of 4")
        await pilot.press("1", "4")
        assert source.rules_asked == 1
        await pilot.press("r")
        await until(pilot, lambda: source.rules_asked == 2, "a second loading")


async def test_a_broken_rule_is_first_and_opens_with_its_traceback_as_text() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("4")
        await until_shown(pilot, "✗ broken")
        assert text_of(pilot).index("mine ") < text_of(pilot).index("quantize-weights")
        await pilot.press("enter")
        await until_shown(pilot, "x = [/b]evil\\x1b[31m\\u202emodel[red]")


async def test_a_rule_is_switched_off_after_a_question_and_on_again() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("4")
        await until_shown(pilot, "use-spot")
        await pilot.press("down", "space")
        await until_shown(pilot, "Switch quantize-weights off?")
        await pilot.press("escape", "space")
        await until_shown(pilot, "Switch quantize-weights off?")
        assert source.off == set()
        await pilot.press("enter")
        await until_shown(pilot, "○ off")
        assert (source.off, (await notices(pilot))[-1]) == ({"quantize-weights"}, "quantize-weights: off")
        await pilot.press("space")
        await until_shown(pilot, "Switch quantize-weights on?")
        await pilot.press("enter")
        await until_gone(pilot, "○ off")


async def test_without_a_selected_rule_the_switch_shows_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("space")
        assert await notices(pilot) == ["This key is for a step of the plan (3) or a rule (4)."]
