"""Commands are copied, one by one or all, and never run."""

from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until_shown

APPLY = "vllm serve meta-llama/Llama-3.1-70B-Instruct --quantization fp8 --tensor-parallel-size 1"
UNDO = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 2"


async def test_y_copies_one_command_after_the_other_and_upper_y_all_with_the_undo_as_comments() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("y")
        assert (await notices(pilot))[-1].startswith("This key copies commands: open a recommendation (2)")
        await pilot.press("2", "down", "enter")
        await until_shown(pilot, "How much a month")
        for number, command in ((1, APPLY), (2, UNDO), (1, APPLY)):
            await pilot.press("y")
            assert pilot.app.clipboard == command
            assert (await notices(pilot))[-1].startswith(f"Copied {number} of 2: vllm serve")
        await pilot.press("Y")
        assert pilot.app.clipboard == f"{APPLY}\n# undo: {UNDO}\n"


async def test_without_a_command_the_key_shows_the_reason() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("2", "tab", "enter")
        await until_shown(pilot, "How the rule failed")
        await pilot.press("y")
        assert await notices(pilot) == ["This page has no command to copy."]
