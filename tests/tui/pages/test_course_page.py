"""The page of a host or service, with its plots."""

import sys
from dataclasses import replace
from subprocess import run

from pertoken.errors import StoreError
from pertoken.window.course import Course, Subject
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, text_of, until, until_shown


async def test_a_service_opens_with_its_dollars_and_plots_and_scrolls_to_its_facts() -> None:
    source = FixedSource()
    async with running(source, (100, 30)) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "Where a dollar goes: $4.98 in 1h")
        await until_shown(pilot, "Tokens, tok/s: ▪ output")
        await pilot.press("end")
        await until_shown(pilot, "How far to trust it")
        assert source.subjects[0] == Subject("deployment", 11)


async def test_a_host_opens_from_its_row_with_its_devices() -> None:
    source = FixedSource()
    async with running(source, (120, 40)) as pilot:
        await pilot.press("g", "enter")
        await until_shown(pilot, "gpu-a · 2 accelerators")
        await until_shown(pilot, "Power, W: ▪ power 716  ─ limit 1,400")
        await pilot.press("end")
        await until_shown(pilot, "Devices and partitions, with the deployments that use them")
        assert source.subjects[0] == Subject("host", 1)


async def test_enter_opens_the_first_proposal_and_escape_goes_back_to_the_plots() -> None:
    async with running(FixedSource(), (100, 30)) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "the first: Serve FP8 weights ($1,640 a month); enter opens it.")
        await pilot.press("enter")
        await until_shown(pilot, "How much a month")
        await pilot.press("escape")
        await until_shown(pilot, "Tokens, tok/s: ▪ output")
        await pilot.press("escape", "down", "enter")
        await until_shown(pilot, "Qwen/Qwen3-8B · llama.cpp")
        await pilot.press("enter")
        assert await notices(pilot) == ["No proposal is open for it."]


async def test_facts_stay_when_the_history_cannot_be_read() -> None:
    class Failing(FixedSource):
        def course(self, subject: Subject, window_s: int, shown_ts: int | None = None) -> Course:
            raise StoreError("the history is [b]locked")

    async with running(Failing()) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "the history is [b]locked")
        assert "Where a dollar goes" in text_of(pilot)


async def test_the_page_of_a_service_that_is_gone_is_marked() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        await pilot.press("enter")
        await until_shown(pilot, "Tokens, tok/s")
        source.report = replace(source.report, deployments=())
        await until(pilot, lambda: "Where a dollar goes" not in text_of(pilot), "the end of its dollars")


def test_only_the_page_that_plots_loads_plotext() -> None:
    code = "import pertoken.tui.app, sys; sys.exit('plotext' in sys.modules)"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
