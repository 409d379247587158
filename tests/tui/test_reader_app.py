"""Readings of the app while its database answers, fails or is slow."""

from dataclasses import replace
from threading import Event

from tests.tui.reports import CHAT, RICH, FixedSource
from tests.tui.screens import running, until, until_gone, until_shown


async def test_figures_follow_the_database() -> None:
    source = FixedSource()
    async with running(source, refresh_s=0.05) as pilot:
        source.report = replace(RICH, deployments=(replace(CHAT, model="a-new-model"),))
        await until_shown(pilot, "a-new-model")
        await until_gone(pilot, "70B-Instruct          ")


async def test_keys_work_while_the_database_does_not_answer() -> None:
    gate = Event()
    try:
        async with running(FixedSource(wait=gate)) as pilot:
            await until_shown(pilot, "Reading the database")
            await pilot.press("question_mark")
            await until_shown(pilot, "Show the fleet")
            await pilot.press("escape")
            await until_shown(pilot, "Reading the database")
            gate.set()
            await until_shown(pilot, "70B-Instruct")
    finally:
        gate.set()


async def test_quitting_does_not_wait_for_the_database() -> None:
    gate = Event()
    try:
        async with running(FixedSource(wait=gate)) as pilot:
            await pilot.press("q")
            await until(pilot, lambda: not pilot.app.is_running, "the end")
    finally:
        gate.set()


async def test_a_window_chosen_while_reading_is_read_next() -> None:
    gate = Event()
    source = FixedSource(wait=gate)
    try:
        async with running(source) as pilot:
            await until_shown(pilot, "Reading the database")
            await pilot.press("right_square_bracket")
            gate.set()
            await until_shown(pilot, " in 6h, 97% observed")
    finally:
        gate.set()
