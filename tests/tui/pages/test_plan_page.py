"""The plan on its screen: steps are moved, left out and exported, and assumptions are typed."""

from dataclasses import replace

from pertoken.advisor.planning import PlanRequest
from pertoken.errors import StoreError
from tests.tui.reports import NOW, RICH, FixedSource
from tests.tui.screens import notices, running, text_of, until, until_gone, until_shown
from tests.tui.studies import PLAN, STEPS


def newest_request(source: FixedSource) -> PlanRequest:
    """Return the newest request."""
    request, _ = source.requests[-1]
    assert request is not None
    return request


async def test_a_step_is_left_out_and_included_again_and_the_totals_follow() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Bankable $3,318 ($3,018 to $3,636) a month of a bill of $7,270 (3 steps).")
        await until_shown(pilot, "Least certain: the list price is paid (70% of it: $2,323; 100% of it: $3,318).")
        await pilot.press("space")
        assert await notices(pilot) == [
            "This row is the monthly bill as it is now. Select a step to open or change it."
        ]
        await pilot.press("down", "space")
        await until_shown(pilot, "[ ]    Release the idle")
        await until_shown(pilot, "of a bill of $7,270 (2 steps).")
        assert newest_request(source).limits.without == frozenset({103})
        await pilot.press("space")
        await until_shown(pilot, "(3 steps)")
        assert newest_request(source).limits.without == frozenset()


async def test_a_step_is_moved_and_keeps_the_cursor() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Release the idle")
        await pilot.press("down", "K")
        assert (await notices(pilot))[-1] == "This is the first step."
        await pilot.press("J")
        await until_shown(pilot, "[x] 2  Release the idle")
        assert newest_request(source).limits.order == (101, 103, 105)
        await pilot.press("J")
        await until_shown(pilot, "[x] 3  Release the idle")
        await pilot.press("J")
        assert (await notices(pilot))[-1] == "This is the last step."
        await pilot.press("o", "K")
        assert "The table is sorted" in (await notices(pilot))[-1]


async def test_assumptions_are_typed_kept_and_dropped_by_an_empty_line() -> None:
    source = FixedSource()
    async with running(source) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Least certain")
        await pilot.press("w", *"traffic=0", "enter")
        assert "use a number above 0" in (await notices(pilot))[-1]
        await pilot.press("backspace", *"1.5 tariff=0.2", "enter")
        await until_shown(pilot, "What if: traffic=1.5 tariff=0.2. These are assumptions: w changes them.")
        await pilot.press("2")
        await until_shown(pilot, "You changed the plan (3)")
        await pilot.press("3", "w", "escape")
        assert newest_request(source).what_if.traffic == 1.5
        await pilot.press("w", "ctrl+u", "enter")
        await until_gone(pilot, "What if: traffic")
        assert not newest_request(source).what_if


async def test_a_filter_leaves_the_assumptions_alone() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Least certain")
        await pilot.press("w", *"zzz")
        assert "Release the idle" in text_of(pilot)
        await pilot.press("escape", "slash", *"fp8")
        await until_gone(pilot, "Release the idle")


async def test_a_step_opens_with_its_commands_conflicts_and_headroom() -> None:
    async with running(FixedSource(), (80, 40)) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Serve FP8")
        await pilot.press("down", "down", "enter")
        await until_shown(pilot, "near miss; TTFT p95 704 of 800 ms, 12% left")
        await until_shown(pilot, "move-accelerator, Move to H200: both change the placement")
        await pilot.press("y")
        assert pilot.app.clipboard == "docker run --quantization fp8"


async def test_an_accepted_step_is_neither_left_out_nor_moved_nor_passed() -> None:
    source = FixedSource(planned=replace(PLAN, steps=(replace(STEPS[0], accepted=True), *STEPS[1:])))
    async with running(source) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "[✓] 1")
        await pilot.press("down", "space")
        assert (await notices(pilot))[-1] == "It is accepted: b on the savings page withdraws that."
        await pilot.press("down", "K")
        assert (await notices(pilot))[-1] == "The step before it is accepted, and stays first."


async def test_a_change_that_the_search_left_out_opens_with_the_reason_and_cannot_be_included() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "conflicts with step 2")
        await pilot.press("tab", "space")
        assert await notices(pilot) == ["The search left this change out: enter shows why."]
        await pilot.press("enter")
        await until_shown(pilot, "Why it was left out")


async def test_r_composes_it_again_from_the_newest_telemetry_and_a_failure_keeps_the_figures() -> None:
    source = FixedSource()
    async with running(source, clock=lambda: NOW) as pilot:
        await pilot.press("r")
        assert "This screen reads again all the time" in (await notices(pilot))[-1]
        await pilot.press("3")
        await until_shown(pilot, "Least certain")
        source.error = lambda: StoreError("telemetry.db: locked")
        await pilot.press("r")
        await until_shown(pilot, "These figures are from 0s ago: telemetry.db: locked")
        assert "(3 steps)" in text_of(pilot)
        source.error = None
        await pilot.press("r")
        await until_gone(pilot, "locked")
        assert source.requests[-1][1] is True


async def test_the_plan_is_composed_once_for_the_same_advice_and_again_for_another() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        await until(pilot, lambda: len(source.requests) == 1 and len(source.windows) > 5, "some readings")
        assert len(source.requests) == 1
        source.recommendations = tuple(replace(row, version=row.version + 1) for row in source.recommendations)
        await until(pilot, lambda: len(source.requests) == 2, "a second plan")


async def test_a_price_that_a_person_sets_composes_the_plan_again_with_it() -> None:
    devices = [replace(device, nano_usd_per_hour=None) for device in RICH.devices]
    unpriced = replace(RICH, devices=devices, nano_usd_per_hour=None, unpriced_n=len(devices))
    source = FixedSource(report=unpriced)
    async with running(source, refresh_s=0.05) as pilot:
        await until(pilot, lambda: len(source.requests) == 1 and len(source.windows) > 5, "some readings")
        source.report = RICH
        await until(pilot, lambda: source.requests == [(None, False), (None, True)], "a plan with the price")


async def test_a_plan_without_a_saving_shows_none_found_and_not_a_dash() -> None:
    none = replace(PLAN, steps=(), left_out=(), bankable=(0, 0, 0), capacity=(0, 0, 0), sensitivity=())
    async with running(FixedSource(planned=none)) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "No step lowers the bill of $7,270 a month.")
