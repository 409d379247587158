"""State of the screens that is kept between runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pertoken.tui.options import VERSION, ArrangedTable, Options, Remembered, recall, remember
from pertoken.tui.widgets.table import Rows
from tests.tui.reports import FixedSource
from tests.tui.screens import notices, running, text_of, until_gone, until_shown

FULL = Remembered(
    21_600,
    "savings",
    "light",
    "ascii",
    5.0,
    {"hosts": ArrangedTable(("CPU",), "power", True), "open": ArrangedTable((), None, False)},
)


def test_a_written_state_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "state" / "screens.json"
    assert remember(file, FULL) is None
    assert recall(file) == FULL
    assert [path.name for path in file.parent.iterdir()] == ["screens.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "\udcff",
        json.dumps({"version": VERSION + 1, "window_s": 900}),
        json.dumps({"window_s": 900}),
        "[" * 100_000,
        " " * 100_000,
    ],
)
def test_a_file_that_cannot_be_read_is_ignored(tmp_path: Path, text: str) -> None:
    file = tmp_path / "screens.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert recall(file) == Remembered()


@pytest.mark.parametrize("value", [7, True, 1e400, -1, "dark ", {}, [], None])
def test_an_unknown_value_is_ignored(tmp_path: Path, value: object) -> None:
    file = tmp_path / "screens.json"
    table = {"hidden": value, "by": value, "turned": value}
    names = ("window_s", "screen", "theme", "borders", "tables")
    file.write_text(json.dumps({"version": VERSION, **dict.fromkeys(names, value), "refresh_s": value}))
    remembered = recall(file)
    assert (remembered.window_s, remembered.screen, remembered.theme, remembered.borders) == (None, None, None, None)
    assert remembered.refresh_s in (None, 7.0)
    file.write_text(json.dumps({"version": VERSION, "tables": {"hosts": table, "open": value}}))
    assert recall(file).tables["hosts"].hidden == ()


def test_without_a_file_nothing_is_remembered_and_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    assert recall(tmp_path / "none") == Remembered()
    assert remember(None, FULL) is None
    (tmp_path / "file").write_text("")
    assert "nothing is remembered" in (remember(tmp_path / "file" / "screens.json", FULL) or "")


def test_over_another_database_the_screens_begin_with_the_fleet(tmp_path: Path) -> None:
    file = tmp_path / "screens.json"
    remember(file, replace(FULL, database="/var/lib/pertoken"))
    assert recall(file, "/var/lib/pertoken").screen == "savings"
    assert recall(file, "/tmp/demo") == replace(FULL, screen=None, database="/tmp/demo")


async def test_window_sort_columns_and_screen_are_as_they_were_left(tmp_path: Path) -> None:
    options = Options(memory=tmp_path / "screens.json")
    async with running(FixedSource(), (120, 40), options=options) as pilot:
        await until_shown(pilot, "TTFT p95")
        await pilot.press("right_square_bracket", "o", "o", "O", "c")
        await until_shown(pilot, "no room or no values")
        await pilot.press("down", "down", "down", "down", "down", "down", "down", "space")
        await until_shown(pilot, "[ ]  TTFT p95")
        await pilot.press("escape", "2")
        await until_shown(pilot, "bankable $/month")
    async with running(FixedSource(), (120, 40), refresh_s=0.5, options=options) as pilot:
        await until_shown(pilot, "bankable $/month")
        await pilot.press("1")
        await until_shown(pilot, "last 6h")
        await until_gone(pilot, "TTFT p95")
        assert pilot.app.screen.query_one("#deployments", Rows).arrangement.turned
    assert recall(options.memory).screen == "fleet"


async def test_an_unwritable_state_file_is_reported_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = Options(memory=tmp_path / "file" / "screens.json")
    async with running(FixedSource(), options=options) as pilot:
        await pilot.press("2", "3", "1")
        await until_shown(pilot, "run/wait")
        assert len([notice for notice in await notices(pilot) if "nothing is remembered" in notice]) == 1


async def test_a_column_that_was_hidden_is_not_in_the_header_of_a_page_that_is_opened_after_a_restart(
    tmp_path: Path,
) -> None:
    file = tmp_path / "screens.json"
    remember(file, Remembered(screen="savings", tables={"deployments": ArrangedTable(hidden=("host",))}))
    async with running(FixedSource(), (120, 40), options=Options(memory=file)) as pilot:
        await until_shown(pilot, "bankable $/month")
        await pilot.press("1")
        await until_shown(pilot, "run/wait")
        header = next(line for line in text_of(pilot).splitlines() if "run/wait" in line)
        assert "model" in header and "host" not in header
