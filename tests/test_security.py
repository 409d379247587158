"""Calls that no module makes: run a shell, evaluate text, unpickle, trust any certificate."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "pertoken"
EXCEPTIONS = {
    ("pertoken/advisor/run.py", "import pickle"): "reads the memory of its own fork, which runs our code alone",
    ("pertoken/testing/conformity.py", "import pickle"): "reads its own process and regimes, for authors of rules",
    ("pertoken/store/integrity/checksums.py", "import marshal"): "encodes rows for a checksum and decodes nothing",
    ("pertoken/migrations/versions/telemetry/0004_smaller_rows.py", "import marshal"): "as checksums did",
}
"""Who may do what, and why."""
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    *(
        ("os", "system"),
        ("os", "popen"),
        ("os", "execl"),
        ("tempfile", "mktemp"),
        ("yaml", "load"),
        ("marshal", "loads"),
    ),
    *(("ssl", "CERT_NONE"), ("ssl", "_create_unverified_context"), ("subprocess", "getoutput")),
}
MODULES = {"pickle", "marshal", "shelve", "dill", "telnetlib", "ftplib"}


def offences(tree: ast.AST) -> Iterator[str]:
    """Name what a module does that none may."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {name.name}" for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield f"import {node.module}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if (node.value.id, node.attr) in ATTRIBUTES:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield f"{node.func.id}()"
            for word in node.keywords:
                if word.arg in ("shell", "check_hostname", "verify"):
                    safe = isinstance(word.value, ast.Constant) and word.value.value is (word.arg != "shell")
                    yield from () if safe else (f"{word.arg}={ast.unparse(word.value)}",)


def test_no_module_runs_a_shell_evaluates_text_or_loads_pickled_values() -> None:
    broken = {
        (module.relative_to(PACKAGE.parent).as_posix(), offence)
        for module in PACKAGE.rglob("*.py")
        for offence in offences(ast.parse(module.read_text()))
    }
    assert broken == set(EXCEPTIONS)


@pytest.mark.parametrize(
    "line",
    [
        *("eval('1')", "exec('a')", "import pickle", "from pickle import loads", "os.system('ls')", "ssl.CERT_NONE"),
        *("subprocess.run('ls', shell=True)", "subprocess.run('ls', shell=x)", "get(url, verify=False)"),
    ],
)
def test_each_is_noticed(line: str) -> None:
    assert list(offences(ast.parse(line)))


def test_allowed_content_raises_no_finding() -> None:
    assert not list(offences(ast.parse("subprocess.run(['ls'], check=True); re.compile('a'); model.eval()")))
