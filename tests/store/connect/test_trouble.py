"""Reasons why a file cannot be opened."""

from pathlib import Path

import pytest

from pertoken.store.connect.location import trouble


def test_nothing_is_in_the_way_of_a_file_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    assert trouble(tmp_path / "telemetry.db", writing=True) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/telemetry.db", "there is no folder"),
        ("file/telemetry.db", "is no folder"),
        ("folder", "is a folder; move it away"),
    ],
)
def test_a_file_in_the_way_is_named(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    reason = trouble(tmp_path / name, writing=False)
    assert reason is not None and why in reason and str(tmp_path) in reason
