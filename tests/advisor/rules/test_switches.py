"""The file of rules that a person switched off."""

from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import SWITCHES, disable, disabled, enable
from pertoken.errors import BadInput


def test_a_rule_is_off_until_it_is_switched_on_and_the_others_stay_off(tmp_path: Path) -> None:
    folder = tmp_path / "not-there-yet"
    assert disabled(folder) == ()
    for name in ("first", "second", "first"):
        disable(folder, name)
    assert disabled(folder) == ("first", "second")
    enable(folder, "first")
    assert disabled(folder) == ("second",)
    assert [path.name for path in folder.iterdir()] == [SWITCHES], "no temporary file stays"


def test_a_file_that_a_person_edited_is_read_with_comments_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / SWITCHES).write_text("# mine\n\n  use-spot   # since Monday\nuse-spot\n")
    assert disabled(tmp_path) == ("use-spot",)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / SWITCHES).write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=f"{SWITCHES}: cannot be read"):
        disabled(tmp_path)
