"""The files of a new rule."""

import ast
from pathlib import Path

import pytest

from pertoken.advisor.rules.discovery import rules_in
from pertoken.advisor.rules.listing import MAX_NAME, new_rule
from pertoken.errors import BadInput
from pertoken.testing import faults


def test_a_new_rule_conforms_before_it_is_changed(tmp_path: Path) -> None:
    (file,) = new_rule("lock-clocks", tmp_path)
    (rule,) = rules_in(file)
    assert (file, rule.rule_id, faults(rule)) == (tmp_path / "lock_clocks.py", "lock-clocks", ())


def test_a_new_package_names_its_folder_first_and_leaves_no_placeholder(tmp_path: Path) -> None:
    home, *files = new_rule("night-shift", tmp_path, package=True)
    assert (home, len(files)) == (tmp_path / "pertoken-rule-night-shift", 3)
    for file in files:
        text = file.read_text()
        assert "@NAME@" not in text and "@MODULE@" not in text and "@FUNCTION@" not in text
        assert file.suffix != ".py" or ast.parse(text)


@pytest.mark.parametrize("package", [False, True])
def test_existing_files_are_left_as_they_are(tmp_path: Path, package: bool) -> None:
    first = new_rule("mine", tmp_path, package=package)[-1]
    first.write_text("changed")
    with pytest.raises(BadInput, match="exists already"):
        new_rule("mine", tmp_path, package=package)
    assert first.read_text() == "changed"


@pytest.mark.parametrize("name", ["", "Upper", "9-lives", "a_b", "a--b", "-a", "../a", "a" * (MAX_NAME + 1)])
def test_a_name_that_no_rule_can_have_writes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="lower-case words joined by hyphens"):
        new_rule(name, tmp_path)
    assert not list(tmp_path.iterdir())
