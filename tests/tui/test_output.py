"""Output of the screens: a screen as files, and a page in the pager."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pertoken.tui.app import pager
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, until, until_shown

PAGES = (
    ((), "meta-llama/Llama-3.1-70B-Instruct"),
    (("enter",), "$ per generated Mtok"),
    (("question_mark",), "Moving"),
)
"""Keys that open a page from the previous one, and a part of its text."""


async def test_x_writes_the_screen_as_text_and_svg_and_shows_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(FixedSource()) as pilot:
        await until_shown(pilot, "run/wait")
        await pilot.pause()
        await pilot.press("x")
        names = await notices(pilot)
        await pilot.press("x")
        await pilot.pause()
    files = sorted(path.name for path in tmp_path.iterdir())
    stem = "pertoken-screen-20270115-080000"
    assert files == [f"{stem}-2.svg", f"{stem}-2.txt", f"{stem}.svg", f"{stem}.txt"]
    assert names == [f"Wrote {tmp_path / stem}.txt and {tmp_path / stem}.svg"]
    lines = (tmp_path / f"{stem}.txt").read_text().splitlines()
    assert len(lines) == 24
    assert lines[0].startswith(" pertoken  Fleet · last 1h") and "run/wait" in "".join(lines)
    assert (tmp_path / f"{stem}.svg").read_text().startswith("<svg")


async def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    async with running(FixedSource()) as pilot:
        monkeypatch.setattr("pertoken.tui.app.dump", full)
        await pilot.press("x")
        assert await notices(pilot) == [f"{tmp_path}: No space left on device"]


async def test_v_gives_the_page_to_the_pager_and_the_terminal_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, suspended = tmp_path / "page.txt", list[bool]()
    monkeypatch.setenv("PAGER", f"tee {file}")

    @contextmanager
    def suspend() -> Iterator[None]:
        suspended.append(True)
        yield

    async with running(FixedSource()) as pilot:
        monkeypatch.setattr(pilot.app, "suspend", suspend)
        for n, (keys, text) in enumerate(PAGES, 1):
            await pilot.press(*keys)
            await pilot.pause()
            await pilot.press("v")
            await until(pilot, lambda n=n: len(suspended) == n, "a pager")  # type: ignore[misc]
            assert text in file.read_text()


async def test_without_a_terminal_to_suspend_v_shows_what_to_do() -> None:
    async with running(FixedSource()) as pilot:
        await pilot.press("v")
        assert await notices(pilot) == ["A browser has no pager: x saves the screen instead."]


def test_the_pager_is_that_of_the_environment_else_an_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat -n")
    assert pager() == ["cat", "-n"]
    monkeypatch.setenv("PAGER", "there-is-no-such-program")
    assert pager()[0] in ("less", "more", "cat")
    monkeypatch.setenv("PAGER", "'unbalanced")
    assert pager()[0] in ("less", "more", "cat")
    monkeypatch.setitem(os.environ, "PATH", "")
    assert pager() == []
