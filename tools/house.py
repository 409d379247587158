"""Size and shape of the code as JSON: `python -m tools.house`.

Each counter is defined by the docstring of its function. Counters over source read every Python file of `pertoken/`;
counters over a run start `pertoken advise` on the database of `tests.scenario` with 2 GPUs and 60 minutes, in a process
of its own with a profile hook. Forms of tokens are of runs too (`tools.token_forms`).
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from tools.token_forms import forms

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pertoken"
PRONOUNS = frozenset(
    ["known", "one", "some", "asked", "of", "at", "now", "before", "other", "whole", "left", "place", "own", "theirs"]
)
"""Pronouns and bare adjectives that name nothing."""
MOMENTS = frozenset(
    [
        ("store/connect/open.py", "transaction"),
        ("window/evidence.py", "operating_points"),
        ("forecast/latency.py", "latencies"),
        ("proof/stored.py", "keep"),
    ]
)
"""Functions at which an advice run opens a transaction to read, calibrates, forecasts a latency and stores, by file and
name."""
WORKER = "advisor/worker/"
TEXTUAL = ("textual", "textual_plotext")


def sources(folder: Path = PACKAGE) -> Iterator[tuple[Path, ast.Module]]:
    """Yield every Python file of a folder with its syntax tree."""
    for file in sorted(folder.rglob("*.py")):
        yield file, ast.parse(file.read_text())


def lines() -> int:
    """Lines of all Python files of `pertoken/`."""
    return sum(len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py"))


def files() -> int:
    """Python files of `pertoken/`."""
    return sum(1 for _ in PACKAGE.rglob("*.py"))


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a syntax tree binds: each `Name` in a store context and each argument of a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def pronoun_percent() -> float:
    """Percent of all bindings in `pertoken/` whose name is in `PRONOUNS`."""
    names = [name for _, tree in sources() for name in bindings(tree)]
    return round(100 * sum(name in PRONOUNS for name in names) / len(names), 2)


def importers(trees: Mapping[str, ast.AST]) -> dict[str, set[str]]:
    """Return the modules that import each module, by dotted names; `import a.b` and `from a import b` count alike."""
    importers_of: dict[str, set[str]] = {name: set() for name in trees}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                imported = [module if module in importers_of else str(node.module) for module in whole]
            else:
                continue
            for module in importers_of.keys() & set(imported):
                importers_of[module].add(name)
    return importers_of


def modules_with_one_importer() -> int:
    """Modules of `pertoken/`, packages apart, that exactly one other module of it imports."""
    trees = {".".join(file.relative_to(ROOT).with_suffix("").parts): tree for file, tree in sources()}
    whole = {name.removesuffix(".__init__"): tree for name, tree in trees.items()}
    return sum(len(by) == 1 for name, by in importers(whole).items() if f"{name}.__init__" not in trees)


def lines_with_any() -> int:
    """Lines of `pertoken/` that mention `Any`."""
    return sum(bool(re.search(r"\bAny\b", line)) for file in PACKAGE.rglob("*.py") for line in file.open())


def base_exceptions() -> int:
    """Classes of `pertoken/` that derive from `BaseException` itself."""
    return sum(
        isinstance(base, ast.Name) and base.id == "BaseException"
        for _, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
    )


def rules_named() -> int:
    """String constants of `pertoken/` outside `plugins/`, `demo/` and docstrings that equal the name of a built-in
    rule."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rules = frozenset(project["entry-points"]["pertoken.rules"])
    return sum(
        isinstance(node, ast.Constant) and node.value in rules
        for file, tree in sources()
        if file.relative_to(PACKAGE).parts[0] not in ("plugins", "demo")
        for node in ast.walk(tree)
    )


def price_books() -> int:
    """Calls in `pertoken/` of the function `price_book`, which makes a price book of the stored prices."""
    return sum(
        isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "price_book"
        for _, tree in sources()
        for node in ast.walk(tree)
    )


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield each use of an attribute whose name begins with one underscore, and each method that has such a name."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) if isinstance(node, ast.Attribute) else getattr(node, "name", None)
        if isinstance(name, str) and re.match(r"_[a-z]", name):
            yield name


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, and of attributes and variables of classes, that a syntax tree defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@cache
def textual_names() -> frozenset[str]:
    """Return the private names that the installed Textual defines."""
    import textual

    folder = Path(str(textual.__file__)).parent
    return frozenset(name for _, tree in sources(folder) for name in defined_names(tree) if re.match(r"_[a-z]", name))


def textual_private_names() -> int:
    """Private names in `pertoken/tui/` that Textual defines and that no file there defines, or that override a method
    of Textual by calling `super()` for it."""
    trees = [tree for _, tree in sources(PACKAGE / "tui")]
    own = frozenset(name for tree in trees for name in defined_names(tree))
    borrowed = [name for tree in trees for name in private_names(tree) if name in textual_names() - own]
    overridden = [
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in textual_names()
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "super"
    ]
    return len(borrowed) + len(overridden)


HOOKED = """
import contextlib, fcntl, os, sys, threading
package, moments, database = sys.argv[1] + "/", eval(sys.argv[2]), sys.argv[4]
log = fcntl.fcntl(int(sys.argv[3]), fcntl.F_DUPFD, 100)  # a number that no process of a rule uses
written = {}

def log_line(line):
    with contextlib.suppress(OSError):  # processes of rules have closed the log
        os.write(log, f"{os.getpid() == parent} {line}\\n".encode())

def hook(frame, event, argument):
    if event != "call" or not frame.f_code.co_flags & 1 or not frame.f_code.co_filename.startswith(package):
        return
    file = frame.f_code.co_filename[len(package):]
    seen = written.setdefault(os.getpid(), set())
    if file not in seen:
        seen.add(file)
        log_line(f"executed {file}")
    if (file, frame.f_code.co_name) in moments:
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(package) and (name, 1) not in seen:
                seen.add((name, 1))
                log_line(f"stack {name[len(package):]}")
            frame = frame.f_back

parent = os.getpid()
sys.argv = ["pertoken", "advise", "--db", database, "--json"]
from pertoken.cli import main
threading.setprofile(hook)
sys.setprofile(hook)
main()
"""


@cache
def traced_run() -> tuple[str, ...]:
    """Return a line for each file that `pertoken advise` ran a function of, or had on the stack at a moment."""
    with tempfile.TemporaryDirectory() as folder:
        _seed(Path(folder) / "db")
        log = Path(folder) / "log"
        with log.open("wb") as opened:
            arguments = [str(PACKAGE), repr(set(MOMENTS)), str(opened.fileno()), str(Path(folder) / "db")]
            subprocess.run(
                [sys.executable, "-c", HOOKED, *arguments],
                pass_fds=[opened.fileno()],
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                check=True,
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
        return tuple(sorted(set(log.read_text().splitlines())))


def _seed(folder: Path) -> None:
    from tests.scenario import LOW_BATCH_70B, seed

    folder.mkdir()
    seed(folder, LOW_BATCH_70B, gpus=2, usd_per_hour=1.0, minutes=60, end_ts=int(time.time()) // 60 * 60)


def files_in_parent() -> int:
    """Files of `pertoken/` with an optimised function (`CO_OPTIMIZED`) that the process of `pertoken advise` itself
    ran."""
    return sum(line.startswith("True executed ") for line in traced_run())


def files_on_stacks() -> int:
    """Files of `pertoken/` on the call stack at any call of `MOMENTS`, in the process or in a fork of it, with all
    files of `advisor/worker/`."""
    stacks = {line.rpartition(" ")[2] for line in traced_run() if " stack " in line}
    return len(stacks | {str(file.relative_to(PACKAGE)) for file in (PACKAGE / WORKER).glob("*.py")})


def token_forms_by_advice() -> int:
    """Types of `pertoken/` and tables that pass served tokens from one package to another, from an engine's page to the
    details of advice: `tools.token_forms advice` lists them and defines a form."""
    return len(forms("advice"))


def token_forms_by_bill() -> int:
    """Types of `pertoken/` and tables that pass served tokens from one package to another, from an engine's page to the
    cells of the fleet: `tools.token_forms bill` lists them and defines a form."""
    return len(forms("bill"))


COUNTERS = (
    *(lines, files, modules_with_one_importer, lines_with_any, pronoun_percent),
    *(base_exceptions, rules_named, price_books, textual_private_names),
    *(files_in_parent, files_on_stacks),
    *(token_forms_by_advice, token_forms_by_bill),
)


def count(counters: Iterable[object] = COUNTERS) -> dict[str, object]:
    """Return the value and the definition of each counter by its name."""
    return {
        counter.__name__: {"value": counter(), "counts": " ".join((counter.__doc__ or "").split())}  # type: ignore[attr-defined, operator]
        for counter in counters
    }


if __name__ == "__main__":
    print(json.dumps(count(), indent=2))
