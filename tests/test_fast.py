"""The fast tests of `tests/fast.txt`: what they are, so that they stay a matter of a minute or two."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests/fast.txt"
_IGNORE = "--ignore="
SLOW_MODULES = ("subprocess", "multiprocessing", "tests.recorded", "tests.postgres", "tests.fleet", "tests.llama")
SLOW_FIXTURES = ("server", "owner_url", "let_in", "own_processes")
MAX_SHARE = 0.45
"""Most of all test files that the list may hold: a list of everything is not fast."""


def listed() -> list[Path]:
    lines = LIST.read_text().splitlines()
    left_out = {ROOT / line.removeprefix(_IGNORE) for line in lines if line.startswith(_IGNORE)}
    paths = [ROOT / line for line in lines if not line.startswith(_IGNORE)]
    assert all(path.exists() for path in (*paths, *left_out))
    files = [file for path in paths for file in (sorted(path.rglob("test_*.py")) if path.is_dir() else [path])]
    return [file for file in files if file not in left_out]


def test_no_fast_test_starts_a_process_or_a_server() -> None:
    slow = {}
    for file in listed():
        tree = ast.parse(file.read_text())
        modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        fixtures = {argument.arg for test in tests for argument in test.args.args}
        found = {name for name in modules if name.startswith(SLOW_MODULES)} | fixtures.intersection(SLOW_FIXTURES)
        if found:
            slow[str(file.relative_to(ROOT))] = found
    assert slow == {}


def test_the_list_is_a_part_of_the_tests_and_names_nothing_twice() -> None:
    files = listed()
    assert len(files) == len(set(files))
    assert 100 < len(files) < MAX_SHARE * len(list((ROOT / "tests").rglob("test_*.py")))


def test_the_page_for_contributors_names_the_command_of_the_list() -> None:
    assert ".venv/bin/pytest @tests/fast.txt" in (ROOT / "CONTRIBUTING.md").read_text()
