"""The plan as files and on the clipboard."""

import json
from pathlib import Path

import pytest

from tests.tui.reports import FixedSource
from tests.tui.screens import check_golden, notices, running, until_shown


async def test_a_format_is_written_to_a_new_file_whose_path_is_shown_or_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(FixedSource(), (120, 40)) as pilot:
        await pilot.press("3")
        await until_shown(pilot, "Least certain")
        for _ in range(2):
            await pilot.press("e")
            await until_shown(pilot, "shell script")
            await pilot.press("enter")
            await until_shown(pilot, "bill now")
        assert [path.name for path in sorted(tmp_path.iterdir())] == [
            "pertoken-plan-20270115-080000-2.md",
            "pertoken-plan-20270115-080000.md",
        ]
        assert (await notices(pilot))[0] == f"Wrote {tmp_path / 'pertoken-plan-20270115-080000.md'}"
        await pilot.press("e")
        await until_shown(pilot, "shell script")
        await pilot.press("down", "down", "down", "y")
        assert json.loads(pilot.app.clipboard)["spend_usd_per_month"] == 7270.0
        await pilot.press("escape")
        await until_shown(pilot, "bill now")


async def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr(Path, "cwd", lambda: gone)
    async with running(FixedSource()) as pilot:
        await pilot.press("e")
        assert await notices(pilot) == ["This key is for the plan: press 3."]
        await pilot.press("3")
        await until_shown(pilot, "Least certain")
        monkeypatch.setattr(Path, "cwd", lambda: Path("/nowhere"))
        await pilot.press("e")
        await until_shown(pilot, "shell script")
        await check_golden(pilot, "export-80x24")
        await pilot.press("enter")
        assert (await notices(pilot))[-1] == "/nowhere: No such file or directory; y copies it instead"
