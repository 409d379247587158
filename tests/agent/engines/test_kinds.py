"""Each kind of server, page and file in which one request may count twice or unknown become 0 names its test."""

import ast
import csv
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROWS = list(csv.DictReader(Path(__file__).with_name("kinds.csv").read_text().splitlines()))


def test_each_kind_names_a_test_that_is_there() -> None:
    named: dict[str, set[str]] = {}
    for row in ROWS:
        file, _, test = row["test"].partition("::")
        assert row["kind"] and row["engines"]
        named.setdefault(file, set()).add(test)
    missing = {file: tests - functions(ROOT / file) for file, tests in named.items()}
    assert not any(missing.values()), missing


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)}
