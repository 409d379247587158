"""Tests mirror packages: the test of a module is found by its path.

`pertoken/a/b.py` is tested by `tests/a/test_b.py`, or by the files of `tests/a/b/` where it is large. A package that is
used through its front door alone may be tested as a whole instead: all modules of `pertoken/a/` by `tests/a/test_a.py`.
Modules without a function need no test.
"""

import ast
from pathlib import Path

PACKAGE, TESTS = Path(__file__).parents[1] / "pertoken", Path(__file__).parent
RUN_BY_OTHERS = {
    "__init__": "what a package exports",
    "__main__": "two lines that call `main`",
    "migrations/versions": "revisions never change, and `tests/migrations` upgrades a stored database of each",
    "migrations/env": "Alembic runs it for each revision",
}
"""Modules and packages that no test can or need name, each with why."""


def test_each_module_is_tested_at_its_path() -> None:
    missing: dict[str, list[str]] = {}
    for module in sorted(PACKAGE.rglob("*.py")):
        path = module.relative_to(PACKAGE)
        name, folder = path.with_suffix("").as_posix(), TESTS / path.parent
        if path.stem in RUN_BY_OTHERS or name in RUN_BY_OTHERS or path.parent.as_posix().startswith("migrations/v"):
            continue
        tests = (folder / f"test_{path.stem}.py", folder / path.stem, folder / f"test_{path.parent.name}.py")
        if _has_a_function(module) and not any(test.exists() for test in tests):
            missing.setdefault(path.parent.as_posix(), []).append(path.stem)
    assert missing == {}


def test_a_package_of_tests_holds_at_most_twenty_five_test_files() -> None:
    files = {folder: len(list(folder.glob("test_*.py"))) for folder in TESTS.rglob("*") if folder.is_dir()}
    assert {folder.relative_to(TESTS).as_posix(): n for folder, n in files.items() if n > 25} == {}


def _has_a_function(module: Path) -> bool:
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(ast.parse(module.read_text()))
    )
