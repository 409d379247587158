"""Words that the project does not use, in the folders that have been cleaned (`tests/plain_english.toml`)."""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RULES = Path(__file__).with_name("plain_english.toml")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_UNTITLED = {"contextmanager", "asynccontextmanager", "property", "cached_property", "fixture"}
"""Decorators of functions that are used as a noun: their docstring names what they give."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that a kind of source text must not match, and what to write instead."""

    pattern: re.Pattern[str]
    write: str
    whole: bool = False
    """Whether a name must match from end to end; else any of its parts may."""
    of: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """Paths in which the pattern has another meaning."""


@cache
def _settings() -> dict[str, Any]:
    return tomllib.loads(RULES.read_text())


@cache
def _rules(kind: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            re.compile(row["pattern"]),
            row["write"],
            row.get("whole", False),
            tuple(row.get("of", ())),
            tuple(allowed["path"] for allowed in row.get("allow", ())),
        )
        for row in _settings()[kind]
    )


def findings(path: str, source: str) -> list[str]:
    """Return a line for each place of a file that breaks a rule."""
    if path.endswith(".py"):
        defined = list(_defined(ast.parse(source)))
        return [*_words(path, source), *_docstrings(path, defined), *_classes(path, defined)]
    return [
        _finding(path, number, match, rule)
        for number, line in enumerate(source.splitlines(), 1)
        for rule in _of_path("text", path)
        for match in [rule.pattern.search(line)]
        if match
    ]


def _words(path: str, source: str) -> Iterator[str]:
    texts = _of_path("text", path)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for rule in texts:
                for match in rule.pattern.finditer(token.string):
                    line = token.start[0] + token.string.count("\n", 0, match.start())
                    yield _finding(path, line, match, rule)
        elif token.type == tokenize.NAME:
            for rule, in_name in _of_name(token.string):
                if not _within(path, rule.allow):
                    yield _finding(path, token.start[0], in_name, rule)


@cache
def _of_name(name: str) -> tuple[tuple[Rule, re.Match[str]], ...]:
    """Return the rules that a name breaks; most names stand in many files."""
    rules = _rules("test_name" if name.startswith("test_") else "name")
    return tuple((rule, match) for rule in rules if (match := _in_name(name, rule)))


def _in_name(name: str, rule: Rule) -> re.Match[str] | None:
    if rule.whole:
        return rule.pattern.fullmatch(name.strip("_"))
    if name.startswith("test_"):  # a sentence, in which two words may be one term
        return rule.pattern.search(name.replace("_", " "))
    parts = re.split(r"_|(?<=[a-z])(?=[A-Z])", name)
    return next((match for part in parts if (match := rule.pattern.fullmatch(part))), None)


def _defined(node: Any) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the module and all that its statements define: to walk through expressions takes most of the time."""
    if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
        yield node
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, block, None)
        for statement in inner if isinstance(inner, list) else ():
            yield from _defined(statement)


def _classes(path: str, defined: Sequence[ast.AST]) -> Iterator[str]:
    for node in defined:
        if isinstance(node, ast.ClassDef):
            for rule in _of_path("class", path):
                if match := rule.pattern.fullmatch(node.name.strip("_")):
                    yield _finding(path, node.lineno, match, rule)


def _docstrings(
    path: str, defined: Sequence[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]
) -> Iterator[str]:
    for node in defined:
        if not (text := ast.get_docstring(node)):
            continue
        kind = "module" if isinstance(node, ast.Module) else "class" if isinstance(node, ast.ClassDef) else "function"
        if isinstance(node, FUNCTIONS) and (node.name.startswith("test_") or _UNTITLED & _decorators(node)):
            continue
        for rule in _of_path("docstring", path):
            if kind in rule.of and (match := rule.pattern.match(text)):
                yield _finding(path, getattr(node, "lineno", 1), match, rule)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}


def _of_path(kind: str, path: str) -> list[Rule]:
    return [rule for rule in _rules(kind) if not _within(path, rule.allow)]


def _finding(path: str, line: int, match: re.Match[str], rule: Rule) -> str:
    return f"{path}:{line}: {match.group().strip()!r}; write: {rule.write}"


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _cleaned_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    paths = listed or [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if path.is_file()]
    settings = _settings()
    return [
        path
        for path in paths
        if path.endswith((".py", ".md"))
        and _within(path, settings["cleaned"])
        and not _within(path, settings["frozen"])
        and (ROOT / path).exists()
    ]


def test_cleaned_folders_use_the_words_of_the_field() -> None:
    files = _cleaned_files()
    assert len(files) > 300
    broken = [line for path in files for line in findings(path, (ROOT / path).read_text())]
    assert not broken, "\n".join(broken)


def test_every_cleaned_folder_and_every_exception_exists_and_has_a_reason() -> None:
    settings = _settings()
    allowed = [
        row
        for kind in ("text", "name", "test_name", "class", "docstring")
        for rule in settings[kind]
        for row in rule.get("allow", ())
    ]
    paths = [*settings["cleaned"], *settings["frozen"], *(row["path"] for row in allowed)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert all(row["why"] for row in allowed)
    assert settings["cleaned"] == sorted(settings["cleaned"])


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ('"""State of a driver."""\n# what the driver told\n', "told"),
        ('"""Page."""\nraise ValueError("it says no")\n', "says"),
        ('"""Page."""\nfor each in (1, 2):\n    print(each)\n', "each"),
        ('"""Page."""\nMOST_ROWS = 3\n', "MOST_ROWS"),
        ('"""Page."""\nutil_1e4 = 3\n', "util_1e4"),
        ('"""Page."""\nclass _Gap:\n    pass\n', "Gap"),
        ('"""Page."""\ndef holders() -> int:\n    return 1\n', "holders"),
        ('"""Page."""\ndef test_a_page_is_told_once() -> None:\n    pass\n', "told"),
        ('"""Page."""\ndef test_a_page_has_so_many_words() -> None:\n    pass\n', "so many"),
        ('"""Page."""\ndef test_what_is_read_is_stored() -> None:\n    pass\n', "test what"),
        ('"""What a page is."""\n', "What"),
        ('"""Page."""\ndef page() -> int:\n    """The number of a page."""\n    return 1\n', "The"),
    ],
)
def test_each_kind_of_word_is_noticed_where_it_stands(source: str, word: str) -> None:
    (word_found,) = {line.split("'")[1] for line in findings("pertoken/window/page.py", source)}
    assert word_found == word


def test_a_sentence_as_a_name_and_a_legitimate_use_are_left_alone() -> None:
    source = (
        '"""Page."""\n\n\ndef test_each_page_is_found_there() -> None:\n    """The name of a test is a sentence."""\n'
    )
    assert findings("tests/window/test_page.py", source) == []
    assert findings("pertoken/store/rows.py", '"""Rows."""\nutil_1e4 = 3\n') == []
